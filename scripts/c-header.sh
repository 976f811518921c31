#!/usr/bin/env bash
# Writes the C header of libtailback; needs cbindgen (cargo install cbindgen).
set -euo pipefail
cd "$(dirname "$0")/.."
cbindgen --quiet --config crates/capi/cbindgen.toml --output crates/capi/include/tailback.h crates/capi
