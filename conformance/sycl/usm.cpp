// USM of all kinds: allocation, copies, fills, hints and pointer queries.
#include "client.hpp"

#include <sycl/ext/oneapi/virtual_mem/physical_mem.hpp>
#include <sycl/ext/oneapi/virtual_mem/virtual_mem.hpp>

#include <array>
#include <numeric>
#include <thread>
#include <vector>

using namespace client;
using sycl::usm::alloc;

static const alloc kinds[] = {alloc::device, alloc::host, alloc::shared};

static const char *name(alloc kind) {
  return kind == alloc::device ? "device" : kind == alloc::host ? "host" : "shared";
}

static void need(const sycl::device &device, alloc kind) {
  sycl::aspect aspect = kind == alloc::device ? sycl::aspect::usm_device_allocations
                        : kind == alloc::host ? sycl::aspect::usm_host_allocations
                                              : sycl::aspect::usm_shared_allocations;
  if (!device.has(aspect))
    skip(std::string("no allocations of kind ") + name(kind));
}

// Memory that frees itself.
template <class T> struct Memory {
  sycl::context context;
  T *data;
  size_t count;
  Memory(alloc kind, size_t count, const sycl::queue &queue)
      : context(queue.get_context()), data(sycl::malloc<T>(count, queue, kind)), count(count) {
    require(data != nullptr, std::string("no memory of kind ") + name(kind));
  }
  Memory(const Memory &) = delete;
  ~Memory() { sycl::free(data, context); }
};

static void pointers() {
  sycl::queue queue{rethrow};
  sycl::context context = queue.get_context();
  sycl::context stranger{queue.get_device()};
  for (alloc kind : kinds) {
    need(queue.get_device(), kind);
    Memory<int> memory(kind, 1000, queue);
    require(sycl::get_pointer_type(memory.data, context) == kind, std::string("the type of memory: ") + name(kind));
    require(sycl::get_pointer_type(memory.data + 999, context) == kind, "the type of its last element");
    require(sycl::get_pointer_type(memory.data, stranger) == alloc::unknown, "its type in another context");
    require(sycl::get_pointer_device(memory.data, context) == queue.get_device(), "its device");
  }
  int local = 0;
  require(sycl::get_pointer_type(&local, context) == alloc::unknown, "the type of a local variable");
  refused(sycl::errc::invalid, "the device of a local variable", [&] { sycl::get_pointer_device(&local, context); });
  int *gone = sycl::malloc_shared<int>(1 << 20, queue);
  sycl::free(gone, queue);
  require(sycl::get_pointer_type(gone, context) == alloc::unknown, "the type of freed memory");
}

static void alignments() {
  sycl::queue queue{rethrow};
  for (alloc kind : kinds) {
    need(queue.get_device(), kind);
    std::vector<void *> all;
    for (size_t alignment = 1; alignment <= 128; alignment *= 2) {
      for (size_t size : {size_t(1), size_t(100), size_t(5000)}) {
        void *memory = sycl::aligned_alloc(alignment, size, queue, kind);
        require(memory != nullptr, "no memory aligned to " + std::to_string(alignment));
        require(reinterpret_cast<uintptr_t>(memory) % alignment == 0, "not aligned to " + std::to_string(alignment));
        queue.memset(memory, 5, size).wait();
        all.push_back(memory);
      }
    }
    require(sycl::aligned_alloc(3, 16, queue, kind) == nullptr, "an alignment of 3 is accepted");
    for (void *memory : all)
      sycl::free(memory, queue);
  }
}

static void limits() {
  sycl::queue queue{rethrow};
  size_t most = queue.get_device().get_info<sycl::info::device::max_mem_alloc_size>();
  for (alloc kind : kinds)
    require(sycl::malloc(most + (size_t(1) << 30), queue, kind) == nullptr, "an allocation above the largest size succeeds");
  void *none = sycl::malloc_device(0, queue);
  sycl::free(none, queue);
  sycl::free(nullptr, queue);
  queue.memcpy(nullptr, nullptr, 0).wait();
  queue.memset(nullptr, 0, 0).wait();
}

static void copies() {
  sycl::queue queue{rethrow};
  constexpr size_t count = 100000;
  std::vector<int> source(count), back(count);
  std::iota(source.begin(), source.end(), 1);
  for (alloc from : kinds) {
    for (alloc to : kinds) {
      Memory<int> a(from, count, queue), b(to, count, queue);
      sycl::event first = queue.memcpy(a.data, source.data(), count * sizeof(int));
      sycl::event second = queue.copy(a.data, b.data, count, first);
      client::fill(queue, a.data, -1, count, second);
      sycl::event third = queue.memcpy(back.data(), b.data, count * sizeof(int), second);
      third.wait();
      queue.wait();
      require(back == source, std::string("copied from ") + name(from) + " to " + name(to));
      if (to != alloc::device)
        require(std::equal(source.begin(), source.end(), b.data), "data seen by the host");
    }
  }
  // Parts of memory, at unaligned offsets.
  Memory<char> bytes(alloc::device, 4096, queue);
  std::string text = "seventeen letters", found(text.size(), ' ');
  queue.memset(bytes.data, 0, 4096).wait();
  queue.memcpy(bytes.data + 1001, text.data(), text.size()).wait();
  queue.memcpy(found.data(), bytes.data + 1001, text.size()).wait();
  require(found == text, "bytes at an odd place");
}

template <size_t Size> void fill_with(sycl::queue &queue, alloc kind) {
  using Pattern = std::array<unsigned char, Size>;
  constexpr size_t count = 37;
  Pattern pattern;
  std::iota(pattern.begin(), pattern.end(), 1);
  Memory<Pattern> memory(kind, count + 2, queue);
  std::vector<Pattern> back(count + 2);
  queue.memset(memory.data, 0xee, sizeof(Pattern) * (count + 2)).wait();
  client::fill(queue, memory.data + 1, pattern, count).wait();
  queue.memcpy(back.data(), memory.data, sizeof(Pattern) * (count + 2)).wait();
  for (size_t at = 1; at <= count; at++)
    require(back[at] == pattern, "a pattern of " + std::to_string(Size) + " bytes in " + name(kind) + " memory");
  require(back[0][Size - 1] == 0xee && back[count + 1][0] == 0xee,
          "a pattern of " + std::to_string(Size) + " bytes goes beyond its range");
}

static void fills() {
  sycl::queue queue{rethrow};
  for (alloc kind : kinds) {
    need(queue.get_device(), kind);
    fill_with<1>(queue, kind);
    fill_with<2>(queue, kind);
    fill_with<3>(queue, kind);
    fill_with<4>(queue, kind);
    fill_with<5>(queue, kind);
    fill_with<8>(queue, kind);
    fill_with<12>(queue, kind);
    fill_with<16>(queue, kind);
    fill_with<24>(queue, kind);
    fill_with<64>(queue, kind);
    fill_with<128>(queue, kind);
    fill_with<256>(queue, kind);
    fill_with<1000>(queue, kind);
  }
}

static void rectangles() {
  sycl::queue queue{rethrow};
  constexpr size_t width = 13, height = 9, pitch = 40, other = 64;
  for (alloc kind : kinds) {
    Memory<unsigned char> a(kind, pitch * height, queue), b(kind, other * height, queue);
    std::vector<unsigned char> source(pitch * height), back(other * height);
    std::iota(source.begin(), source.end(), 0);
    queue.memcpy(a.data, source.data(), source.size()).wait();
    queue.memset(b.data, 0xcc, back.size()).wait();
    queue.ext_oneapi_memcpy2d(b.data, other, a.data, pitch, width, height).wait();
    queue.memcpy(back.data(), b.data, back.size()).wait();
    for (size_t row = 0; row < height; row++) {
      for (size_t column = 0; column < other; column++)
        equal(int(back[row * other + column]), column < width ? int(source[row * pitch + column]) : 0xcc,
              "a copied rectangle");
    }
    // From and to plain host memory, too.
    queue.ext_oneapi_memcpy2d(back.data(), other, a.data + 1, pitch, width, height).wait();
    equal(int(back[other + 2]), int(source[pitch + 3]), "a rectangle copied to the host");
    // On device and shared memory libsycl passes elements where UR expects bytes.
    if (kind != alloc::host)
      continue;
    queue.ext_oneapi_memset2d(a.data, pitch, 3, width, height).wait();
    equal(int(a.data[pitch * 2 + width - 1]), 3, "the last column of a set rectangle");
    equal(size_t(a.data[pitch * 2 + width]), (pitch * 2 + width) % 256, "a set rectangle is too wide");
    queue.ext_oneapi_fill2d(reinterpret_cast<uint16_t *>(b.data), other / 2, uint16_t(0x0a0b), 5, height).wait();
    equal(int(b.data[other + 8]), 0x0b, "a filled rectangle");
    equal(int(b.data[other + 9]), 0x0a, "a filled rectangle");
    equal(int(b.data[other + 10]), int(source[pitch + 10]), "a filled rectangle is too wide");
  }
}

static void hints() {
  // In order: libsycl does not pass on the dependencies of advice, since UR's function takes no wait list.
  sycl::queue queue{rethrow, sycl::property::queue::in_order{}};
  constexpr size_t count = 4096;
  for (alloc kind : {alloc::shared, alloc::device}) {
    Memory<int> memory(kind, count, queue);
    client::fill(queue, memory.data, 11, count);
    queue.prefetch(memory.data, count * sizeof(int));
    queue.mem_advise(memory.data, count * sizeof(int), 0);
    int last = 0;
    queue.memcpy(&last, memory.data + count - 1, sizeof last).wait();
    equal(last, 11, "data after hints");
    // A part of it, in a command group of its own.
    queue.submit([&](sycl::handler &h) { h.prefetch(memory.data + 100, 64); }).wait();
    queue.submit([&](sycl::handler &h) { h.mem_advise(memory.data + 100, 64, 0); }).wait();
  }
  sycl::queue unordered{rethrow};
  Memory<int> shared(alloc::shared, count, unordered);
  int first = 0;
  sycl::event filled = client::fill(unordered, shared.data, 12, count);
  sycl::event fetched = unordered.prefetch(shared.data, count * sizeof(int), filled);
  unordered.memcpy(&first, shared.data, sizeof first, fetched).wait();
  equal(first, 12, "data after a prefetch");
}

static void prepared() {
  sycl::queue queue{rethrow};
  constexpr size_t count = 4096;
  std::vector<int> own(count);
  sycl::ext::oneapi::experimental::prepare_for_device_copy(own.data(), own.size() * sizeof(int), queue);
  Memory<int> memory(alloc::device, count, queue);
  client::fill(queue, memory.data, 4, count).wait();
  queue.memcpy(own.data(), memory.data, own.size() * sizeof(int)).wait();
  sycl::ext::oneapi::experimental::release_from_device_copy(own.data(), queue);
  equal(own.back(), 4, "data copied to prepared memory");
}

static void containers() {
  sycl::queue queue{rethrow};
  using Allocator = sycl::usm_allocator<int, alloc::shared>;
  std::vector<int, Allocator> data(Allocator{queue});
  for (int value = 0; value < 5000; value++)
    data.push_back(value);
  queue.memset(data.data(), 0, 100 * sizeof(int)).wait();
  equal(data[99], 0, "an element that was set");
  equal(data[100], 100, "an element beside it");
  equal(data[4999], 4999, "the last element");
}

static void across_contexts() {
  sycl::device device;
  sycl::queue a{sycl::context{device}, device, rethrow}, b{sycl::context{device}, device, rethrow};
  constexpr size_t count = 5000;
  Memory<int> first(alloc::device, count, a), second(alloc::shared, count, b);
  std::vector<int> back(count);
  sycl::event filled = client::fill(a, first.data, 6, count);
  sycl::event moved = b.memcpy(back.data(), first.data, count * sizeof(int), filled);
  b.memcpy(second.data, back.data(), count * sizeof(int), moved).wait();
  equal(second.data[count - 1], 6, "data of another context");
}

static void virtual_memory() {
  namespace oneapi = sycl::ext::oneapi::experimental;
  sycl::queue queue{rethrow};
  sycl::context context = queue.get_context();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_virtual_mem))
    skip("the device has no virtual memory");
  size_t page = oneapi::get_mem_granularity(queue.get_device(), context);
  require(page >= 1 && (page & (page - 1)) == 0, "a granularity that is no power of two");
  // Two pieces of memory at adjacent addresses; the second moves to another address.
  uintptr_t start = oneapi::reserve_virtual_mem(2 * page, context), other = oneapi::reserve_virtual_mem(page, context);
  oneapi::physical_mem first{queue, page}, second{queue, page};
  equal(first.size(), page, "the size of physical memory");
  auto both = oneapi::address_access_mode::read_write;
  void *low = first.map(start, page, both), *high = second.map(start + page, page, both);
  require(reinterpret_cast<uintptr_t>(low) == start && reinterpret_cast<uintptr_t>(high) == start + page,
          "mapped elsewhere than asked for");
  queue.memset(low, 7, 2 * page).wait();
  std::vector<unsigned char> back(page);
  queue.memcpy(back.data(), high, page).wait();
  equal(int(back[0]), 7, "data of the second piece");
  equal(int(back[page - 1]), 7, "data of the second piece");
  require(oneapi::get_access_mode(low, page, context) == both, "the mode of mapped memory");
  oneapi::set_access_mode(low, page, oneapi::address_access_mode::read, context);
  queue.memcpy(back.data(), low, page).wait();
  equal(int(back[page / 2]), 7, "read-only data");
  oneapi::unmap(low, page, context);
  oneapi::unmap(high, page, context);
  void *moved = second.map(other, page, both);
  queue.memcpy(back.data(), moved, page).wait();
  equal(int(back[page - 1]), 7, "data of memory mapped again");
  oneapi::unmap(moved, page, context);
  oneapi::free_virtual_mem(start, 2 * page, context);
  oneapi::free_virtual_mem(other, page, context);
}

static void aliases() {
  namespace oneapi = sycl::ext::oneapi::experimental;
  sycl::queue queue{rethrow};
  sycl::context context = queue.get_context();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_virtual_mem))
    skip("the device has no virtual memory");
  size_t page = oneapi::get_mem_granularity(queue.get_device(), context);
  uintptr_t start = oneapi::reserve_virtual_mem(2 * page, context);
  oneapi::physical_mem memory{queue, page};
  auto both = oneapi::address_access_mode::read_write;
  void *low = memory.map(start, page, both), *high = memory.map(start + page, page, both);
  queue.memset(low, 8, page).wait();
  std::vector<unsigned char> back(page);
  queue.memcpy(back.data(), high, page).wait();
  equal(int(back[page - 1]), 8, "data written at another address");
  oneapi::unmap(low, page, context);
  oneapi::unmap(high, page, context);
  oneapi::free_virtual_mem(start, 2 * page, context);
}

static void threads() {
  sycl::queue queue{rethrow};
  std::vector<std::thread> all;
  std::atomic<int> wrong{0};
  for (int id = 0; id < 4; id++) {
    all.emplace_back([&, id] {
      for (int round = 0; round < 100; round++) {
        alloc kind = kinds[(id + round) % 3];
        size_t count = 1 + (round * 37) % 2000;
        int *memory = sycl::malloc<int>(count, queue, kind);
        int value = id * 1000 + round, back = 0;
        sycl::event filled = client::fill(queue, memory, value, count);
        queue.memcpy(&back, memory + count - 1, sizeof back, filled).wait();
        wrong += back != value;
        sycl::free(memory, queue);
      }
    });
  }
  for (std::thread &thread : all)
    thread.join();
  equal(wrong.load(), 0, "wrong values from four threads");
}

int main() {
  Program program;
  program.part("pointers", pointers);
  program.part("alignments", alignments);
  program.part("limits", limits);
  program.part("copies", copies);
  program.part("fills", fills);
  program.part("hints", hints);
  program.part("prepared", prepared);
  program.part("containers", containers);
  program.part("across_contexts", across_contexts);
  program.part("virtual_memory", virtual_memory);
  program.part("aliases", aliases);
  program.part("threads", threads);
  // Last: without 2D copies in the adapter libsycl uses a kernel, and aborts without device code.
  program.part("rectangles", rectangles);
  return program.conclude();
}
