#!/usr/bin/env bash
# A wheel for this machine's architecture in dist/, for glibc 2.28 (RHEL 8) and any Python from 3.11.
#
# Zig's linker, which comes as a Python package, knows the symbols of older glibc versions; that of
# the system would tie the wheel to the glibc it was built on.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -m)
case $machine in
  x86_64 | aarch64) ;;
  *) echo "wheel: no recipe for $machine; remedy: pip install . builds for one machine" >&2; exit 1 ;;
esac

uv=$(command -v uv || echo "$PWD/.tools/uv/bin/uv")
[ -x "$uv" ] || { echo "wheel: no uv; remedy: make clean setup" >&2; exit 1; }
tools=$PWD/.tools/wheel
stamp="$PWD $(sha256sum requirements-wheel.lock | cut -d' ' -f1)"
if [ "$(cat "$tools/stamp" 2>/dev/null)" != "$stamp" ]; then
  echo "wheel: installing requirements-wheel.lock into .tools/wheel"
  "$uv" venv --quiet --clear --python .venv/bin/python "$tools"
  "$uv" pip sync --quiet --python "$tools/bin/python" --require-hashes requirements-wheel.lock
  echo "$stamp" >"$tools/stamp"
fi

# Where the OTF2 library has to be compiled, it is for that glibc too.
if [ "$machine" != x86_64 ]; then
  export CC="$tools/bin/python -m ziglang cc -target $machine-linux-gnu.2.28"
fi
UV="$uv" PYTHON="$tools/bin/python" scripts/otf2-library.sh fetch

mkdir -p dist
export PATH="$tools/bin:$PATH"
export MATURIN_PEP517_ARGS="--zig --compatibility manylinux_2_28"
wheel=$(PYTHONPATH=scripts python -c 'import build_backend as b; print(b.build_wheel("dist"))' | tail -n 1)
python scripts/check_wheel.py "dist/$wheel"
echo "dist/$wheel"
