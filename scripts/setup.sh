#!/usr/bin/env bash
# Prepares .venv for `make demo` (run) or `make test` (dev); does only what is not done yet.
#
# Each finished step stores a hash of its inputs, so a second call takes a moment, and a changed
# lock file, Rust source or checkout path repeats only the stale step.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

mode=${1:-dev}
case $mode in
  run) lock=requirements.lock profile=demo ;;
  dev) lock=requirements-dev.lock profile=release ;;
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

has_installer() { "$1" -m pip --version >/dev/null 2>&1 || "$1" -c 'import ensurepip' 2>/dev/null; }

# uv from PATH, or the pinned one installed by pip into .tools/uv.
find_uv() {
  local python=$1
  if command -v uv >/dev/null; then command -v uv; return; fi
  if [ ! -x .tools/uv/bin/uv ]; then
    has_installer "$python" || scripts/debian-packages.sh python >&2
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

# Checks for everything that cannot be downloaded, before anything is downloaded.
check_machine() {
  local folder output want have
  python=$(find_python)
  if ! command -v uv >/dev/null && [ ! -x .tools/uv/bin/uv ] && ! has_installer "$python" &&
    ! { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }; then
    fail "$python has neither pip nor venv" "remedy: apt-get install python3-pip python3-venv"
  fi
  command -v cc >/dev/null || fail "no C compiler (cc)" "remedy: apt-get install gcc libc6-dev"
  # Rust links with cc, which fails if the files of the C library are missing.
  folder=$(mktemp -d)
  if ! output=$(cc -x c - -include stdio.h -o "$folder/a.out" <<<'int main(void) { return 0; }' 2>&1); then
    rm -rf "$folder"
    fail "the C compiler (cc) cannot build a program of one line: $(head -n 1 <<<"$output")" \
      "remedy: apt-get install gcc libc6-dev"
  fi
  rm -rf "$folder"
  want=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  command -v cargo >/dev/null || fail "no Rust toolchain (cargo)" \
    "remedy: install Rust $want or newer with rustup"
  have=$(rustc --version | cut -d' ' -f2) || fail "the Rust toolchain does not run (rustc --version)" \
    "remedy: install Rust $want or newer with rustup"
  [ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] || fail \
    "Rust $have is too old: Tailback needs $want or newer" \
    "remedy: rustup update stable; or install Rust with rustup (Debian's own is too old)"
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
core="$PWD $(find crates -type f \( -name '*.rs' -o -name Cargo.toml \) -print0 | LC_ALL=C sort -z |
  xargs -0 sha256sum Cargo.toml Cargo.lock pyproject.toml scripts/build_backend.py | sha256sum | cut -d' ' -f1)"
# A build for `dev` serves `run` as well.
built() {
  compgen -G 'python/tailback/_core*.so' >/dev/null || return
  stamp_is core "release $core" || stamp_is core "$profile $core"
}
has_otf2() { scripts/otf2-library.sh check; }

if ready && built && has_otf2; then exit; fi
check_machine

if ! ready; then
  uv=$(find_uv "$python")
  export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
  rm -f $venv/stamp-*
  say "installing $lock into $venv ($("$python" -V))"
  # An environment whose Python is gone, or that was moved (its scripts name the old path), is recreated.
  if ! $venv/bin/python -c '' 2>/dev/null || ! grep -qF "$PWD/$venv" $venv/bin/activate; then
    "$uv" venv --quiet --clear --python "$python" $venv
  fi
  "$uv" pip sync --quiet --python $venv/bin/python --require-hashes "$lock"
  if [ $mode = dev ]; then echo "$dev_place" >$venv/stamp-dev; else echo "$place" >$venv/stamp-run; fi
fi

# 2. The OTF2 library that the reader of traces loads.
if ! has_otf2; then
  uv=${uv:-$(find_uv "$python")}
  say "fetching the OTF2 library"
  UV="$uv" scripts/otf2-library.sh fetch
fi

# 3. The package itself, editable, with the Rust extension tailback._core (profiles: Cargo.toml).
if ! built; then
  uv=${uv:-$(find_uv "$python")}
  say "building the Rust extension tailback._core (a minute or two the first time)"
  rm -f $venv/stamp-core
  PATH="$PWD/$venv/bin:$PATH" MATURIN_PEP517_ARGS="--profile $profile" "$uv" pip install --quiet --python $venv/bin/python \
    --no-deps --no-build-isolation --reinstall-package tailback --editable .
  $venv/bin/python -c 'import tailback._core'
  "$uv" pip check --quiet --python $venv/bin/python ||
    fail "the lock files do not fit pyproject.toml" "remedy: make lock, then again"
  echo "$profile $core" >$venv/stamp-core
fi
