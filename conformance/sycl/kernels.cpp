// Kernels from SPIR-V, without a device compiler: launches, all kinds of arguments, queries, and order with
// the commands around them.
#include "kernels.hpp"

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>

#include <atomic>
#include <numeric>
#include <thread>

using namespace client;
using sycl::handler;
using sycl::id;
using sycl::nd_range;
using sycl::range;
using sycl::usm::alloc;

constexpr size_t count = 4096;

static uint32_t *memory_for(const sycl::queue &queue, alloc kind, size_t elements = count) {
  uint32_t *memory = sycl::malloc<uint32_t>(elements, queue, kind);
  require(memory != nullptr, "no memory");
  return memory;
}

static void building() {
  sycl::context context{sycl::device{}};
  Executable bundle = build_kernels(context);
  for (const char *name : {"iota", "add", "sum", "verify", "ids", "through_local", "mixed"}) {
    require(bundle.ext_oneapi_has_kernel(name), std::string("the bundle lacks ") + name);
    sycl::kernel kernel = bundle.ext_oneapi_get_kernel(name);
    require(kernel.get_context() == context, "a kernel's context");
    require(kernel.get_info<sycl::info::kernel::function_name>() == name, "a kernel's name");
  }
  require(!bundle.ext_oneapi_has_kernel("nowhere"), "the bundle has an unknown kernel");
  client::refused(sycl::errc::runtime, "a kernel that is not there", [&] { bundle.ext_oneapi_get_kernel("nowhere"); });

  // A truncated module would crash Intel's driver, so the words are replaced.
  std::vector<std::byte> broken(kernels_file().size(), std::byte{7});
  auto source = oneapi::create_kernel_bundle_from_source(context, oneapi::source_language::spirv, broken);
  bool refused = false;
  try {
    oneapi::build(source);
  } catch (const sycl::exception &) {
    refused = true;
  }
  require(refused, "an invalid module was built");
}

static void queries() {
  sycl::device device;
  sycl::context context{device};
  Executable bundle = build_kernels(context);
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota"), mixed = bundle.ext_oneapi_get_kernel("mixed");
  namespace specific = sycl::info::kernel_device_specific;
  equal(iota.get_info<sycl::info::kernel::num_args>(), 2u, "arguments of iota");
  equal(mixed.get_info<sycl::info::kernel::num_args>(), 6u, "arguments of mixed");
  size_t most = iota.get_info<specific::work_group_size>(device);
  require(most >= 1 && most <= device.get_info<sycl::info::device::max_work_group_size>(), "a kernel's work-group size");
  require(iota.get_info<specific::preferred_work_group_size_multiple>(device) >= 1, "its preferred multiple");
  require(iota.get_info<specific::compile_work_group_size>(device) == range<3>(0, 0, 0), "its compiled size");
  iota.get_info<specific::private_mem_size>(device);
  iota.get_info<specific::max_sub_group_size>(device);
  iota.get_info<specific::max_num_sub_groups>(device);
}

static void pointers() {
  sycl::queue queue{rethrow};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota"), sum = bundle.ext_oneapi_get_kernel("sum");
  for (alloc a : {alloc::device, alloc::host, alloc::shared}) {
    for (alloc b : {alloc::device, alloc::host, alloc::shared}) {
      uint32_t *first = memory_for(queue, a), *second = memory_for(queue, b), *out = memory_for(queue, a);
      std::vector<uint32_t> back(count);
      auto one = queue.submit([&](handler &h) {
        h.set_args(first, uint32_t(5));
        h.parallel_for(range<1>(count), iota);
      });
      auto two = queue.submit([&](handler &h) {
        h.set_args(second, uint32_t(1000));
        h.parallel_for(range<1>(count), iota);
      });
      auto three = queue.submit([&](handler &h) {
        h.depends_on({one, two});
        h.set_args(out, first, second);
        h.parallel_for(range<1>(count), sum);
      });
      queue.memcpy(back.data(), out, count * sizeof(uint32_t), three).wait();
      for (size_t at = 0; at < count; at++)
        equal(back[at], uint32_t(1005 + 2 * at), "a sum");
      for (uint32_t *memory : {first, second, out})
        sycl::free(memory, queue);
    }
  }
}

static void accessors() {
  sycl::queue queue{rethrow};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota"), sum = bundle.ext_oneapi_get_kernel("sum");
  std::vector<uint32_t> ones(count, 1);
  sycl::buffer<uint32_t> a{range<1>(count)}, b(ones.data(), range<1>(count)), c{range<1>(count)};
  queue.submit([&](handler &h) {
    sycl::accessor out(a, h, sycl::write_only, sycl::no_init);
    h.set_args(out, uint32_t(7));
    h.parallel_for(range<1>(count), iota);
  });
  for (int round = 0; round < 10; round++) {
    queue.submit([&](handler &h) {
      sycl::accessor out(c, h, sycl::write_only, sycl::no_init);
      sycl::accessor x(a, h, sycl::read_only), y(b, h, sycl::read_only);
      h.set_args(out, x, y);
      h.parallel_for(range<1>(count), sum);
    });
    queue.submit([&](handler &h) {
      sycl::accessor in(c, h, sycl::read_only);
      sycl::accessor out(a, h, sycl::write_only);
      h.copy(in, out);
    });
  }
  sycl::host_accessor host(a, sycl::read_only);
  for (size_t at = 0; at < count; at++)
    equal(host[at], uint32_t(17 + at), "a sum in buffers");
}

static void spaces() {
  struct Ids {
    uint32_t global[3], local[3], group[3], range[3], size[3], groups[3], offset[3];
  };
  sycl::queue queue{rethrow};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel ids = bundle.ext_oneapi_get_kernel("ids");
  // SYCL counts the dimensions from the slowest, the kernel from the fastest.
  range<3> global(4, 6, 8), local(2, 3, 4);
  Ids *memory = sycl::malloc_shared<Ids>(global.size(), queue);
  queue
      .submit([&](handler &h) {
        h.set_args(static_cast<void *>(memory));
        h.parallel_for(nd_range<3>(global, local), ids);
      })
      .wait();
  for (size_t at = 0; at < global.size(); at++) {
    const Ids &found = memory[at];
    size_t place[3] = {at % 8, at / 8 % 6, at / 48};
    for (int d = 0; d < 3; d++) {
      equal(found.global[d], place[d], "a global id");
      equal(found.local[d], place[d] % local[2 - d], "a local id");
      equal(found.group[d], place[d] / local[2 - d], "a group's id");
      equal(found.range[d], global[2 - d], "the global range");
      equal(found.size[d], local[2 - d], "the local range");
      equal(found.groups[d], global[2 - d] / local[2 - d], "the number of groups");
    }
  }
  queue
      .submit([&](handler &h) {
        h.set_args(static_cast<void *>(memory));
        h.parallel_for(range<2>(6, 10), ids);
      })
      .wait();
  equal(memory[59].global[0], 9u, "the last of two dimensions");
  equal(memory[59].global[1], 5u, "the last of two dimensions");
  queue
      .submit([&](handler &h) {
        h.set_args(static_cast<void *>(memory));
        h.single_task(ids);
      })
      .wait();
  equal(memory[0].range[0], 1u, "the range of a single task");
  refused(sycl::errc::nd_range, "a local range that does not divide", [&] {
    queue.submit([&](handler &h) {
      h.set_args(static_cast<void *>(memory));
      h.parallel_for(nd_range<1>(range<1>(10), range<1>(1 << 20)), ids);
    });
  });
  sycl::free(memory, queue);
}

static void arguments() {
  struct Triple {
    uint8_t a;
    uint64_t b;
    uint16_t c;
  };
  sycl::queue queue{rethrow};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel mixed = bundle.ext_oneapi_get_kernel("mixed"), local = bundle.ext_oneapi_get_kernel("through_local");
  uint64_t *wide = sycl::malloc_shared<uint64_t>(64, queue);
  Triple triple{3, uint64_t(1) << 40, 500};
  queue
      .submit([&](handler &h) {
        h.set_args(wide, uint8_t(200), uint16_t(60000), uint32_t(4000000000u), uint64_t(1) << 50, triple);
        h.parallel_for(range<1>(64), mixed);
      })
      .wait();
  uint64_t wanted = 200 + 60000 + 4000000000u + (uint64_t(1) << 50) + 3 + (uint64_t(1) << 40) + 500;
  equal(wide[63], wanted, "the sum of all arguments");
  // Raw bytes instead of typed values.
  uint32_t word = 9;
  queue
      .submit([&](handler &h) {
        h.set_arg(0, wide);
        h.set_arg(1, uint8_t(0));
        h.set_arg(2, uint16_t(0));
        h.set_arg(3, oneapi::raw_kernel_arg(&word, sizeof word));
        h.set_arg(4, uint64_t(0));
        h.set_arg(5, Triple{0, 0, 0});
        h.parallel_for(range<1>(64), mixed);
      })
      .wait();
  equal(wide[0], uint64_t(9), "a raw argument");
  sycl::free(wide, queue);

  constexpr size_t group = 16;
  uint32_t *memory = memory_for(queue, alloc::shared, 256);
  queue
      .submit([&](handler &h) {
        sycl::local_accessor<uint32_t> scratch(range<1>(group), h);
        h.set_args(memory, scratch);
        h.parallel_for(nd_range<1>(range<1>(256), range<1>(group)), local);
      })
      .wait();
  for (uint32_t at = 0; at < 256; at++)
    equal(memory[at], at % group, "data through local memory");
  sycl::free(memory, queue);
}

static void order() {
  // Kernels between copies and fills, on both types of queue.
  sycl::context context{sycl::device{}};
  Executable bundle = build_kernels(context);
  sycl::kernel add = bundle.ext_oneapi_get_kernel("add"), verify = bundle.ext_oneapi_get_kernel("verify");
  for (bool line : {true, false}) {
    sycl::property_list properties =
        line ? sycl::property_list{sycl::property::queue::in_order{}} : sycl::property_list{};
    sycl::queue queue{context, context.get_devices()[0], rethrow, properties};
    uint32_t *memory = memory_for(queue, alloc::device), *wrong = memory_for(queue, alloc::shared, 1);
    std::vector<uint32_t> start(count);
    std::iota(start.begin(), start.end(), 0);
    *wrong = 0;
    sycl::event last;
    auto after = [&](handler &h) {
      if (!line)
        h.depends_on(last);
    };
    for (int round = 0; round < 50; round++) {
      last = queue.submit([&](handler &h) {
        after(h);
        h.memcpy(memory, start.data(), count * sizeof(uint32_t));
      });
      for (int step = 0; step < 3; step++) {
        last = queue.submit([&](handler &h) {
          after(h);
          h.set_args(memory, uint32_t(round));
          h.parallel_for(range<1>(count), add);
        });
      }
      last = queue.submit([&](handler &h) {
        after(h);
        h.set_args(memory, uint32_t(3 * round), wrong);
        h.parallel_for(range<1>(count), verify);
      });
      last = queue.submit([&](handler &h) {
        after(h);
        h.memset(memory, 0xff, count * sizeof(uint32_t));
      });
    }
    queue.wait_and_throw();
    equal(*wrong, 0u, line ? "wrong elements, in order" : "wrong elements, by events");
    sycl::free(memory, queue);
    sycl::free(wrong, queue);
  }
}

static void async_memory() {
  // Memory that is allocated, used by a kernel, checked by another and freed, all without waiting.
  sycl::device device;
  if (!device.has(sycl::aspect::ext_oneapi_async_memory_alloc))
    skip("no asynchronous allocation");
  sycl::context context{device};
  Executable bundle = build_kernels(context);
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota"), verify = bundle.ext_oneapi_get_kernel("verify");
  sycl::queue queue{context, device, rethrow, sycl::property::queue::in_order{}};
  uint32_t *wrong = memory_for(queue, alloc::shared, 1);
  *wrong = 0;
  for (uint32_t round = 0; round < 200; round++) {
    size_t items = 64 + round * 17 % count;
    void *memory = oneapi::async_malloc(queue, alloc::device, items * sizeof(uint32_t));
    oneapi::submit(queue, [&](handler &h) {
      h.set_args(memory, round);
      h.parallel_for(range<1>(items), iota);
    });
    oneapi::submit(queue, [&](handler &h) {
      h.set_args(memory, round, wrong);
      h.parallel_for(range<1>(items), verify);
    });
    oneapi::async_free(queue, memory);
  }
  queue.wait_and_throw();
  equal(*wrong, 0u, "wrong elements in asynchronously allocated memory");
  sycl::free(wrong, queue);
}

static void profiling() {
  sycl::device device;
  sycl::queue queue{device, rethrow, sycl::property::queue::enable_profiling{}};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota");
  uint32_t *memory = memory_for(queue, alloc::device, 1 << 20);
  sycl::event event = queue.submit([&](handler &h) {
    h.set_args(memory, uint32_t(0));
    h.parallel_for(range<1>(1 << 20), iota);
  });
  event.wait();
  namespace time = sycl::info::event_profiling;
  uint64_t submit = event.get_profiling_info<time::command_submit>();
  uint64_t start = event.get_profiling_info<time::command_start>(), end = event.get_profiling_info<time::command_end>();
  require(submit <= start && start < end, "the times of a kernel");
  require(end - start > 1'000 && end - start < 10'000'000'000, "a kernel took " + std::to_string(end - start) + " ns");
  sycl::free(memory, queue);
}

static void threads() {
  // One kernel object, launched by four threads with their own arguments.
  sycl::queue queue{rethrow};
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota");
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (uint32_t thread = 0; thread < 4; thread++) {
    all.emplace_back([&, thread] {
      uint32_t *memory = memory_for(queue, alloc::shared, 256);
      for (uint32_t round = 0; round < 100; round++) {
        uint32_t base = thread * 1'000'000 + round;
        queue
            .submit([&](handler &h) {
              h.set_args(memory, base);
              h.parallel_for(range<1>(256), iota);
            })
            .wait();
        wrong += memory[0] != base || memory[255] != base + 255;
      }
      sycl::free(memory, queue);
    });
  }
  for (std::thread &thread : all)
    thread.join();
  equal(wrong.load(), 0, "launches with another thread's arguments");
}

int main(int argc, char **argv) {
  read_kernels(argc, argv);
  Program program;
  program.part("building", building);
  program.part("queries", queries);
  program.part("pointers", pointers);
  program.part("accessors", accessors);
  program.part("spaces", spaces);
  program.part("arguments", arguments);
  program.part("order", order);
  program.part("async_memory", async_memory);
  program.part("profiling", profiling);
  program.part("threads", threads);
  return program.conclude();
}
