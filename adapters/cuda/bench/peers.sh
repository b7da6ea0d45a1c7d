#!/usr/bin/env bash
# Builds peers.cu on a machine with a GPU, a CUDA toolkit and PyTorch, and runs it over the recorded programs.
#
#   peers.sh FOLDER [WHEELS [MEASURE...]]
#
# FOLDER has libur_loader.so.0 and libur_adapter_cuda.so.0, as built or installed. WHEELS has the packages of
# RMM, which are fetched if it is missing. MEASUREs are those of peers.cu; without one all are made, also over
# the recorded programs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
built=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wheels=${2:-$work/wheels}
if [ $# -lt 2 ]; then
    pip download --quiet --no-deps --dest "$wheels" librmm-cu13 rapids-logger
fi
python3 - "$wheels" "$work" <<'PYTHON'
import glob, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    zipfile.ZipFile(wheel).extractall(sys.argv[2])
PYTHON
torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
libraries=("$work/librmm/lib64" "$work/rapids_logger/lib64" "$torch/lib")
flags=(-I"$root/include" -I"$work/librmm/include" -I"$work/librmm/include/rapids")
flags+=(-I"$work/rapids_logger/include" -I"$torch/include")
for library in "${libraries[@]}"; do
    flags+=(-L"$library" -Xlinker -rpath,"$library")
done
ln -s "$built/libur_loader.so.0" "$work/libur_loader.so"
flags+=(-L"$work" -lur_loader -Xlinker -rpath,"$built")
nvcc -w -O2 -std=c++20 -arch=native -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE "$here/peers.cu" -o "$work/peers" \
    "${flags[@]}" -lrmm -lrapids_logger -lc10 -lc10_cuda -lcuda -lcudart
what=("${@:3}")
if [ ${#what[@]} -eq 0 ]; then
    for trace in "$root"/tools/traces/*.trace.gz; do
        what+=("$work/$(basename "$trace" .gz)")
        gzip -dc "$trace" > "${what[-1]}"
    done
fi
echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $(date -u +%Y-%m-%d)"
UR_ADAPTERS_FORCE_LOAD=$built/libur_adapter_cuda.so.0 "$work/peers" "${what[@]}"
