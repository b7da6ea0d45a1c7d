#!/usr/bin/env bash
# Runs the ways into this project without SYCL, on a machine with a GPU, a CUDA toolkit and PyTorch: PyTorch's
# example and bench, the cases on RMM's resource, and the CUDA examples.
#
#   ways.sh FOLDER [WHEELS]
#
# FOLDER has libur_loader.so.0, libur_adapter_cuda.so.0 and libur_pytorch.so, as built or installed. WHEELS has the
# packages of RMM, which are fetched if it is missing. UR_WAYS names the steps to run, with spaces between:
# example, bench, rmm, kernel, stream. Each step says whether it passed, and the next one runs in any case.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
built=$(cd "$1" && pwd) || exit 2
wheels=${2:+$(cd "$2" && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")}
export PATH=$cuda/bin:$PATH PYTHONDONTWRITEBYTECODE=1
export UR_ADAPTERS_FORCE_LOAD=$built/libur_adapter_cuda.so.0
failed=0

# Linkers look for plain names.
ln -s "$built/libur_loader.so.0" "$work/libur_loader.so"
flags=(-I"$root/include" -I"$root/examples" -L"$work" -lur_loader -Xlinker -rpath,"$built")

pytorch() {
    local library=$built/libur_pytorch.so.0
    [ -e "$library" ] || library=$built/libur_pytorch.so
    UR_PYTORCH_LIBRARY=$library python3 "$@"
}

example() {
    (cd "$root/examples/pytorch" && pytorch train.py)
}

bench() {
    pytorch "$here/pytorch.py"
}

rmm() {
    if [ -z "$wheels" ]; then
        wheels=$work/wheels
        pip download --quiet --no-deps --dest "$wheels" 'librmm-cu13==26.10.*' rapids-logger || return
    fi
    python3 - "$wheels" "$work" <<'PYTHON' || return
import glob, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    zipfile.ZipFile(wheel).extractall(sys.argv[2])
PYTHON
    local all=("${flags[@]}" -I"$root/integrations/rmm/include" -I"$work/librmm/include")
    all+=(-I"$work/librmm/include/rapids" -I"$work/rapids_logger/include")
    for library in "$work/librmm/lib64" "$work/rapids_logger/lib64"; do
        all+=(-L"$library" -Xlinker -rpath,"$library")
    done
    nvcc -w -O2 -std=c++20 -arch=native -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE \
        -x cu "$root/integrations/rmm/test.cpp" -o "$work/rmm" "${all[@]}" -lrmm -lrapids_logger || return
    "$work/rmm"
}

kernel() {
    nvcc -w -O2 -arch=native "$root/examples/cuda_kernel.cu" -o "$work/cuda_kernel" "${flags[@]}" || return
    "$work/cuda_kernel"
}

stream() {
    nvcc -w -O2 "$root/examples/cuda_stream.c" -o "$work/cuda_stream" "${flags[@]}" -lcuda || return
    "$work/cuda_stream"
}

echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $(date -u +%Y-%m-%d)"
for step in ${UR_WAYS:-example rmm kernel stream bench}; do
    echo "== $step"
    begin=$SECONDS
    "$step"
    code=$?
    if [ $code -eq 0 ]; then
        echo "== $step passed in $((SECONDS - begin)) s"
    else
        failed=1
        echo "== $step FAILED with $code in $((SECONDS - begin)) s"
    fi
done
exit $failed
