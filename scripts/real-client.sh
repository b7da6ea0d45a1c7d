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
# loader takes the place of Intel's. The mock adapter is tried there too: behind libsycl, and by
# its own test program (conformance/c/mock.c) on Intel's loader. Needs python3 with venv, a C++ compiler and PyPI.
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
        ONEAPI_DEVICE_SELECTOR="${adapter/mock/*}:*" "$@" "$program"
    passed=$((passed + 1))
}

# mock: programs that expect nothing but answers.
mock() {
    local source=$root/conformance/sycl/mock/devices.cpp
    name=devices program=$venv/devices
    "${CXX:-c++}" -std=c++17 -O1 -w "-I$venv/include" "$source" -o "$program" "-L$venv/lib" -l:libsycl.so.9 \
        -Wl,--allow-shlib-undefined
    run mock env
    program=$venv/devices.scripted
    printf '#!/bin/sh\nexec "%s/devices" Scripted\n' "$venv" >"$program"
    chmod +x "$program"
    UR_MOCK_SCRIPT='UR_DEVICE_INFO_NAME = "Scripted"; urEnqueueUSMMemcpy: error DEVICE_LOST' run mock env
    # The tables of 2026.1 are others: its loader takes no adapter of this version.
    if [ "$version" = 2026.2.0 ]; then
        name=mock.c program=$venv/mock
        "${CC:-cc}" -std=c11 -O1 "-I$root/include" "$root/conformance/c/mock.c" -o "$program" \
            "-L$venv/lib" -l:libur_loader.so.0 -lpthread -Wl,--allow-shlib-undefined
        echo "real client: $name on Intel's loader $version, forced and enabled"
        LD_LIBRARY_PATH=$venv/lib UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_mock.so.0 "$program" forced
        LD_LIBRARY_PATH=$venv/lib:$prefix/lib "$program"
        passed=$((passed + 2))
    fi
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
    mock
done
echo "real-client: $passed passed, 0 failed"
