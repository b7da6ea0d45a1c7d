#!/usr/bin/env bash
# Runs dpctl's own test suite on Intel's libsycl, over this project's OpenCL adapter.
#
#   scripts/dpctl.sh PREFIX DRIVERS
#
# PREFIX is where `cargo xtask install` put the libraries, DRIVERS where scripts/drivers.sh put the
# OpenCL drivers. Nothing is deselected, and the count of passed tests is checked: a runtime that
# finds no device skips silently. Needs python3 (3.11, for dpctl's wheels) with venv, and PyPI.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cd "$1" && pwd)
drivers=$(cd "$2" && pwd)
version=2026.2.0
least=1425
venv=${CARGO_TARGET_DIR:-$root/target}/dpctl/$version

if [ ! -e "$venv/ready" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check dpctl==0.22.1 \
        "intel-sycl-rt==$version" "intel-cmplr-lib-ur==$version" "intel-cmplr-lib-rt==$version" \
        pytest pytest-timeout cython setuptools
    touch "$venv/ready"
fi

tests=$("$venv/bin/python" -c 'import importlib.util as u; print(u.find_spec("dpctl").submodule_search_locations[0])')/tests
log=$venv/pytest.log
cd "$venv"
if ! LD_LIBRARY_PATH=$venv/lib UR_ADAPTERS_FORCE_LOAD=$prefix/lib/libur_adapter_opencl.so.0 \
    ONEAPI_DEVICE_SELECTOR='opencl:*' "$root/scripts/drivers.sh" "$drivers" intel \
    "$venv/bin/python" -m pytest -q --timeout=120 -p no:cacheprovider "$tests" >"$log" 2>&1; then
    tail -n 40 "$log"
    exit 1
fi
tail -n 1 "$log"
passed=$(tail -n 1 "$log" | grep -oE '[0-9]+ passed' | cut -d' ' -f1)
if [ "${passed:-0}" -lt $least ]; then
    echo "dpctl: only ${passed:-0} passed, $least are expected" >&2
    exit 1
fi
