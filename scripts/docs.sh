#!/usr/bin/env bash
# The documentation. `build` writes the pages that are made from the sources and then the site into
# site/. `check-pages` fails where such a page differs from its sources; `check` also where the site
# has a warning: a dead link, a page outside the index, a docstring that is not valid markup. Both
# `build` and `check` fail where pages are too long or tell of the past (check_pages.py).
# Nothing needs a network.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case $mode in build | check | check-pages) ;; *) echo "usage: scripts/docs.sh build|check|check-pages" >&2; exit 2 ;; esac

python=.venv/bin/python
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir "$made/reference"
"$python" - >"$made/reference/tables.md" <<'PYTHON'
from tailback.run import schema
from tailback.port_counters import schema as port_counters

print(schema.markdown() + "\n" + port_counters.markdown(), end="")
PYTHON
"$python" -m tailback.scenario.reference >"$made/reference/scenario.md"
"$python" -m tailback.cli.reference >"$made/reference/cli.md"
"$python" -m tailback.diagnosis.rules >"$made/reference/rules.md"

# The Python reference is made by the site builder itself, from the docstrings.
site() { "$python" -m sphinx --quiet --fail-on-warning --builder html --doctree-dir "$1" docs "$2"; }

if [ "$mode" = build ]; then
  cp -r "$made/reference" docs/
  site target/doctrees site
  echo "The site: $PWD/site/index.html"
  "$python" scripts/check_pages.py
  exit
fi
different=$(cd "$made" && find . -type f -exec sh -c 'cmp -s "$1" "$2/docs/$1" || echo "$1"' _ {} "$OLDPWD" \;)
for page in $different; do diff -u "docs/$page" "$made/$page" >&2 || true; done
if [ -n "$different" ]; then
  printf '%s\n' "generated pages under docs/ are out of date; remedy: make docs, and commit them" >&2
  exit 1
fi
[ "$mode" = check-pages ] && exit
"$python" scripts/check_pages.py
site "$made/doctrees" "$made/site"
