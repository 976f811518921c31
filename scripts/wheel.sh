#!/usr/bin/env bash
# Wheels in dist/, for glibc 2.28 (RHEL 8) and any Python from 3.11: scripts/wheel.sh MACHINE...
#
# Zig's linker and C compiler, which come as a Python package, know every architecture and the symbols
# of older glibc versions; those of the system would tie the wheel to the machine it was built on.
set -euo pipefail
cd "$(dirname "$0")/.."

for machine in "$@"; do
  case $machine in
    x86_64 | aarch64) ;;
    *) echo "wheel: no recipe for $machine; remedy: pip install . builds for one machine" >&2; exit 1 ;;
  esac
done

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
export UV="$uv" PYTHON="$tools/bin/python"

# Restore this machine's OTF2 library in the checkout, even after a failure.
trap 'env -u CC -u MACHINE scripts/otf2-library.sh fetch' EXIT

for machine in "$@"; do
  target=$machine-unknown-linux-gnu
  if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    rustup target add "$target" >/dev/null 2>&1 || {
      echo "wheel: Rust cannot compile for $machine; remedy: rustup target add $target" >&2
      exit 1
    }
  fi
  # If the OTF2 library has to be compiled, it is for that glibc, too.
  if [ "$machine" = x86_64 ]; then unset CC; else
    export CC="$PYTHON -m ziglang cc -target $machine-linux-gnu.2.28"
  fi
  MACHINE=$machine scripts/otf2-library.sh fetch
  unset CC
  mkdir -p dist
  wheel=$(
    export PATH="$tools/bin:$PATH" PYTHONPATH=scripts
    export MATURIN_PEP517_ARGS="--zig --compatibility manylinux_2_28 --target $target"
    python -c 'import build_backend as b; print(b.build_wheel("dist"))' | tail -n 1
  )
  "$PYTHON" scripts/check_wheel.py "dist/$wheel"
  echo "dist/$wheel"
done
