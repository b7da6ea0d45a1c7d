// The kernels of `ur-conformance --write-kernels FILE` as SYCL kernels; conformance/src/kernels says what
// each does. The file's name is the program's first argument.
#pragma once

#include "client.hpp"

#include <vector>

namespace client {

namespace oneapi = sycl::ext::oneapi::experimental;
using Executable = sycl::kernel_bundle<sycl::bundle_state::executable>;

inline std::vector<std::byte> &kernels_file() {
  static std::vector<std::byte> bytes;
  return bytes;
}

// Call this first in `main`.
inline void read_kernels(int count, char **arguments) {
  if (count < 2)
    return;
  std::ifstream file(arguments[1], std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::byte *data = reinterpret_cast<const std::byte *>(text.data());
  kernels_file().assign(data, data + text.size());
}

inline bool has_kernels(sycl::device device) {
  return !kernels_file().empty() && device.ext_oneapi_can_build(oneapi::source_language::spirv);
}

// The kernels built for a context; skips the part where there can be none.
inline Executable build_kernels(const sycl::context &context) {
  if (kernels_file().empty())
    skip("no file of kernels is given");
  for (const sycl::device &device : context.get_devices()) {
    if (!has_kernels(device))
      skip("the device takes no SPIR-V");
  }
  auto source = oneapi::create_kernel_bundle_from_source(context, oneapi::source_language::spirv, kernels_file());
  try {
    return oneapi::build(source);
  } catch (const sycl::exception &error) {
    // libsycl asks for the backend, not for what the driver takes.
    if (std::string(error.what()).find("COMPILER_NOT_AVAILABLE") == std::string::npos)
      throw;
    skip("the driver takes no SPIR-V");
  }
}

} // namespace client
