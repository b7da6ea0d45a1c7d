// A SYCL program on Intel's own runtime: asynchronous allocation from a pool, copies, reuse and a host task,
// on the selected device.
//
// The host compiler builds it alone, so it has no device code. Prints "ok" and exits with 0.
#include <sycl/sycl.hpp>

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/async_alloc/memory_pool.hpp>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace exp = sycl::ext::oneapi::experimental;

static void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "async_alloc: %s\n", what);
    std::exit(1);
  }
}

int main() {
  sycl::device device{sycl::default_selector_v};
  std::printf("device: %s\n", device.get_info<sycl::info::device::name>().c_str());
  require(device.has(sycl::aspect::ext_oneapi_async_memory_alloc), "no asynchronous allocation");
  sycl::context context{device};
  sycl::queue queue{context, device, sycl::property::queue::in_order{}};

  constexpr size_t count = 1 << 16;
  std::vector<int> data(count), back(count);
  std::iota(data.begin(), data.end(), 1);

  exp::memory_pool pool{context, device, sycl::usm::alloc::device,
                        exp::properties{exp::initial_threshold{4 << 20}, exp::maximum_size{64 << 20}}};
  void *first = nullptr;
  for (int round = 0; round < 100; round++) {
    void *memory = exp::async_malloc_from_pool(queue, count * sizeof(int), pool);
    require(memory != nullptr, "no memory");
    queue.memcpy(memory, data.data(), count * sizeof(int));
    queue.memcpy(back.data(), memory, count * sizeof(int));
    exp::async_free(queue, memory);
    if (!first)
      first = memory;
    require(memory == first, "freed memory is not reused on its own queue");
  }
  queue.wait();
  require(back == data, "the data changed on its way");
  require(pool.get_used_size_current() == 0, "blocks are still in use");
  require(pool.get_reserved_size_current() > 0, "the threshold is not kept");

  void *plain = exp::async_malloc(queue, sycl::usm::alloc::device, 1000);
  queue.memset(plain, 3, 1000);
  unsigned char byte = 0;
  queue.memcpy(&byte, static_cast<char *>(plain) + 999, 1);
  exp::async_free(queue, plain);
  queue.wait();
  require(byte == 3, "memset did not reach the last byte");

  int *shared = sycl::malloc_shared<int>(16, queue);
  queue.memset(shared, 1, 16 * sizeof(int)).wait();
  require(shared[15] == 0x01010101, "memset did not reach the last element");
  sycl::free(shared, queue);

  std::puts("ok");
  return 0;
}
