#!/usr/bin/env python3
"""Compiles CUDA C to PTX without a GPU or a CUDA installation.

    python3 -m venv v && v/bin/pip install --no-deps nvidia-cuda-nvrtc-cu12==12.2.140
    v/bin/python compile.py FILE.cu ...        writes FILE.ptx beside each

A newer compiler's PTX does not load on an older driver, so the compiler is an old one on purpose.
"""

import ctypes
import glob
import os
import sys

ARCHITECTURE = b"--gpu-architecture=compute_60"


def library():
    for folder in sys.path:
        pattern = os.path.join(folder, "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.*")
        for path in glob.glob(pattern):
            return ctypes.CDLL(path)
    sys.exit("no NVRTC: see the top of this file")


def compile_file(nvrtc, path):
    with open(path, "rb") as file:
        source = file.read()
    program = ctypes.c_void_p()
    check = lambda code: code and sys.exit(f"NVRTC: {code}")
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.encode(), 0, None, None))
    options = (ctypes.c_char_p * 2)(ARCHITECTURE, b"--std=c++14")
    failed = nvrtc.nvrtcCompileProgram(program, 2, options)
    size = ctypes.c_size_t()
    if failed:
        check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        check(nvrtc.nvrtcGetProgramLog(program, log))
        sys.exit(log.value.decode())
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, text))
    # Removes the compiler's own tables and the name of its build.
    unwanted = lambda line: line.startswith("//") or (line.startswith(".global") and "_INTERNAL_" in line)
    lines = [line for line in text.value.decode().splitlines() if not unwanted(line)]
    with open(os.path.splitext(path)[0] + ".ptx", "w") as file:
        file.write("\n".join(lines).strip() + "\n")


if __name__ == "__main__":
    nvrtc = library()
    for path in sys.argv[1:]:
        compile_file(nvrtc, path)
