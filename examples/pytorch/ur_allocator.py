"""PyTorch's memory from Unified Runtime's pools.

    import ur_allocator
    ur_allocator.install()          # before the first use of torch.cuda's memory
    ...
    print(ur_allocator.stats())

The library libur_pytorch.so.0 is looked for beside this file, in UR_PYTORCH_LIBRARY, and by the system.
"""
import ctypes
import os
import pathlib

_NAMES = ("libur_pytorch.so.0", "libur_pytorch.so")

# Methods of PyTorch's allocator object, each with the library's function. Without one of them, memory of several
# streams or of graphs would be used again too early.
_SETTERS = {
    "set_init_fn": "ur_pytorch_init",
    "set_reset_fn": "ur_pytorch_reset",
    "set_memory_fraction_fn": "ur_pytorch_memory_fraction",
    "set_base_alloc_fn": "ur_pytorch_base",
    "set_record_stream_fn": "ur_pytorch_record_stream",
    "set_begin_allocate_to_pool": "ur_pytorch_begin_pool",
    "set_end_allocate_to_pool_fn": "ur_pytorch_end_pool",
    "set_release_pool": "ur_pytorch_release_pool",
}


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("used", "used_high", "reserved", "reserved_high")]


_library = None
_path = None
_allocator = None


def _find():
    named = os.environ.get("UR_PYTORCH_LIBRARY")
    if named:
        return named
    here = pathlib.Path(__file__).resolve().parent
    for name in _NAMES:
        if (here / name).exists():
            return str(here / name)
    return _NAMES[0]


def load(path=None):
    """Opens the library, from `path` if it is given."""
    global _library, _path
    if _library is None:
        _path = str(path or _find())
        library = ctypes.CDLL(_path)
        library.ur_pytorch_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Stats)]
        library.ur_pytorch_reset_highs.argtypes = [ctypes.c_int]
        library.ur_pytorch_report.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        library.ur_pytorch_report.restype = ctypes.c_size_t
        library.ur_pytorch_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.ur_pytorch_last_error.restype = ctypes.c_size_t
        _library = library
    return _library


def install(path=None):
    """Makes the pools PyTorch's allocator of CUDA memory. PyTorch must have allocated none yet."""
    global _allocator
    import torch

    library = load(path)
    # A fault of the loader is reported here rather than by a null pointer later.
    library.ur_pytorch_init(0)
    if last_error():
        raise RuntimeError(last_error())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_path, "ur_pytorch_alloc", "ur_pytorch_free")
    inner = allocator.allocator()
    for setter, function in _SETTERS.items():
        method = getattr(inner, setter, None)
        if method is None:
            raise RuntimeError(f"PyTorch {torch.__version__} has no {setter}")
        method(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    # PyTorch calls the functions as long as it has memory.
    _allocator = allocator
    return allocator


def _device(device):
    if device is not None:
        return device
    import torch

    return torch.cuda.current_device()


def stats(device=None):
    """Bytes of a device: used and reserved, and the highest of each."""
    figures = _Stats()
    if load().ur_pytorch_stats(_device(device), ctypes.byref(figures)) != 0:
        raise RuntimeError(last_error())
    return {name: getattr(figures, name) for name, _ in _Stats._fields_}


def reset_peaks(device=None):
    """Sets the highs of a device to the present values."""
    load().ur_pytorch_reset_highs(_device(device))


def report(device=None):
    """All counters of a device's pool, as one line of text."""
    buffer = ctypes.create_string_buffer(8192)
    load().ur_pytorch_report(_device(device), buffer, len(buffer))
    return buffer.value.decode()


def last_error():
    """The text of the allocator's last failure; empty if nothing has failed."""
    buffer = ctypes.create_string_buffer(1024)
    load().ur_pytorch_last_error(buffer, len(buffer))
    return buffer.value.decode()
