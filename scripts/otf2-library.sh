#!/usr/bin/env bash
# Puts the OTF2 C library into python/tailback/_otf2, for any Python: it is plain C, and Tailback
# never imports the Python package `otf2` that it comes with. Version and hashes are those of
# scripts/otf2-requirements.lock. The exit code of `check` tells whether it is there, `fetch` fetches
# it; UV= names uv, PYTHON= the Python that unpacks, MACHINE= the architecture (else this machine's).
#
# On x86-64 the library is taken from that package's wheel, which is for CPython 3.11 and needs glibc
# 2.17. There is none for other machines: there the package is compiled, with the C compiler in CC.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case $mode in check | fetch) ;; *) echo "usage: scripts/otf2-library.sh check|fetch" >&2; exit 2 ;; esac

lock=scripts/otf2-requirements.lock
place=python/tailback/_otf2
machine=${MACHINE:-$(uname -m)}
stamp="$machine ${CC:-} $(sha256sum $lock | cut -d' ' -f1)"
if [ -f $place/libotf2.so ] && [ -f $place/COPYING ] && [ "$(cat $place/.stamp 2>/dev/null)" = "$stamp" ]; then
  exit
fi
[ "$mode" = fetch ] || exit 1

uv=${UV:-uv}
python=${PYTHON:-.venv/bin/python}
if [ "$machine" = x86_64 ]; then
  how=(--only-binary otf2 --python-version 3.11 --python-platform x86_64-manylinux_2_17)
else
  how=(--no-binary otf2)
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$uv" pip install --quiet --python "$python" --no-deps --require-hashes "${how[@]}" \
  --target "$folder" --requirement $lock
"$python" scripts/build_backend.py "$folder"
echo "$stamp" >$place/.stamp
