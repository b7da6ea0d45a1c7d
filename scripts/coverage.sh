#!/usr/bin/env bash
# Runs the conformance suites on everything that has a driver here, and prints what of the
# specification all of it covers together. Fails if a test does, or below the goal.
#
#   scripts/coverage.sh PREFIX DRIVERS
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers. Reports go to PREFIX/coverage.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=$2
# Of the declared error conditions, what is to be provoked; all functions are to be called.
goal=97
conformance=$prefix/bin/ur-conformance
reports=$prefix/coverage
rm -rf "$reports"
mkdir -p "$reports"

echo "-- Intel OpenCL"
"$root/scripts/drivers.sh" "$drivers" intel "$conformance" --adapter opencl --timeout 120 \
    --label intel --json "$reports/intel.json"
echo "-- PoCL"
"$root/scripts/drivers.sh" "$drivers" pocl "$conformance" --adapter opencl --timeout 120 \
    --expectations "$root/conformance/expectations/opencl-pocl.yml" \
    --label pocl --json "$reports/pocl.json"
echo "-- native_cpu, bounds checked"
UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING "$conformance" --adapter native_cpu \
    --label checked --json "$reports/checked.json"
# Nothing is behind the mock, so that only suites about the interface itself mean something there;
# it judges no argument, which the layers do for it.
echo "-- mock, validated"
UR_ENABLE_LAYERS=UR_LAYER_FULL_VALIDATION "$conformance" --adapter mock \
    --filter arguments:: --filter every_function:: --filter queries:: --filter unsupported:: \
    --label mock --json "$reports/mock.json"
echo "-- native_cpu"
"$conformance" --adapter native_cpu --json "$reports/native_cpu.json" --coverage \
    --with "$reports/checked.json" --with "$reports/intel.json" --with "$reports/pocl.json" \
    --with "$reports/mock.json" --goal "$goal"
