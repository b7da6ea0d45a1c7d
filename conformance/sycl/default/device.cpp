// The device that a SYCL program gets when it names none, the one that it gets as any CPU, and the adapters
// that were loaded.
#include <fstream>
#include <iostream>
#include <string>
#include <sycl/sycl.hpp>

static void show(const char *what, const sycl::device &device) {
  const auto platform = device.get_platform().get_info<sycl::info::platform::name>();
  std::cout << what << ": " << device.get_backend() << ", " << platform << "\n";
}

int main() {
  show("default", sycl::queue().get_device());
  show("cpu", sycl::device(sycl::cpu_selector_v));
  std::ifstream maps("/proc/self/maps");
  std::string line, last;
  while (std::getline(maps, line)) {
    const auto at = line.find('/');
    if (at == std::string::npos || line.find("/libur_adapter_") == std::string::npos)
      continue;
    if (line.substr(at) != last)
      std::cout << "library " << (last = line.substr(at)) << "\n";
  }
  return 0;
}
