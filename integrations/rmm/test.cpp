// Stream-ordered cases on ur::memory_resource, in this project's own code: RMM's packages have no tests. They are
// those that RMM runs on each of its resources: sizes from 0 to gigabytes, several streams, mixed order of frees,
// containers, lack of memory, equality and threads. adapters/cuda/bench/ways.sh builds and runs it.
//
// Prints one line for each case, and "ok: N cases" if all passed.

#include "ur_memory_resource.hpp"

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using resource = ur::memory_resource;

constexpr std::size_t KIB = 1024, MIB = KIB * KIB, GIB = KIB * MIB;

void require(bool condition, char const* what)
{
  if (!condition) { throw std::runtime_error{what}; }
}

void check(cudaError_t code)
{
  if (code != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(code)}; }
}

// A stream of the caller's own. It is kept until the process ends, since a resource has a queue over it.
struct stream {
  cudaStream_t handle{};
  stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  stream(stream const&) = delete;
  ~stream() { cudaStreamSynchronize(handle); }
  operator cuda::stream_ref() const { return cuda::stream_ref{handle}; }
  void wait() const { check(cudaStreamSynchronize(handle)); }
};

// Fills memory in a stream's order, and reads its first and last byte.
void fill(void* memory, int value, std::size_t bytes, cudaStream_t on)
{
  check(cudaMemsetAsync(memory, value, bytes, on));
}

bool holds(void* memory, int value, std::size_t bytes, cudaStream_t on)
{
  unsigned char ends[2] = {};
  check(cudaMemcpyAsync(&ends[0], memory, 1, cudaMemcpyDeviceToHost, on));
  check(cudaMemcpyAsync(&ends[1], static_cast<char*>(memory) + bytes - 1, 1, cudaMemcpyDeviceToHost, on));
  check(cudaStreamSynchronize(on));
  return ends[0] == value && ends[1] == value;
}

bool is_device_memory(void* memory)
{
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
         attributes.type == cudaMemoryTypeDevice;
}

void sizes_on_the_default_stream(resource& mr)
{
  cuda::stream_ref const on{cudaStream_t{}};
  for (auto const bytes : {std::size_t{0}, std::size_t{1}, 8 * std::size_t{1}, KIB, 4 * KIB, MIB, GIB}) {
    void* memory = mr.allocate(on, bytes);
    require((memory == nullptr) == (bytes == 0), "null is for size 0");
    if (memory != nullptr) {
      require(is_device_memory(memory), "it is no device memory");
      require(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0, "the alignment");
      fill(memory, 7, bytes, on.get());
      require(holds(memory, 7, bytes, on.get()), "the data");
    }
    mr.deallocate(on, memory, bytes);
  }
}

void sizes_on_a_stream(resource& mr)
{
  stream on;
  for (auto const bytes : {std::size_t{1}, KIB, MIB + 1, 100 * MIB}) {
    void* memory = mr.allocate(on, bytes);
    fill(memory, 9, bytes, on.handle);
    require(holds(memory, 9, bytes, on.handle), "the data");
    mr.deallocate(on, memory, bytes);
  }
}

void sizes_without_a_stream(resource& mr)
{
  for (auto const bytes : {std::size_t{1}, KIB, 10 * MIB}) {
    void* memory = mr.allocate_sync(bytes);
    require(is_device_memory(memory), "it is no device memory");
    check(cudaMemset(memory, 3, bytes));
    mr.deallocate_sync(memory, bytes);
  }
  require(mr.allocate_sync(0) == nullptr, "null is for size 0");
  mr.deallocate_sync(nullptr, 0);
}

void alignments(resource& mr)
{
  stream on;
  for (std::size_t alignment = 1; alignment <= 256; alignment *= 2) {
    void* memory = mr.allocate(on, 1000, alignment);
    require(reinterpret_cast<std::uintptr_t>(memory) % alignment == 0, "the alignment");
    mr.deallocate(on, memory, 1000, alignment);
  }
}

// Random allocations and frees, on one stream and on several ones.
void mixed(resource& mr, std::size_t streams, unsigned seed)
{
  struct live {
    void* memory;
    std::size_t bytes, on;
    int value;
  };
  std::vector<stream> all(streams);
  std::vector<live> blocks;
  std::mt19937 random{seed};
  auto const release = [&](std::size_t at) {
    auto const block = blocks[at];
    require(holds(block.memory, block.value, block.bytes, all[block.on].handle), "another block's data");
    mr.deallocate(all[block.on], block.memory, block.bytes);
    blocks[at] = blocks.back();
    blocks.pop_back();
  };
  for (int round = 0; round < 400; round++) {
    if (!blocks.empty() && random() % 100 < 45) { release(random() % blocks.size()); }
    std::size_t const bytes = 1 + random() % (5 * MIB), on = random() % streams;
    int const value    = static_cast<int>(random() % 256);
    void* const memory = mr.allocate(all[on], bytes);
    fill(memory, value, bytes, all[on].handle);
    blocks.push_back({memory, bytes, on, value});
  }
  while (!blocks.empty()) {
    release(blocks.size() - 1);
  }
}

// A block freed on one stream and taken on another, while the first stream still writes to it.
void reuse_between_streams(resource& mr)
{
  stream one, two;
  constexpr std::size_t bytes = 64 * MIB;
  for (int round = 0; round < 50; round++) {
    void* const first = mr.allocate(one, bytes);
    for (int again = 0; again < 10; again++) {
      fill(first, 1, bytes, one.handle);
    }
    mr.deallocate(one, first, bytes);
    void* const second = mr.allocate(two, bytes);
    fill(second, 2, bytes, two.handle);
    require(holds(second, 2, bytes, two.handle), "the first stream wrote into the second one's block");
    one.wait();
    require(holds(second, 2, bytes, two.handle), "the first stream wrote later");
    mr.deallocate(two, second, bytes);
  }
}

void free_on_another_stream(resource& mr)
{
  stream one, two;
  cudaEvent_t event{};
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  void* const memory = mr.allocate(one, MIB);
  fill(memory, 5, MIB, one.handle);
  check(cudaEventRecord(event, one.handle));
  check(cudaStreamWaitEvent(two.handle, event, 0));
  require(holds(memory, 5, MIB, two.handle), "the data");
  mr.deallocate(two, memory, MIB);
  void* const next = mr.allocate(two, MIB);
  fill(next, 6, MIB, two.handle);
  require(holds(next, 6, MIB, two.handle), "the data");
  mr.deallocate(two, next, MIB);
  check(cudaEventDestroy(event));
}

void containers(resource& mr)
{
  stream on;
  int const value = 42;
  rmm::device_uvector<int> numbers(1000, on, mr);
  for (std::size_t at = 0; at < numbers.size(); at += 111) {
    numbers.set_element_async(at, value, on);
  }
  on.wait();
  require(numbers.element(999, on) == value, "an element");
  numbers.resize(100000, on);
  require(numbers.element(999, on) == value, "an element after growth");
  rmm::device_buffer buffer(numbers.data(), 4000, on, mr);
  rmm::device_buffer copy(buffer, on, mr);
  require(copy.size() == 4000 && copy.data() != buffer.data(), "a copy");
  rmm::device_buffer moved(std::move(copy));
  require(moved.size() == 4000 && copy.size() == 0, "a move");
  numbers.shrink_to_fit(on);
  buffer.resize(0, on);
  buffer.shrink_to_fit(on);
  on.wait();
}

void current_resource(resource& mr)
{
  auto const before = rmm::mr::set_current_device_resource(mr);
  auto const used   = mr.stats().used;
  {
    stream on;
    rmm::device_buffer buffer(MIB, on);
    require(mr.stats().used >= used + MIB, "the current resource is another one");
    on.wait();
  }
  require(mr.stats().used == used, "memory is left");
  rmm::mr::set_current_device_resource(before);
}

void adaptor(resource& mr)
{
  rmm::mr::statistics_resource_adaptor counted{mr};
  stream on;
  void* const memory = counted.allocate(on, MIB, 256);
  require(counted.get_bytes_counter().value == static_cast<std::int64_t>(MIB), "the adaptor's count");
  counted.deallocate(on, memory, MIB, 256);
  require(counted.get_bytes_counter().value == 0, "the adaptor's count after the free");
}

void lack_of_memory(resource& mr)
{
  stream on;
  bool thrown = false;
  try {
    [[maybe_unused]] void* memory = mr.allocate(on, std::size_t{1} << 50);
  } catch (rmm::out_of_memory const&) {
    thrown = true;
  }
  require(thrown, "a petabyte is no rmm::out_of_memory");
  thrown = false;
  resource small{-1, 64 * MIB};
  void* const memory = small.allocate(on, 48 * MIB);
  try {
    [[maybe_unused]] void* more = small.allocate(on, 48 * MIB);
  } catch (rmm::bad_alloc const&) {
    thrown = true;
  }
  require(thrown, "more than the pool's maximum");
  small.deallocate(on, memory, 48 * MIB);
  void* const again = small.allocate(on, 48 * MIB);
  small.deallocate(on, again, 48 * MIB);
}

void equality(resource& mr)
{
  resource const copy = mr;
  resource const other;
  require(copy == mr && !(copy != mr), "a copy is unequal");
  require(other != mr, "another pool is equal");
  stream on;
  void* const memory = mr.allocate(on, KIB);
  resource{copy}.deallocate(on, memory, KIB);
  cuda::mr::any_resource<cuda::mr::device_accessible> const one{mr}, two{copy}, three{other};
  require(one == two && one != three, "owners compare otherwise");
}

// Streams that end, as soon as the resource has forgotten them.
void forgotten_streams(resource& mr)
{
  stream other;
  for (int round = 0; round < 20; round++) {
    cudaStream_t handle{};
    check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
    cuda::stream_ref const on{handle};
    void* const memory = mr.allocate(on, 16 * MIB);
    fill(memory, 1, 16 * MIB, handle);
    mr.deallocate(on, memory, 16 * MIB);
    mr.forget(on);
    check(cudaStreamDestroy(handle));
    void* const next = mr.allocate(other, 16 * MIB);
    fill(next, 2, 16 * MIB, other.handle);
    require(holds(next, 2, 16 * MIB, other.handle), "the data");
    mr.deallocate(other, next, 16 * MIB);
  }
}

// Each thread with its own stream, and all on one.
void threads(resource& mr, bool own)
{
  stream shared;
  std::vector<std::thread> all;
  std::vector<std::string> faults(8);
  int device{};
  check(cudaGetDevice(&device));
  for (unsigned thread = 0; thread < faults.size(); thread++) {
    all.emplace_back([&, thread] {
      try {
        check(cudaSetDevice(device));
        if (own) {
          mixed(mr, 2, thread);
          return;
        }
        std::vector<void*> blocks;
        for (int round = 0; round < 500; round++) {
          void* const memory = mr.allocate(shared, 64 * KIB);
          fill(memory, static_cast<int>(thread), 64 * KIB, shared.handle);
          blocks.push_back(memory);
          if (blocks.size() > 8) {
            require(holds(blocks.front(), static_cast<int>(thread), 64 * KIB, shared.handle), "another thread's data");
            mr.deallocate(shared, blocks.front(), 64 * KIB);
            blocks.erase(blocks.begin());
          }
        }
        for (void* const memory : blocks) {
          mr.deallocate(shared, memory, 64 * KIB);
        }
      } catch (std::exception const& error) {
        faults[thread] = error.what();
      }
    });
  }
  for (auto& thread : all) {
    thread.join();
  }
  for (auto const& fault : faults) {
    require(fault.empty(), fault.c_str());
  }
}

}  // namespace

int main()
{
  try {
    check(cudaFree(nullptr));
    using run = std::function<void(resource&)>;
    std::vector<std::pair<char const*, run>> const cases{
      {"sizes on the default stream", sizes_on_the_default_stream},
      {"sizes on a stream", sizes_on_a_stream},
      {"sizes without a stream", sizes_without_a_stream},
      {"alignments", alignments},
      {"mixed order on one stream", [](resource& mr) { mixed(mr, 1, 1); }},
      {"mixed order on four streams", [](resource& mr) { mixed(mr, 4, 2); }},
      {"reuse between streams", reuse_between_streams},
      {"free on another stream", free_on_another_stream},
      {"containers", containers},
      {"current resource", current_resource},
      {"adaptor", adaptor},
      {"lack of memory", lack_of_memory},
      {"equality", equality},
      {"forgotten streams", forgotten_streams},
      {"threads with streams of their own", [](resource& mr) { threads(mr, true); }},
      {"threads on one stream", [](resource& mr) { threads(mr, false); }},
    };
    int failed = 0;
    for (auto const& [name, test] : cases) {
      try {
        // A pool of its own, so that memory which a case leaves is seen.
        resource mr;
        test(mr);
        check(cudaDeviceSynchronize());
        require(mr.stats().used == 0, "memory is left");
        std::printf("passed: %s\n", name);
      } catch (std::exception const& error) {
        failed++;
        std::printf("FAILED: %s: %s\n", name, error.what());
      }
      std::fflush(stdout);
    }
    if (failed > 0) { return 1; }
    std::printf("ok: %zu cases\n", cases.size());
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "skipped: %s\n", error.what());
    return 77;
  }
}
