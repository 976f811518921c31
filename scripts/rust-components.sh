#!/usr/bin/env bash
# rustfmt and clippy: a minimal Rust toolchain lacks them. Adds them with rustup, or reports that they are missing.
set -uo pipefail
for component in fmt:rustfmt clippy:clippy; do
  cargo "${component%%:*}" --version >/dev/null 2>&1 && continue
  rustup component add "${component##*:}" >/dev/null 2>&1 && continue
  echo "SKIPPED: cargo ${component%%:*} (the toolchain has no ${component##*:};" \
    "remedy: rustup component add ${component##*:})"
done
exit 0
