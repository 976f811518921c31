#!/usr/bin/env bash
# Which modules import which: the package by import-linter, the tests by their import lines.
#
# import-linter over the package. It reads sources only and so cannot see a compiled module: the
# rules run on a copy in which the Rust core tailback._core is an empty Python file.
set -euo pipefail
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd python && find tailback -name '*.py' -print0 | xargs -0 cp --parents -t "$copy")
: >"$copy/tailback/_core.py"
PYTHONPATH="$copy" PYTHONDONTWRITEBYTECODE=1 .venv/bin/lint-imports --config .importlinter --no-cache

# What several test modules need is in tests/factories; no test module imports another.
if grep -rnE '^[[:space:]]*(from|import)[[:space:]].*\btest_' tests --include='*.py'; then
  echo "import-rules: a test module imports another; put what both need in tests/factories" >&2
  exit 1
fi
