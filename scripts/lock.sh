#!/usr/bin/env bash
# Writes the lock files from pyproject.toml: every version with its hashes, and no address of any
# registry, so that the files work with a mirror as well. UPGRADE=1 takes the newest versions.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || echo .tools/uv/bin/uv)
[ -x "$uv" ] || { echo "lock: no uv; remedy: make clean setup" >&2; exit 1; }
compile() {
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
    ${UPGRADE:+--upgrade} "$@"
}
compile pyproject.toml --group build --output-file requirements.lock
compile pyproject.toml --group dev --constraint requirements.lock --output-file requirements-dev.lock
compile --group wheel --constraint requirements.lock --output-file requirements-wheel.lock
grep -oE '^otf2==[0-9.]+' requirements-dev.lock |
  compile --no-annotate - --output-file scripts/otf2-requirements.lock
# The version of uv itself is changed by hand, in the first line that names it.
version=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' scripts/uv-requirements.lock)
echo "uv==$version" | compile --no-annotate - --output-file scripts/uv-requirements.lock
cargo update --workspace --quiet
