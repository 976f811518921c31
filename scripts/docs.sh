#!/usr/bin/env bash
# The documentation pages that are made from the sources: `build` writes them, `check` fails where a
# page is not what the sources give.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case $mode in build | check) ;; *) echo "usage: scripts/docs.sh build|check" >&2; exit 2 ;; esac

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
.venv/bin/python -m tailback.schema >"$made/tables.md"
.venv/bin/python -m tailback.scenario_reference >"$made/scenario.md"
.venv/bin/python -m tailback.diagnose.rules "$made/rules"

if [ "$mode" = build ]; then
  rm -rf docs/reference/rules
  cp -r "$made"/. docs/reference/
  exit
fi
if ! { diff -u docs/reference/tables.md "$made/tables.md" && diff -u docs/reference/scenario.md "$made/scenario.md" && diff -ru docs/reference/rules "$made/rules"; }; then
  echo "generated pages under docs/ are out of date; remedy: make docs, and commit them" >&2
  exit 1
fi
