#!/usr/bin/env bash
# Makes .venv ready for `make demo` (run) or for `make test` (dev), doing only what is not done yet.
#
# What was done is remembered as a hash of what it was made from, so a second call takes a moment,
# and a changed lock file, Rust source or checkout path makes exactly the stale part again.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

mode=${1:-dev}
case $mode in
  run) lock=requirements.lock ;;
  dev) lock=requirements-dev.lock ;;
  *) echo "usage: scripts/setup.sh [run|dev]" >&2; exit 2 ;;
esac
venv=.venv
say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# A Python of at least 3.11; PYTHON= chooses another one.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  fail "no Python of at least 3.11 among: ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}" \
    "remedy: install one (Debian 12: apt-get install python3) or name it: make PYTHON=/path/to/python3"
}

# uv from PATH, or the pinned one installed by pip into .tools/uv.
find_uv() {
  local python=$1
  if command -v uv >/dev/null; then command -v uv; return; fi
  if [ ! -x .tools/uv/bin/uv ]; then
    if ! "$python" -m pip --version >/dev/null 2>&1 && ! "$python" -c 'import ensurepip' 2>/dev/null; then
      scripts/debian-packages.sh python >&2
    fi
    say "installing uv into .tools/uv"
    rm -rf .tools/uv
    local install=(install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps
      --require-hashes --requirement scripts/uv-requirements.lock)
    if "$python" -m pip --version >/dev/null 2>&1; then
      "$python" -m pip "${install[@]}" --target "$PWD/.tools/uv"
    elif "$python" -c 'import ensurepip' 2>/dev/null; then
      "$python" -m venv .tools/uv && .tools/uv/bin/python -m pip "${install[@]}"
    else
      fail "$python has neither pip nor venv" "remedy: apt-get install python3-pip python3-venv"
    fi
  fi
  echo "$PWD/.tools/uv/bin/uv"
}

need_compilers() {
  command -v cc >/dev/null || fail "no C compiler (cc)" "remedy: apt-get install gcc libc6-dev"
  command -v cargo >/dev/null || fail "no Rust toolchain (cargo)" \
    "remedy: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer with rustup"
}

hash_of() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }
stamp_is() { [ "$(cat "$venv/stamp-$1" 2>/dev/null)" = "$2" ]; }

# 1. The packages of the lock file. A dev environment serves `run` as well.
place="$PWD $(hash_of requirements.lock)"
dev_place="$PWD $(hash_of requirements-dev.lock)"
ready() {
  [ -x $venv/bin/python ] || return
  stamp_is dev "$dev_place" || { [ $mode = run ] && stamp_is run "$place"; }
}
if ! ready; then
  python=$(find_python)
  uv=$(find_uv "$python")
  export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
  rm -f $venv/stamp-*
  say "installing $lock into $venv ($("$python" -V))"
  # An environment whose Python is gone, or that was moved (its scripts name the old place), is made anew.
  if ! $venv/bin/python -c '' 2>/dev/null || ! grep -qF "$PWD/$venv" $venv/bin/activate; then
    "$uv" venv --quiet --clear --python "$python" $venv
  fi
  "$uv" pip sync --quiet --python $venv/bin/python --require-hashes "$lock"
  if [ $mode = dev ]; then echo "$dev_place" >$venv/stamp-dev; else echo "$place" >$venv/stamp-run; fi
fi

# 2. The package itself, editable, with the Rust extension tailback._core built for release.
core="$PWD $(find crates -type f \( -name '*.rs' -o -name Cargo.toml \) -print0 | LC_ALL=C sort -z |
  xargs -0 sha256sum Cargo.toml Cargo.lock pyproject.toml | sha256sum | cut -d' ' -f1)"
if ! stamp_is core "$core" || ! compgen -G 'python/tailback/_core*.so' >/dev/null; then
  need_compilers
  uv=${uv:-$(find_uv "$(find_python)")}
  say "building the Rust extension tailback._core (a minute or two the first time)"
  rm -f $venv/stamp-core
  PATH="$PWD/$venv/bin:$PATH" "$uv" pip install --quiet --python $venv/bin/python \
    --no-deps --no-build-isolation --reinstall-package tailback --editable .
  $venv/bin/python -c 'import tailback._core'
  "$uv" pip check --quiet --python $venv/bin/python ||
    fail "the lock files do not fit pyproject.toml" "remedy: make lock, then again"
  echo "$core" >$venv/stamp-core
fi
