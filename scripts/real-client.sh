#!/usr/bin/env bash
# Runs a SYCL program on Intel's own libsycl over this project's adapter.
#
#   scripts/real-client.sh PREFIX [DRIVERS]
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers. For each of the runtimes 2026.2.0 and 2026.1.2 it makes a virtual environment
# under target/, builds conformance/sycl/*.cpp with the host compiler and runs each program on
# native_cpu and, with DRIVERS, on Intel's CPU driver through the OpenCL adapter. With 2026.2
# the loader is part of libsycl and takes our adapter by UR_ADAPTERS_FORCE_LOAD; with 2026.1 our
# loader takes the place of Intel's. Needs python3 with venv, a C++ compiler and PyPI.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=${2:-}
work=${CARGO_TARGET_DIR:-$root/target}/real-client
passed=0

# run ADAPTER LAUNCHER...: the program on that adapter, started by the launcher.
run() {
    local adapter=$1
    shift
    echo "real client: $name on libsycl $version, $adapter"
    LD_LIBRARY_PATH=$libraries UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_$adapter.so.0 \
        ONEAPI_DEVICE_SELECTOR="$adapter:*" "$@" "$program"
    passed=$((passed + 1))
}

# urtrace on the program: the tracing layer is our loader's, so that it sees libsycl 2026.1 and says
# of 2026.2 that it does not.
trace() {
    local expected='^[|] urEnqueueUSMDeviceAllocExp '
    case $version in
    2026.2.*) expected='^urtrace: nothing was traced' ;;
    esac
    echo "real client: $name on libsycl $version, traced"
    LD_LIBRARY_PATH=$venv/lib UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_native_cpu.so.0 \
        ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$prefix/bin/urtrace" --summary "$program" 2>&1 |
        grep -E "$expected"
    passed=$((passed + 1))
}

for version in 2026.2.0 2026.1.2; do
    venv=$work/$version
    if [ ! -e "$venv/ready" ]; then
        python3 -m venv --clear "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check \
            "intel-sycl-rt==$version" "intel-cmplr-lib-ur==$version" "intel-cmplr-lib-rt==$version"
        touch "$venv/ready"
    fi
    libraries=$venv/lib
    case $version in
    2026.1.*) libraries=$prefix/lib:$venv/lib ;;
    esac
    for source in "$root"/conformance/sycl/*.cpp; do
        name=$(basename "$source" .cpp)
        program=$venv/$name
        "${CXX:-c++}" -std=c++17 -O1 -w "-I$venv/include" "$source" -o "$program" "-L$venv/lib" -l:libsycl.so.9 \
            -Wl,--allow-shlib-undefined
        run native_cpu env
        [ "$name" != async_alloc ] || trace
        if [ -n "$drivers" ]; then
            run opencl "$root/scripts/drivers.sh" "$drivers" intel
        fi
    done
done
echo "real-client: $passed passed, 0 failed"
