"""Unified Runtime: where this package's libraries, headers and programs are.

The C interface is in `include`, the loader and the adapters in `lib`, files for pkg-config in
`lib / "pkgconfig"` and for CMake in `lib / "cmake"`. The programs are commands of the environment;
`eval "$(ur-env)"` puts the adapters under the libsycl that is installed in it.
"""

from pathlib import Path

prefix = Path(__file__).resolve().parent
include = prefix / "include"
lib = prefix / "lib"
