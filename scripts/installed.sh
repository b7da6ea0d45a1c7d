#!/usr/bin/env bash
# Builds and runs installed C examples against an installed tree, through pkg-config as their heads say and
# through CMake, and runs the tools that were installed.
#
#   scripts/installed.sh PREFIX [DRIVERS]
#
# With DRIVERS, the folder of scripts/drivers.sh, the example of OpenCL runs on Intel's driver; without, it is
# skipped. Needs pkg-config, cmake and Python; with UR_INSTALL=1 it installs the first two.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=need.sh
. "$root/scripts/need.sh"
prefix=$(cd "$1" && pwd)
drivers=${2:+$(cd "$2" && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v pkg-config >/dev/null || ! command -v cmake >/dev/null; then
    need pkg-config cmake
fi
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib ONEAPI_DEVICE_SELECTOR='native_cpu:*'

# An installed tree is not necessarily writable.
cp -r "$prefix/share/doc/unified-runtime/examples" "$work/examples"
(
    cd "$work/examples"
    export PATH=$prefix/bin:$PATH
    "$root/scripts/shown.py" example \
        async_alloc.c enumerate.c kernel_so.c mock_test.c pool_limits.c two_queues.c
    if [ -n "$drivers" ]; then
        ONEAPI_DEVICE_SELECTOR='opencl:*' "$root/scripts/drivers.sh" "$drivers" intel \
            "$root/scripts/shown.py" driven spirv.c
    else
        "$root/scripts/shown.py" example spirv.c
    fi
)

cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(example C)
find_package(unified-runtime 0.12 REQUIRED)
add_executable(by-cmake examples/async_alloc.c)
target_link_libraries(by-cmake PRIVATE unified-runtime::loader)
CMAKE
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/by-cmake"

"$prefix/bin/urinfo" | grep -F '[native_cpu:cpu][native_cpu:0]'
"$prefix/bin/urtrace" --summary "$work/examples/async_alloc" 2>&1 |
    grep -E '^\| urEnqueueUSMDeviceAllocExp +\| +20 '
"$prefix/bin/ur-conformance" --adapter native_cpu --filter adapter:: --expectations native_cpu >/dev/null
