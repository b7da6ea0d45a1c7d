#!/usr/bin/env bash
# Runs the conformance suites on Intel's loader of the reference version.
#
#   scripts/intel-loader.sh PREFIX DRIVERS        over this project's adapters
#   scripts/intel-loader.sh PREFIX DRIVERS own    over the OpenCL adapter inside of it
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers. The loader comes from PyPI, into a virtual environment under target/. What is known
# to fail stands in conformance/expectations; conformance/facts-intel-2026.2.md explains it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=$2
version=2026.2.0
venv=${CARGO_TARGET_DIR:-$root/target}/intel-loader-$version
expectations=$root/conformance/expectations

if [ ! -e "$venv/ready" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        "intel-cmplr-lib-ur==$version" "intel-cmplr-lib-rt==$version"
    touch "$venv/ready"
fi

# run EXPECTATIONS...: on Intel's loader and CPU driver.
run() {
    local files=()
    for name in "$@"; do
        files+=(--expectations "$expectations/$name.yml")
    done
    LD_LIBRARY_PATH=$venv/lib "$root/scripts/drivers.sh" "$drivers" intel \
        "$prefix/bin/ur-conformance" --loader "$venv/lib/libur_loader.so.0" --timeout 120 "${files[@]}"
}

case ${3:-ours} in
ours)
    for adapter in native_cpu opencl; do
        UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_$adapter.so.0 run "$adapter" intel-loader
    done
    ;;
own)
    ONEAPI_DEVICE_SELECTOR=opencl:cpu run intel-opencl
    ;;
*)
    echo "unknown choice: $3" >&2
    exit 2
    ;;
esac
