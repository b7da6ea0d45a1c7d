// Buffers without kernels: copies between accessors of all shapes, host accessors, host tasks, and one buffer
// in several queues and contexts.
#include "client.hpp"

#include <numeric>
#include <vector>

#if __has_include(<CL/cl.h>)
#include <sycl/backend/opencl.hpp>
#endif

using namespace client;
using sycl::access_mode;
using sycl::buffer;
using sycl::handler;
using sycl::id;
using sycl::range;

template <int D> size_t linear(range<D> size, id<D> at) {
  size_t index = 0;
  for (int d = 0; d < D; d++)
    index = index * size[d] + at[d];
  return index;
}

static std::vector<int> counted(size_t count) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), 1);
  return data;
}

static void lifetime() {
  std::vector<int> data = counted(1000);
  {
    sycl::queue queue{rethrow};
    buffer<int> whole(data.data(), range<1>(data.size()));
    queue.submit([&](handler &h) {
      sycl::accessor out(whole, h, range<1>(500), id<1>(250), sycl::write_only);
      h.fill(out, -1);
    });
  } // Going, the buffer writes what changed back to where it came from.
  for (size_t at = 0; at < data.size(); at++)
    equal(data[at], at >= 250 && at < 750 ? -1 : int(at + 1), "data written back by a buffer");

  std::vector<int> other(16, 0);
  {
    sycl::queue queue{rethrow};
    buffer<int> made{range<1>(16)};
    made.set_final_data(other.data());
    queue.submit([&](handler &h) {
      sycl::accessor out(made, h, sycl::write_only, sycl::no_init);
      h.fill(out, 8);
    });
  }
  equal(other[15], 8, "the final data of a buffer");
}

template <int D> void copies_of(range<D> size, range<D> part, id<D> from, id<D> to) {
  sycl::queue queue{rethrow};
  std::vector<int> source = counted(size.size()), back(size.size(), 0), piece(part.size(), 0);
  buffer<int, D> a(size), b(size);
  queue.submit([&](handler &h) {
    sycl::accessor out(a, h, sycl::write_only, sycl::no_init);
    h.copy(source.data(), out);
  });
  queue.submit([&](handler &h) {
    sycl::accessor out(b, h, sycl::write_only, sycl::no_init);
    h.fill(out, 0);
  });
  queue.submit([&](handler &h) {
    sycl::accessor in(a, h, part, from, sycl::read_only);
    sycl::accessor out(b, h, part, to, sycl::write_only);
    h.copy(in, out);
  });
  queue.submit([&](handler &h) {
    sycl::accessor in(b, h, sycl::read_only);
    h.copy(in, back.data());
  });
  queue.submit([&](handler &h) {
    sycl::accessor in(a, h, part, from, sycl::read_only);
    h.copy(in, piece.data());
  });
  queue.wait_and_throw();
  std::vector<int> wanted(size.size(), 0), wanted_piece(part.size(), 0);
  range<3> count(1, 1, 1);
  for (int d = 0; d < D; d++)
    count[d] = part[d];
  for (size_t x = 0; x < count[0]; x++)
    for (size_t y = 0; y < count[1]; y++)
      for (size_t z = 0; z < count[2]; z++) {
        id<3> all(x, y, z);
        id<D> at;
        for (int d = 0; d < D; d++)
          at[d] = all[d];
        wanted[linear<D>(size, at + to)] = source[linear<D>(size, at + from)];
        wanted_piece[linear<D>(part, at)] = source[linear<D>(size, at + from)];
      }
  std::string name = std::to_string(D) + " dimensions";
  require(back == wanted, "part to part in " + name);
  require(piece == wanted_piece, "part to host in " + name);
  // From the host to a part of the buffer, too.
  queue.submit([&](handler &h) {
    sycl::accessor out(b, h, part, from, sycl::write_only);
    h.copy(piece.data(), out);
  });
  sycl::host_accessor host(b, sycl::read_only);
  require(host[from] == piece[0], "host to part in " + name);
}

static void copies() {
  copies_of<1>({1000}, {100}, {17}, {800});
  copies_of<2>({30, 40}, {7, 11}, {3, 5}, {20, 29});
  copies_of<3>({12, 14, 16}, {3, 4, 5}, {1, 2, 3}, {9, 10, 11});
  copies_of<2>({30, 40}, {30, 1}, {0, 39}, {0, 0});
}

static void fills() {
  sycl::queue queue{rethrow};
  buffer<int> line{range<1>(1000)};
  queue.submit([&](handler &h) {
    sycl::accessor out(line, h, sycl::write_only, sycl::no_init);
    h.fill(out, 3);
  });
  queue.submit([&](handler &h) {
    sycl::accessor out(line, h, range<1>(10), id<1>(13), sycl::write_only);
    h.fill(out, 4);
  });
  sycl::host_accessor host(line, sycl::read_only);
  equal(host[12], 3, "before a filled part");
  equal(host[13], 4, "the first of a filled part");
  equal(host[22], 4, "the last of a filled part");
  equal(host[23], 3, "after a filled part");

  // The largest pattern that libsycl passes to UR. It fills larger ones by a kernel, which needs device code.
  struct Text {
    char bytes[16];
  };
  buffer<Text> texts{range<1>(33)};
  Text text{};
  std::memcpy(text.bytes, "fifteen letters", 16);
  queue.submit([&](handler &h) {
    sycl::accessor out(texts, h, sycl::write_only, sycl::no_init);
    h.fill(out, text);
  });
  sycl::host_accessor seen(texts, sycl::read_only);
  require(std::memcmp(seen[32].bytes, text.bytes, 16) == 0, "a pattern of sixteen bytes");
}

static void host_accessors() {
  sycl::queue queue{rethrow};
  buffer<int, 2> plane{range<2>(8, 8)};
  {
    sycl::host_accessor host(plane, sycl::write_only);
    for (size_t row = 0; row < 8; row++)
      for (size_t column = 0; column < 8; column++)
        host[row][column] = int(row * 10 + column);
  }
  buffer<int, 2> copy{range<2>(8, 8)};
  queue.submit([&](handler &h) {
    sycl::accessor in(plane, h, sycl::read_only);
    sycl::accessor out(copy, h, sycl::write_only, sycl::no_init);
    h.copy(in, out);
  });
  {
    sycl::host_accessor host(copy, sycl::read_write);
    equal(host[7][3], 73, "data written by the host");
    host[7][3] = 5;
  }
  std::vector<int> back(64);
  queue.submit([&](handler &h) {
    sycl::accessor in(copy, h, sycl::read_only);
    h.copy(in, back.data());
  });
  queue.wait_and_throw();
  equal(back[7 * 8 + 3], 5, "data changed by the host");
}

static void sub_buffers() {
  sycl::queue queue{rethrow};
  size_t align = queue.get_device().get_info<sycl::info::device::mem_base_addr_align>() / 8 / sizeof(int);
  align = std::max(align, size_t(1));
  // Intel's driver requires the memory itself to be aligned, not only the offset.
  size_t count = align * 8;
  std::unique_ptr<int, void (*)(void *)> data(static_cast<int *>(std::aligned_alloc(4096, 4096 * sizeof(int))), std::free);
  require(count <= 4096, "an alignment of more than 2 KiB");
  std::iota(data.get(), data.get() + count, 1);
  {
    buffer<int> whole(data.get(), range<1>(count), {sycl::property::buffer::use_host_ptr{}});
    buffer<int> part(whole, id<1>(align * 2), range<1>(align)), next(whole, id<1>(align * 3), range<1>(align));
    require(part.is_sub_buffer() && !whole.is_sub_buffer(), "is_sub_buffer");
    queue.submit([&](handler &h) {
      sycl::accessor out(part, h, sycl::write_only);
      h.fill(out, -2);
    });
    queue.submit([&](handler &h) {
      sycl::accessor in(part, h, sycl::read_only);
      sycl::accessor out(next, h, sycl::write_only);
      h.copy(in, out);
    });
    sycl::host_accessor host(whole, sycl::read_only);
    equal(host[align * 2 - 1], int(align * 2), "before a sub-buffer");
    equal(host[align * 2], -2, "the first of a sub-buffer");
    equal(host[align * 4 - 1], -2, "the last of the next");
    equal(host[align * 4], int(align * 4 + 1), "after the sub-buffers");
  }
  equal(data.get()[align * 3], -2, "data written back by sub-buffers");
}

static void host_tasks() {
  sycl::queue queue{rethrow};
  constexpr size_t count = 2000;
  buffer<int> a{range<1>(count)}, b{range<1>(count)};
  queue.submit([&](handler &h) {
    sycl::accessor out(a, h, sycl::write_only, sycl::no_init);
    h.fill(out, 20);
  });
  for (int round = 0; round < 20; round++) {
    queue.submit([&](handler &h) {
      sycl::accessor in(a, h, sycl::read_only_host_task);
      sycl::accessor out(b, h, sycl::write_only_host_task);
      h.host_task([=] {
        for (size_t at = 0; at < count; at++)
          out[at] = in[at] + 1;
      });
    });
    queue.submit([&](handler &h) {
      sycl::accessor in(b, h, sycl::read_only);
      sycl::accessor out(a, h, sycl::write_only);
      h.copy(in, out);
    });
  }
  sycl::host_accessor host(a, sycl::read_only);
  equal(host[0], 40, "after twenty rounds");
  equal(host[count - 1], 40, "after twenty rounds");
}

static void several_queues() {
  sycl::device device;
  sycl::context context{device};
  std::vector<sycl::queue> queues{{context, device, rethrow},
                                  {context, device, rethrow, sycl::property::queue::in_order{}},
                                  {context, device, rethrow},
                                  {context, device, rethrow, sycl::property::queue::in_order{}}};
  constexpr size_t count = 3000;
  buffer<int> shared{range<1>(count)}, aside{range<1>(count)};
  for (int round = 0; round < 40; round++) {
    sycl::queue &queue = queues[(round * 3) % queues.size()], &other = queues[(round * 7 + 1) % queues.size()];
    queue.submit([&](handler &h) {
      sycl::accessor out(shared, h, range<1>(count - round), id<1>(round), sycl::write_only);
      h.fill(out, round);
    });
    other.submit([&](handler &h) {
      sycl::accessor in(shared, h, sycl::read_only);
      sycl::accessor out(aside, h, sycl::write_only, sycl::no_init);
      h.copy(in, out);
    });
  }
  sycl::host_accessor host(aside, sycl::read_only);
  for (size_t at = 0; at < count; at++)
    equal(host[at], int(std::min(at, size_t(39))), "a buffer that four queues use");
}

static void two_contexts() {
  sycl::device device;
  sycl::queue here{sycl::context{device}, device, rethrow}, there{sycl::context{device}, device, rethrow};
  constexpr size_t count = 3000;
  buffer<int> moving{range<1>(count)};
  std::vector<int> first(count), second(count);
  here.submit([&](handler &h) {
    sycl::accessor out(moving, h, sycl::write_only, sycl::no_init);
    h.fill(out, 1);
  });
  there.submit([&](handler &h) {
    sycl::accessor in(moving, h, sycl::read_only);
    h.copy(in, first.data());
  });
  there.submit([&](handler &h) {
    sycl::accessor out(moving, h, range<1>(count - 1), id<1>(1), sycl::read_write);
    h.fill(out, 2);
  });
  here.submit([&](handler &h) {
    sycl::accessor in(moving, h, sycl::read_only);
    h.copy(in, second.data());
  });
  here.wait_and_throw();
  there.wait_and_throw();
  equal(first[count - 1], 1, "a buffer in its second context");
  equal(second[0], 1, "a buffer back in its first context");
  equal(second[count - 1], 2, "a buffer back in its first context");
}

static void mapped() {
  // Over the program's own memory, without a copy.
  sycl::queue queue{rethrow};
  std::vector<int> data = counted(4096), other(4096);
  {
    buffer<int> own(data.data(), range<1>(data.size()), {sycl::property::buffer::use_host_ptr{}});
    buffer<int> copy(other.data(), range<1>(other.size()), {sycl::property::buffer::use_host_ptr{}});
    queue.submit([&](handler &h) {
      sycl::accessor in(own, h, sycl::read_only);
      sycl::accessor out(copy, h, sycl::write_only, sycl::no_init);
      h.copy(in, out);
    });
    queue.submit([&](handler &h) {
      sycl::accessor out(own, h, sycl::read_write);
      h.update_host(out);
    });
    {
      sycl::host_accessor host(copy, sycl::read_write);
      require(&host[0] == other.data(), "use_host_ptr uses other memory");
      equal(host[4095], 4096, "the last element");
      host[0] = 77;
    }
  }
  equal(other[0], 77, "data written by the host through an accessor");
}

#if __has_include(<CL/cl.h>)
static void interop() {
  sycl::queue queue{rethrow};
  if (queue.get_backend() != sycl::backend::opencl)
    skip("not OpenCL");
  buffer<int> memory{range<1>(64)};
  queue.submit([&](handler &h) {
    sycl::accessor out(memory, h, sycl::write_only, sycl::no_init);
    h.fill(out, 6);
  });
  bool native = false;
  queue
      .submit([&](handler &h) {
        sycl::accessor in(memory, h, sycl::read_only);
        h.host_task([=, &native](sycl::interop_handle handle) {
          auto list = handle.get_native_mem<sycl::backend::opencl>(in);
          native = !list.empty() && list[0] != nullptr && handle.get_native_queue<sycl::backend::opencl>() != nullptr &&
                   handle.get_native_context<sycl::backend::opencl>() != nullptr;
        });
      })
      .wait_and_throw();
  require(native, "a host task sees no native handles");
  auto list = sycl::get_native<sycl::backend::opencl>(memory);
  require(!list.empty(), "a buffer has no native handle");
  buffer<int> again = sycl::make_buffer<sycl::backend::opencl, int>(list[0], queue.get_context());
  sycl::host_accessor host(again, sycl::read_only);
  equal(host[63], 6, "a buffer made from a native handle");
}
#endif

int main() {
  Program program;
  program.part("lifetime", lifetime);
  program.part("copies", copies);
  program.part("fills", fills);
  program.part("host_accessors", host_accessors);
  program.part("sub_buffers", sub_buffers);
  program.part("host_tasks", host_tasks);
  program.part("several_queues", several_queues);
  program.part("two_contexts", two_contexts);
  program.part("mapped", mapped);
#if __has_include(<CL/cl.h>)
  program.part("interop", interop);
#endif
  return program.conclude();
}
