// Asynchronous allocation from SYCL, on Intel's own runtime over these adapters.
//
//   pip install intel-sycl-rt==2026.2.0          # headers and libsycl, without a device compiler
//   V=$VIRTUAL_ENV
//   g++ -std=c++17 async_malloc.cpp -I$V/include -L$V/lib -lsycl -Wl,-rpath,$V/lib -o async_malloc
//   ur-env ./async_malloc
//
// Prints
//   device: ...
//   the same memory 10 times, and the data is right

// There is no kernel to compile for a device, so any C++ compiler will do.
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING
#include <sycl/sycl.hpp>

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>

#include <cstdio>
#include <vector>

namespace experimental = sycl::ext::oneapi::experimental;

int main() {
  sycl::queue queue{sycl::property::queue::in_order{}};
  std::printf("device: %s\n", queue.get_device().get_info<sycl::info::device::name>().c_str());
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_async_memory_alloc)) {
    std::fprintf(stderr, "skipped: the device has no asynchronous allocation\n");
    return 77;
  }
  std::vector<unsigned char> host(1 << 20);
  void *first = nullptr;
  int same = 0;
  for (int round = 0; round < 10; round++) {
    void *memory = experimental::async_malloc(queue, sycl::usm::alloc::device, host.size());
    queue.memset(memory, round, host.size());
    queue.memcpy(host.data(), memory, host.size());
    experimental::async_free(queue, memory);
    if (!first)
      first = memory;
    same += memory == first;
  }
  queue.wait();
  for (unsigned char byte : host)
    if (byte != 9) {
      std::fprintf(stderr, "the data is wrong\n");
      return 1;
    }
  std::printf("the same memory %d times, and the data is right\n", same);
  return same == 10 ? 0 : 1;
}
