// The kernels of `ur-conformance --write-kernels FILE` as SYCL kernels.
//
// conformance/src/kernels documents each. The program's first argument is the file's name.
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

// The kernels built for a context. Skips the part where the device takes no kernels.
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
    // libsycl checks the backend, not the driver's support for SPIR-V.
    if (std::string(error.what()).find("COMPILER_NOT_AVAILABLE") == std::string::npos)
      throw;
    skip("the driver takes no SPIR-V");
  }
}

} // namespace client
