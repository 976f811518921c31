#!/usr/bin/env bash
# Installs the Debian packages of a group if possible; otherwise reports what is missing.
#
#   scripts/debian-packages.sh python   what `make demo` needs where Python has neither pip nor venv
#   scripts/debian-packages.sh test     programs that some tests drive; those tests skip without them
#
# Never fails: a program that needs a package checks for it and reports if it is missing.
set -uo pipefail

case ${1:-} in
  python) packages=(python3-pip python3-venv) ;;
  test)
    packages=(
      chromium chromium-driver              # the report, looked at in a real browser
      openmpi-bin libopenmpi-dev            # real MPI programs, their monitoring and rank files
      mpich libmpich-dev gfortran           # the recorder with another MPI, and from Fortran
      eztrace otf2-tools                    # OTF2 traces of them, and a second reader to compare with
      tshark                                # captures, dissected by somebody else
      iproute2                              # a network of namespaces: the lab
      clang bpftool libbpf-dev              # sampling in its ports: eBPF programs, built and loaded
      ibsim-utils infiniband-diags opensm   # a simulated InfiniBand subnet with the real tools
      prometheus                            # reads the metrics of the collector, checks the alert rules
      iverilog                              # the switch port in hardware, simulated
      verilator yosys                       # its lint; its gates and proofs
    )
    ;;
  *) echo "usage: scripts/debian-packages.sh python|test" >&2; exit 2 ;;
esac

installed() { [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]; }
missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "not a Debian system; install what corresponds to: ${missing[*]}"
elif [ "$(id -u)" -ne 0 ]; then
  echo "missing Debian packages: ${missing[*]}"
  echo "remedy: as root, apt-get install --no-install-recommends ${missing[*]}"
else
  echo "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  if ! apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    # One unavailable package must not prevent the installation of the others.
    for package in "${missing[@]}"; do
      apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "could not install Debian package $package"
    done
  fi
fi
exit 0
