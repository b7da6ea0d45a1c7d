#!/usr/bin/env bash
# Runs the conformance suites on every adapter with a driver here, and prints their joint coverage of the
# specification. Fails if a test fails, or if the coverage is below the goal.
#
#   scripts/coverage.sh PREFIX DRIVERS LEVEL_ZERO
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers, LEVEL_ZERO where scripts/level_zero.sh put Level Zero's loader. Reports go to PREFIX/coverage.
# Needs `cargo build -p scripted-level-zero`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=$2
level_zero=$3
# The goal, in percent of the declared error conditions. Every function must be called.
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
echo "-- Level Zero, on the driver that executes"
UR_DRIVERS=$drivers "$root/scripts/level_zero.sh" "$level_zero" executes "$conformance" --adapter level_zero \
    --expectations "$root/conformance/expectations/level_zero.yml" \
    --expectations "$root/conformance/expectations/level_zero-1.3.yml" \
    --timeout 120 --label level_zero --json "$reports/level_zero.json"
echo "-- native_cpu, bounds checked"
UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING "$conformance" --adapter native_cpu \
    --label checked --json "$reports/checked.json"
# The mock executes nothing, so only the tests of the interface run. The layers check its arguments.
echo "-- mock, validated"
"$conformance" --adapter mock --label mock --json "$reports/mock.json"
echo "-- native_cpu"
"$conformance" --adapter native_cpu --json "$reports/native_cpu.json" --coverage \
    --with "$reports/checked.json" --with "$reports/intel.json" --with "$reports/pocl.json" \
    --with "$reports/level_zero.json" --with "$reports/mock.json" --goal "$goal"
