#!/usr/bin/env bash
# Install a wheel where nothing else is, and diagnose a recorded run with it.
#
#     scripts/try-wheel.sh WHEEL                  in a new environment of this machine's Python
#     scripts/try-wheel.sh docker IMAGE WHEEL     in a container: Debian, or a system like RHEL 8
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

if [ "${1:-}" = docker ]; then
  [ $# -eq 3 ] || { echo "usage: scripts/try-wheel.sh docker IMAGE WHEEL" >&2; exit 2; }
  # shellcheck disable=SC2016  # expanded in the container
  exec docker run --rm -v "$root:/checkout:ro" -v "$(realpath "$(dirname "$3")"):/wheels:ro" "$2" sh -c '
    if command -v apt-get >/dev/null; then
      apt-get update -qq && apt-get install -qqy python3 python3-venv bash >/dev/null
    else
      dnf install -qy python3.11 python3.11-pip >/dev/null
    fi
    exec bash /checkout/scripts/try-wheel.sh "/wheels/$1"' sh "$(basename "$3")"
fi

[ $# -eq 1 ] && [ -f "$1" ] || { echo "usage: scripts/try-wheel.sh WHEEL; remedy: make wheel" >&2; exit 2; }
python=$(command -v python3.11 || command -v python3)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "$1"
# Away from the checkout, whose package would be found first.
cd "$place"
cp -r "$root/examples/lab/placement/before" case
./venv/bin/tailback diagnose case --out diagnosis --quiet
test -s diagnosis/report.html
