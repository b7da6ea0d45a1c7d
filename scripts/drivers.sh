#!/usr/bin/env bash
# Installs the OpenCL CPU drivers of tests and CI, or runs a command on one of them.
#
#   scripts/drivers.sh FOLDER          install: PoCL from Debian's packages, Intel's from PyPI
#   scripts/drivers.sh FOLDER intel COMMAND...
#   scripts/drivers.sh FOLDER pocl COMMAND...
#
# Intel's driver is in a virtual environment in FOLDER. PoCL and the ICD loader are packages of the
# system, which are installed only with UR_INSTALL=1. Installed drivers are not fetched again.
set -euo pipefail
# shellcheck source=need.sh
. "$(dirname "$0")/need.sh"
folder=$1
shift
version=2026.2.0
venv=$folder/intel-opencl-rt-$version

case ${1:-install} in
install)
    mkdir -p "$folder"
    if [ ! -e "$venv/ready" ]; then
        python3 -m venv --clear "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check \
            "intel-opencl-rt==$version" "intel-cmplr-lib-rt==$version"
        touch "$venv/ready"
    fi
    if ! ls /etc/OpenCL/vendors/pocl.icd /usr/lib/*/libOpenCL.so.1 >/dev/null 2>&1; then
        need ocl-icd-libopencl1 pocl-opencl-icd
    fi
    echo "drivers are in $folder"
    ;;
intel)
    shift
    # The vendor list of Debian's ICD loader is a folder; its own variable takes a file's name.
    mkdir -p "$folder/vendors"
    echo "$(cd "$venv/lib" && pwd)/libintelocl.so" >"$folder/vendors/intel.icd"
    exec env LD_LIBRARY_PATH="$venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        OCL_ICD_FILENAMES="$venv/lib/libintelocl.so" OCL_ICD_VENDORS="$folder/vendors" "$@"
    ;;
pocl)
    shift
    exec env OCL_ICD_VENDORS=/etc/OpenCL/vendors "$@"
    ;;
*)
    echo "unknown driver: $1" >&2
    exit 2
    ;;
esac
