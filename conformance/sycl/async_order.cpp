// The order of asynchronous allocation: in-order and out-of-order queues, events, host tasks, several queues
// and several threads.
//
// The data shows whether a block was reused too early.
#include "client.hpp"

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/async_alloc/memory_pool.hpp>
#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

using namespace client;
namespace oneapi = sycl::ext::oneapi::experimental;
using oneapi::memory_pool;
using oneapi::properties;
using sycl::handler;
using sycl::usm::alloc;

constexpr size_t mib = 1 << 20;

static sycl::queue make_queue(bool in_order) {
  static sycl::context context{sycl::device{}};
  sycl::property_list properties =
      in_order ? sycl::property_list{sycl::property::queue::in_order{}} : sycl::property_list{};
  sycl::queue queue{context, context.get_devices()[0], rethrow, properties};
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_async_memory_alloc))
    skip("no asynchronous allocation");
  return queue;
}

// An allocation or a free as a command of its own, with dependencies and an event.
static sycl::event allocate(sycl::queue &queue, void **memory, size_t size, const memory_pool &pool,
                            const std::vector<sycl::event> &after = {}) {
  return queue.submit([&](handler &h) {
    h.depends_on(after);
    *memory = oneapi::async_malloc_from_pool(h, size, pool);
  });
}

static sycl::event release(sycl::queue &queue, void *memory, const std::vector<sycl::event> &after) {
  return queue.submit([&](handler &h) {
    h.depends_on(after);
    oneapi::async_free(h, memory);
  });
}

static void in_order() {
  sycl::queue queue = make_queue(true);
  constexpr size_t bytes = 300000;
  std::vector<unsigned char> back(bytes);
  for (int round = 0; round < 300; round++) {
    void *memory = oneapi::async_malloc(queue, alloc::device, bytes);
    queue.memset(memory, round, bytes);
    queue.memcpy(back.data(), memory, bytes);
    oneapi::async_free(queue, memory);
    if (round % 50 == 49) {
      queue.wait();
      equal(int(back[0]), round % 256, "the first byte of a round");
      equal(int(back[bytes - 1]), round % 256, "the last byte of a round");
    }
  }
  queue.wait();
}

static void by_events() {
  // Concurrent chains on an out-of-order queue, ordered by their events alone.
  sycl::queue queue = make_queue(false);
  memory_pool pool{queue, alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  constexpr size_t bytes = 500000, chains = 8;
  std::vector<std::vector<unsigned char>> back(chains, std::vector<unsigned char>(bytes));
  std::vector<sycl::event> last(chains);
  for (int round = 0; round < 40; round++) {
    for (size_t chain = 0; chain < chains; chain++) {
      void *memory = nullptr;
      sycl::event made = allocate(queue, &memory, bytes, pool, {last[chain]});
      sycl::event set = queue.memset(memory, int(round + chain * 16), bytes, made);
      sycl::event read = queue.memcpy(back[chain].data(), memory, bytes, set);
      last[chain] = release(queue, memory, {read});
    }
  }
  queue.wait_and_throw();
  for (size_t chain = 0; chain < chains; chain++) {
    equal(int(back[chain][0]), int(39 + chain * 16), "the first byte of a chain");
    equal(int(back[chain][bytes - 1]), int(39 + chain * 16), "the last byte of a chain");
  }
  equal(pool.get_used_size_current(), size_t(0), "used bytes at the end");
  // Each chain needs one block. Further memory belongs to other chains' pending frees.
  require(pool.get_reserved_size_current() <= 2 * chains * mib, "more reserved than the chains could use");
}

static void pending_free() {
  // A block whose free waits for a gate must not be reused by a command that does not wait for it.
  //
  // The test has its own context, so that the default pool has no other memory.
  sycl::device device;
  sycl::context context{device};
  sycl::queue queue{context, device, rethrow};
  if (!device.has(sycl::aspect::ext_oneapi_async_memory_alloc))
    skip("no asynchronous allocation");
  constexpr size_t bytes = 4 * mib;
  memory_pool pool{context, device, alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  void *first = nullptr, *second = nullptr;
  allocate(queue, &first, bytes, pool).wait();
  std::vector<unsigned char> back(bytes);
  sycl::event set = queue.memset(first, 1, bytes);
  // The longest command that needs no device code.
  std::vector<sycl::event> reads{set};
  for (int round = 0; round < 50; round++)
    reads = {queue.memcpy(back.data(), first, bytes, reads)};
  sycl::event freed = release(queue, first, reads);
  sycl::event other = allocate(queue, &second, bytes, pool);
  sycl::event overwritten = queue.memset(second, 2, bytes, other);
  freed.wait();
  overwritten.wait();
  for (unsigned char byte : back)
    equal(int(byte), 1, "data read from a block before its free");
  release(queue, second, {overwritten}).wait();
  queue.wait_and_throw();
}

static void host_tasks() {
  // libsycl keeps commands that depend on a host task, and submits them late and from another thread.
  sycl::queue queue = make_queue(true);
  std::atomic<int> good{0};
  for (int round = 0; round < 50; round++) {
    int *memory = static_cast<int *>(oneapi::async_malloc(queue, alloc::device, 1000 * sizeof(int)));
    auto back = std::make_shared<std::vector<int>>(1000);
    queue.submit([](handler &h) { h.host_task([] { std::this_thread::yield(); }); });
    client::fill(queue, memory, round, 1000);
    queue.memcpy(back->data(), memory, 1000 * sizeof(int));
    oneapi::async_free(queue, memory);
    queue.submit([&](handler &h) {
      h.host_task([&good, back, round] { good += (*back)[0] == round && (*back)[999] == round; });
    });
  }
  queue.wait_and_throw();
  equal(good.load(), 50, "rounds that saw their own values");
}

static void across_queues() {
  // A block is allocated on one queue, used on another and freed on a third, each ordered by events.
  //
  // The memory of the last round serves the next, whichever queue that is on.
  std::vector<sycl::queue> queues{make_queue(true), make_queue(false), make_queue(true), make_queue(false)};
  memory_pool pool{queues[0], alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  constexpr size_t bytes = 700000;
  std::vector<unsigned char> back(bytes);
  sycl::event last;
  size_t reserved = 0;
  for (int round = 0; round < 200; round++) {
    sycl::queue &a = queues[round % 4], &b = queues[(round / 2) % 4], &c = queues[(round + 3) % 4];
    void *memory = nullptr;
    sycl::event made = allocate(a, &memory, bytes, pool, {last});
    sycl::event set = b.memset(memory, round, bytes, made);
    sycl::event read = c.memcpy(back.data(), memory, bytes, set);
    last = release(a, memory, {read});
    if (round % 40 == 39) {
      read.wait();
      equal(int(back[0]), round, "the first byte of a round");
      equal(int(back[bytes - 1]), round, "the last byte of a round");
    }
    if (round == 0)
      reserved = pool.get_reserved_size_current();
    equal(pool.get_reserved_size_current(), reserved, "reserved: each round depends on the one before");
  }
  for (sycl::queue &queue : queues)
    queue.wait_and_throw();
}

// Random work on one queue: every block is filled with its own number, kept for a while and checked before
// its free.
static int random_work(sycl::queue &queue, const memory_pool *pool, unsigned seed, int rounds) {
  struct Block {
    void *memory;
    size_t bytes;
    unsigned char number;
  };
  std::mt19937 random(seed);
  std::vector<Block> live;
  std::vector<std::pair<std::unique_ptr<unsigned char[]>, unsigned char>> read;
  int wrong = 0;
  auto check = [&] {
    queue.wait();
    for (const auto &[bytes, number] : read)
      wrong += bytes[0] != number || bytes[1] != number;
    read.clear();
  };
  for (int round = 0; round < rounds; round++) {
    if (live.size() < 20 && random() % 3) {
      size_t bytes = size_t(2) << random() % 19;
      bytes += random() % bytes;
      void *memory = pool ? oneapi::async_malloc_from_pool(queue, bytes, *pool)
                          : oneapi::async_malloc(queue, alloc::device, bytes);
      unsigned char number = (unsigned char)random();
      queue.memset(memory, number, bytes);
      live.push_back({memory, bytes, number});
    } else if (!live.empty()) {
      size_t at = random() % live.size();
      Block block = live[at];
      live.erase(live.begin() + at);
      auto bytes = std::make_unique<unsigned char[]>(2);
      queue.memcpy(bytes.get(), block.memory, 1);
      queue.memcpy(bytes.get() + 1, static_cast<char *>(block.memory) + block.bytes - 1, 1);
      read.emplace_back(std::move(bytes), block.number);
      oneapi::async_free(queue, block.memory);
    }
    if (random() % 64 == 0)
      check();
  }
  for (const Block &block : live)
    oneapi::async_free(queue, block.memory);
  check();
  return wrong;
}

static void random_programs() {
  sycl::queue queue = make_queue(true);
  memory_pool pool{queue, alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  equal(random_work(queue, &pool, 1, 3000), 0, "wrong blocks");
  equal(random_work(queue, nullptr, 2, 3000), 0, "wrong blocks of the default pool");
  equal(pool.get_used_size_current(), size_t(0), "used bytes at the end");
}

static void threads_apart() {
  // Each thread has its own queue. The pool is shared.
  sycl::queue first = make_queue(true);
  memory_pool pool{first, alloc::device, properties{oneapi::initial_threshold{256 * mib}}};
  std::atomic<int> wrong{0}, errors{0};
  std::vector<std::thread> all;
  for (unsigned id = 0; id < 8; id++) {
    all.emplace_back([&, id] {
      try {
        sycl::queue queue = make_queue(true);
        wrong += random_work(queue, id % 2 ? &pool : nullptr, 100 + id, 1500);
      } catch (const std::exception &) {
        errors++;
      }
    });
  }
  for (std::thread &thread : all)
    thread.join();
  equal(wrong.load(), 0, "wrong blocks");
  equal(errors.load(), 0, "threads that ended with an error");
  equal(pool.get_used_size_current(), size_t(0), "used bytes at the end");
}

static void threads_together() {
  // One in-order queue for all threads. Their commands interleave, and each block belongs to one thread.
  sycl::queue queue = make_queue(true);
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int id = 0; id < 4; id++) {
    all.emplace_back([&, id] {
      for (int round = 0; round < 200; round++) {
        int back = 0;
        int *memory = static_cast<int *>(oneapi::async_malloc(queue, alloc::device, 4096));
        client::fill(queue, memory, id * 1000 + round, 1024);
        sycl::event read = queue.memcpy(&back, memory + 1023, sizeof back);
        oneapi::async_free(queue, memory);
        read.wait();
        wrong += back != id * 1000 + round;
      }
    });
  }
  for (std::thread &thread : all)
    thread.join();
  queue.wait();
  equal(wrong.load(), 0, "wrong values");
}

static void contexts() {
  // Contexts and queues that are created and released with allocations pending.
  sycl::device device;
  for (int round = 0; round < 30; round++) {
    sycl::context context{device};
    sycl::queue queue{context, device, rethrow, sycl::property::queue::in_order{}};
    if (!device.has(sycl::aspect::ext_oneapi_async_memory_alloc))
      skip("no asynchronous allocation");
    int back = 0;
    int *memory = static_cast<int *>(oneapi::async_malloc(queue, alloc::device, mib));
    client::fill(queue, memory, round, mib / sizeof(int));
    queue.memcpy(&back, memory + 1000, sizeof back);
    oneapi::async_free(queue, memory);
    queue.wait();
    equal(back, round, "in a context of its own");
  }
}

int main() {
  Program program;
  program.part("in_order", in_order);
  program.part("by_events", by_events);
  program.part("pending_free", pending_free);
  program.part("host_tasks", host_tasks);
  program.part("across_queues", across_queues);
  program.part("random_programs", random_programs);
  program.part("threads_apart", threads_apart);
  program.part("threads_together", threads_together);
  program.part("contexts", contexts);
  return program.conclude();
}
