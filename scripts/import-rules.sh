#!/usr/bin/env bash
# Which modules may import which: by import-linter; for tests, benchmarks, studies and circles by
# scripts/import_rules.py.
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

.venv/bin/python scripts/import_rules.py
