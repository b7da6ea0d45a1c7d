#!/usr/bin/env bash
# Rounds of asynchronous allocations from four threads: no growth, no wrong byte, nothing left behind.
#
#   scripts/rounds.sh PREFIX [DRIVERS]
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers. Builds conformance/c/rounds.c and runs it on native_cpu and, with DRIVERS, on Intel's
# and PoCL's CPU drivers beneath the OpenCL adapter, with conformance/c/opencl_counter.c in between to
# count the driver's objects. ROUNDS, BYTES: how many, and how large (1000, 65536). WRAP: a command
# that runs the program, such as a checker.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cc -std=c11 -g -O1 -Wall -Wextra -Werror -pthread "$root/conformance/c/rounds.c" -o "$work/rounds" \
    -I "$prefix/include" -L "$prefix/lib" -lur_loader -ldl

# rounds ADAPTER LAUNCHER...: the program on that adapter, started by the launcher. Our libraries come
# before those that the launcher puts onto the path.
rounds() {
    local adapter=$1
    shift
    # shellcheck disable=SC2016,SC2086 # expanded by the inner shell; WRAP is words
    UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_$adapter.so.0 ROUNDS_NEED=$need \
        "$@" sh -c 'LD_LIBRARY_PATH=$0${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$@"' "$libraries" \
        ${WRAP:-} "$work/rounds" "${ROUNDS:-1000}" "${BYTES:-65536}"
}

echo "rounds: native_cpu"
libraries=$prefix/lib need=objects rounds native_cpu env
if [ -n "$drivers" ]; then
    # The real library has a path, so that the counting one can have its name.
    real=$(ldconfig -p | awk '/libOpenCL\.so\.1 / { print $NF; exit }')
    mkdir "$work/counting"
    cc -shared -x c /dev/null -o "$work/stub.so" "-Wl,-soname,$real"
    cc -std=gnu11 -g -O1 -Wall -Wextra -Werror -shared -fPIC "$root/conformance/c/opencl_counter.c" \
        -o "$work/counting/libOpenCL.so.1" -Wl,--no-as-needed "$work/stub.so" -ldl
    libraries=$work/counting:$prefix/lib need=objects,driver
    for driver in intel pocl; do
        echo "rounds: opencl, $driver"
        rounds opencl "$root/scripts/drivers.sh" "$drivers" "$driver"
    done
fi
