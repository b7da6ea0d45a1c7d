#!/usr/bin/env bash
# Builds and runs the C example against an installed tree, through pkg-config and through CMake, and
# runs the tools that were installed.
#
#   scripts/installed.sh PREFIX
#
# Needs pkg-config and cmake; with UR_INSTALL=1 it installs them.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=need.sh
. "$root/scripts/need.sh"
prefix=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v pkg-config >/dev/null || ! command -v cmake >/dev/null; then
    need pkg-config cmake
fi

run() {
    LD_LIBRARY_PATH=$prefix/lib ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$1"
}

# shellcheck disable=SC2046 # the flags are words
cc -std=c11 "$root/examples/async_alloc.c" -o "$work/by-pkg-config" \
    $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs libur_loader)
run "$work/by-pkg-config"

cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(example C)
find_package(unified-runtime 0.12 REQUIRED)
add_executable(by-cmake $root/examples/async_alloc.c)
target_link_libraries(by-cmake PRIVATE unified-runtime::loader)
CMAKE
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/build" >/dev/null
run "$work/build/by-cmake"

ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$prefix/bin/urinfo" | grep -F '[native_cpu:cpu][native_cpu:0]'
ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$prefix/bin/urtrace" --summary "$work/by-pkg-config" 2>&1 |
    grep -E '^\| urEnqueueUSMDeviceAllocExp +\| +20 '
