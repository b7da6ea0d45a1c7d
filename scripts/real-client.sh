#!/usr/bin/env bash
# Runs a SYCL program on Intel's own libsycl over this project's adapter.
#
#   scripts/real-client.sh PREFIX [VERSION...]
#
# PREFIX is where `cargo xtask install` put the libraries. For each VERSION of the PyPI wheels
# (2026.2.0 and 2026.1.2 if none is named) it makes a virtual environment under target/, builds
# conformance/sycl/*.cpp with the host compiler and runs each program on native_cpu. With 2026.2
# the loader is part of libsycl and takes our adapter by UR_ADAPTERS_FORCE_LOAD; with 2026.1 our
# loader takes the place of Intel's. Needs python3 with venv, a C++ compiler and PyPI.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
shift
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(2026.2.0 2026.1.2)
work=${CARGO_TARGET_DIR:-$root/target}/real-client
passed=0

for version in "${versions[@]}"; do
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
        echo "real client: $name on libsycl $version"
        LD_LIBRARY_PATH=$libraries \
            UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_native_cpu.so.0 \
            ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$program"
        passed=$((passed + 1))
    done
done
echo "real-client: $passed passed, 0 failed"
