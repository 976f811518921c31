#!/usr/bin/env bash
# Install a wheel in a bare Debian that is made from packages, and diagnose a recorded run with it:
#
#     sudo scripts/try-userland.sh bookworm|trixie WHEEL
#
# Needs debootstrap. MIRROR= names the archive (else the one that apt uses). Settings of pip are those
# of this machine. Takes a minute and 600 MB below TMPDIR, which are removed.
set -euo pipefail
[ $# -eq 2 ] && [ -f "$2" ] || { echo "usage: scripts/try-userland.sh SUITE WHEEL; remedy: make wheel" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
suite=$1 wheel=$(realpath "$2")
place=$(mktemp -d)
trap 'umount "$place/proc" 2>/dev/null || true; rm -rf --one-file-system "$place"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$place" "${MIRROR:-}" >"$place.log" ||
  { tail -n 20 "$place.log" >&2; exit 1; }
rm "$place.log"
mkdir -p "$place/checkout/scripts" "$place/checkout/examples/lab" "$place/wheels"
cp "$root/scripts/try-wheel.sh" "$place/checkout/scripts/"
cp -r "$root/examples/lab/placement" "$place/checkout/examples/lab/"
cp "$wheel" "$place/wheels/"
cp /etc/resolv.conf /etc/hosts "$place/etc/"
for settings in /etc/pip.conf "${PIP_CONFIG_FILE:-}" "$HOME/.config/pip/pip.conf"; do
  if [ -f "$settings" ]; then cp "$settings" "$place/etc/pip.conf"; fi
done
if [ -n "${PIP_CERT:-}" ]; then cp "$PIP_CERT" "$place/etc/pip-cert.pem"; fi
mount -t proc proc "$place/proc"
chroot "$place" env -i PATH=/usr/bin:/bin HOME=/root ${PIP_CERT:+PIP_CERT=/etc/pip-cert.pem} \
  sh /dev/stdin "/wheels/$(basename "$wheel")" <<'SH'
set -e
. /etc/os-release
bash /checkout/scripts/try-wheel.sh "$1"
echo "$PRETTY_NAME, $(python3 --version), glibc $(ldd --version | head -n 1 | grep -o '[0-9.]*$'): diagnosed a run"
SH
