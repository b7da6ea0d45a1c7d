// Pools of asynchronous allocation: the effect of each property, queries, lifetimes, and requests that
// libsycl itself refuses.
#include "client.hpp"

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/async_alloc/memory_pool.hpp>

#include <unordered_set>
#include <vector>

using namespace client;
namespace oneapi = sycl::ext::oneapi::experimental;
using oneapi::memory_pool;
using oneapi::properties;
using sycl::usm::alloc;

constexpr size_t mib = 1 << 20;

static sycl::queue ordered() {
  sycl::queue queue{rethrow, sycl::property::queue::in_order{}};
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_async_memory_alloc))
    skip("no asynchronous allocation");
  return queue;
}

static void identity() {
  sycl::queue queue = ordered();
  memory_pool pool{queue, alloc::device}, other{queue.get_context(), queue.get_device(), alloc::device}, copy = pool;
  require(copy == pool && pool != other, "pools compared");
  std::unordered_set<memory_pool> set{pool, copy, other};
  equal(set.size(), size_t(2), "pools in a set");
  require(pool.get_context() == queue.get_context(), "a pool's context");
  require(pool.get_device() == queue.get_device(), "a pool's device");
  require(pool.get_alloc_kind() == alloc::device, "a pool's kind");
  equal(pool.get_used_size_current(), size_t(0), "used bytes of a new pool");
}

static void kinds() {
  sycl::queue queue = ordered();
  sycl::context context = queue.get_context();
  sycl::device device = queue.get_device();
  void *memory = oneapi::async_malloc(queue, alloc::device, 1000);
  require(memory != nullptr, "no memory");
  queue.wait();
  require(sycl::get_pointer_type(memory, context) == alloc::device, "the type of asynchronous memory");
  require(sycl::get_pointer_device(memory, context) == device, "its device");
  oneapi::async_free(queue, memory);
  queue.wait();
  // Errors that libsycl reports itself.
  refused(sycl::errc::feature_not_supported, "shared memory",
          [&] { oneapi::async_malloc(queue, alloc::shared, 1000); });
  refused(sycl::errc::feature_not_supported, "host memory", [&] { oneapi::async_malloc(queue, alloc::host, 1000); });
  refused(sycl::errc::invalid, "unknown memory", [&] { oneapi::async_malloc(queue, alloc::unknown, 1000); });
  refused(sycl::errc::feature_not_supported, "a pool of shared memory", [&] { memory_pool{queue, alloc::shared}; });
  refused(sycl::errc::feature_not_supported, "a pool of host memory", [&] { memory_pool{queue, alloc::host}; });
}

static void foreign_pointers() {
  sycl::queue queue = ordered();
  // A block of one pool is freed by the other's function.
  void *asynchronous = oneapi::async_malloc(queue, alloc::device, 5000);
  queue.memset(asynchronous, 1, 5000).wait();
  sycl::free(asynchronous, queue);
  void *plain = sycl::malloc_device(5000, queue);
  queue.memset(plain, 1, 5000);
  oneapi::async_free(queue, plain);
  queue.wait();
  require(sycl::get_pointer_type(plain, queue.get_context()) == alloc::unknown, "the type of freed memory");
  // A free of an unknown pointer is refused, and the queue continues.
  int local = 0;
  bool refused = false;
  try {
    oneapi::async_free(queue, &local);
    queue.wait_and_throw();
  } catch (const sycl::exception &) {
    refused = true;
  }
  require(refused, "a local variable was freed");
  void *after = oneapi::async_malloc(queue, alloc::device, 100);
  queue.memset(after, 0, 100);
  oneapi::async_free(queue, after);
  queue.wait_and_throw();
}

static void thresholds() {
  sycl::queue queue = ordered();
  memory_pool keeps{queue, alloc::device, properties{oneapi::initial_threshold{64 * mib}}};
  memory_pool gives{queue, alloc::device, properties{oneapi::initial_threshold{0}}};
  equal(keeps.get_threshold(), 64 * mib, "the threshold");
  equal(gives.get_threshold(), size_t(0), "the threshold");
  for (const memory_pool &pool : {keeps, gives}) {
    void *memory = oneapi::async_malloc_from_pool(queue, 8 * mib, pool);
    queue.memset(memory, 1, 8 * mib);
    require(pool.get_used_size_current() >= 8 * mib, "used while allocated");
    require(pool.get_reserved_size_current() >= pool.get_used_size_current(), "reserved less than used");
    oneapi::async_free(queue, memory);
    queue.wait();
    equal(pool.get_used_size_current(), size_t(0), "used after the free");
  }
  require(keeps.get_reserved_size_current() >= 8 * mib, "a pool gave back what is below its threshold");
  equal(gives.get_reserved_size_current(), size_t(0), "reserved bytes without a threshold");
  gives.increase_threshold_to(32 * mib);
  equal(gives.get_threshold(), 32 * mib, "a raised threshold");
  gives.increase_threshold_to(mib);
  equal(gives.get_threshold(), 32 * mib, "a threshold raised to a smaller value");
  oneapi::async_free(queue, oneapi::async_malloc_from_pool(queue, 8 * mib, gives));
  queue.wait();
  require(gives.get_reserved_size_current() >= 8 * mib, "the raised threshold is not kept");
}

static void maximum() {
  sycl::queue queue = ordered();
  memory_pool pool{queue, alloc::device, properties{oneapi::maximum_size{32 * mib}}};
  std::vector<void *> all;
  for (int at = 0; at < 3; at++)
    all.push_back(oneapi::async_malloc_from_pool(queue, 8 * mib, pool));
  bool refused = false;
  try {
    for (int at = 0; at < 8; at++)
      all.push_back(oneapi::async_malloc_from_pool(queue, 8 * mib, pool));
    queue.wait_and_throw();
  } catch (const sycl::exception &) {
    refused = true;
  }
  require(refused, "a pool grew beyond its maximum size");
  require(pool.get_reserved_size_current() <= 32 * mib, "more reserved than the maximum size");
  for (void *memory : all)
    oneapi::async_free(queue, memory);
  // A freed block is reused before its free has completed.
  for (int round = 0; round < 50; round++) {
    void *memory = oneapi::async_malloc_from_pool(queue, 24 * mib, pool);
    queue.memset(memory, round, 1000);
    oneapi::async_free(queue, memory);
  }
  queue.wait_and_throw();
  require(pool.get_reserved_size_current() <= 32 * mib, "more reserved than the maximum size");
}

static void zeroed() {
  sycl::queue queue = ordered();
  memory_pool pool{queue, alloc::device, properties{oneapi::zero_init{}, oneapi::initial_threshold{16 * mib}}};
  std::vector<unsigned char> back(300000);
  void *memory = oneapi::async_malloc_from_pool(queue, back.size(), pool);
  queue.memcpy(back.data(), memory, back.size()).wait();
  for (unsigned char byte : back)
    equal(int(byte), 0, "a byte of a zeroed pool");
  oneapi::async_free(queue, memory);
  queue.wait();
}

static void reuse() {
  sycl::queue queue = ordered();
  memory_pool pool{queue, alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  // Repeated sizes need no more memory than the first round.
  const size_t sizes[] = {1, 100, 4096, 65536, 100001, mib, 3 * mib + 5};
  size_t reserved = 0;
  for (int round = 0; round < 100; round++) {
    std::vector<void *> all;
    for (size_t size : sizes) {
      void *memory = oneapi::async_malloc_from_pool(queue, size, pool);
      queue.memset(memory, round, size);
      all.push_back(memory);
    }
    for (void *memory : all)
      oneapi::async_free(queue, memory);
    if (round == 0)
      reserved = pool.get_reserved_size_current();
    equal(pool.get_reserved_size_current(), reserved, "reserved after more rounds of the same");
  }
  queue.wait();
  equal(pool.get_used_size_current(), size_t(0), "used bytes at the end");
}

static void lifetime() {
  // A pool is destroyed while its memory is in use. The memory stays until it is freed.
  sycl::queue queue = ordered();
  std::vector<int> data(1000, 42), back(1000);
  void *memory = nullptr;
  {
    memory_pool pool{queue, alloc::device};
    memory = oneapi::async_malloc_from_pool(queue, data.size() * sizeof(int), pool);
  }
  queue.memcpy(memory, data.data(), data.size() * sizeof(int));
  queue.memcpy(back.data(), memory, data.size() * sizeof(int));
  oneapi::async_free(queue, memory);
  queue.wait();
  require(back == data, "memory of a destroyed pool");
  // Many pools, one after another.
  for (int round = 0; round < 100; round++) {
    memory_pool pool{queue, alloc::device, properties{oneapi::initial_threshold{16 * mib}}};
    oneapi::async_free(queue, oneapi::async_malloc_from_pool(queue, 100000, pool));
  }
  queue.wait();
}

int main() {
  Program program;
  program.part("identity", identity);
  program.part("kinds", kinds);
  program.part("foreign_pointers", foreign_pointers);
  program.part("thresholds", thresholds);
  program.part("maximum", maximum);
  program.part("zeroed", zeroed);
  program.part("reuse", reuse);
  program.part("lifetime", lifetime);
  return program.conclude();
}
