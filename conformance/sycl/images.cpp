// Bindless images without kernels: memory, copies, handles, mipmaps, linear and imported memory, properties.
#include "client.hpp"

#include <sycl/ext/oneapi/bindless_images.hpp>
#include <sycl/ext/oneapi/memory_export.hpp>

#include <array>
#include <numeric>
#include <vector>

using namespace client;
namespace ex = sycl::ext::oneapi::experimental;

using Sizes = sycl::range<3>;

static sycl::queue images() {
  sycl::queue queue{rethrow, sycl::property::queue::in_order{}};
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_bindless_images))
    skip("the device has no bindless images");
  return queue;
}

static std::vector<unsigned> numbers(size_t count, unsigned seed) {
  std::vector<unsigned> all(count);
  for (size_t at = 0; at < count; at++)
    all[at] = static_cast<unsigned>(at) * 2654435761u ^ seed;
  return all;
}

// An image of one 32-bit channel in each kind that the device has, with the pixels of its copies.
static std::vector<std::pair<ex::image_descriptor, size_t>> kinds(const sycl::device &device) {
  constexpr auto channel = sycl::image_channel_type::unsigned_int32;
  std::vector<std::pair<ex::image_descriptor, size_t>> all = {
      {{sycl::range<1>(13), 1, channel}, 13},
      {{sycl::range<2>(13, 7), 1, channel}, 91},
      {{sycl::range<3>(13, 7, 5), 1, channel}, 455},
  };
  if (device.has(sycl::aspect::ext_oneapi_image_array)) {
    all.push_back({{sycl::range<1>(13), 1, channel, ex::image_type::array, 1, 4}, 52});
    all.push_back({{sycl::range<2>(13, 7), 1, channel, ex::image_type::array, 1, 3}, 273});
  }
  if (device.has(sycl::aspect::ext_oneapi_cubemap))
    all.push_back({{sycl::range<2>(8, 8), 1, channel, ex::image_type::cubemap, 1, 6}, 384});
  return all;
}

static void copies() {
  sycl::queue queue = images();
  for (auto &[desc, count] : kinds(queue.get_device())) {
    ex::image_mem one(desc, queue), two(desc, queue);
    std::vector<unsigned> from = numbers(count, 1), to(count);
    queue.ext_oneapi_copy(from.data(), one.get_handle(), desc);
    queue.ext_oneapi_copy(one.get_handle(), desc, two.get_handle(), desc);
    queue.ext_oneapi_copy(two.get_handle(), to.data(), desc);
    queue.wait_and_throw();
    require(from == to, "pixels of a kind of image");
  }
}

static void regions() {
  sycl::queue queue = images();
  constexpr size_t width = 8, height = 6;
  ex::image_descriptor desc(sycl::range<2>(width, height), 1, sycl::image_channel_type::unsigned_int32);
  ex::image_mem image(desc, queue), other(desc, queue);
  std::vector<unsigned> base = numbers(width * height, 2), small = numbers(5 * 4, 3), to(width * height), part(5 * 4);
  queue.ext_oneapi_copy(base.data(), image.get_handle(), desc);
  // Rows of 5 in host memory, to the middle of the image.
  queue.ext_oneapi_copy(small.data(), Sizes(1, 1, 0), Sizes(5, 4, 1), image.get_handle(), Sizes(3, 2, 0), desc,
                        Sizes(4, 3, 1));
  queue.ext_oneapi_copy(image.get_handle(), to.data(), desc);
  queue.ext_oneapi_copy(image.get_handle(), Sizes(3, 2, 0), desc, part.data(), Sizes(1, 1, 0), Sizes(5, 4, 1),
                        Sizes(4, 3, 1));
  queue.wait_and_throw();
  for (size_t y = 0; y < height; y++)
    for (size_t x = 0; x < width; x++) {
      bool inside = x >= 3 && x < 7 && y >= 2 && y < 5;
      unsigned wanted = inside ? small[(y - 1) * 5 + x - 2] : base[y * width + x];
      equal(to[y * width + x], wanted, "a pixel beside or within a region");
    }
  for (size_t y = 1; y < 4; y++)
    for (size_t x = 1; x < 5; x++)
      equal(part[y * 5 + x], small[y * 5 + x], "a pixel of a region that was read");
  queue.ext_oneapi_copy(base.data(), other.get_handle(), desc);
  queue.ext_oneapi_copy(image.get_handle(), Sizes(3, 2, 0), desc, other.get_handle(), Sizes(0, 1, 0), desc,
                        Sizes(4, 3, 1));
  queue.ext_oneapi_copy(other.get_handle(), to.data(), desc);
  queue.wait_and_throw();
  equal(to[1 * width + 0], small[1 * 5 + 1], "a pixel of a region between images");
  equal(to[3 * width + 3], small[3 * 5 + 4], "the last pixel of a region between images");
  equal(to[4 * width + 3], base[4 * width + 3], "a pixel behind a region between images");
}

static void pitched() {
  sycl::queue queue = images();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_bindless_images_2d_usm))
    skip("no images in linear memory");
  constexpr size_t width = 25, height = 9;
  ex::image_descriptor desc(sycl::range<2>(width, height), 1, sycl::image_channel_type::unsigned_int32);
  size_t pitch = 0;
  void *memory = ex::pitched_alloc_device(&pitch, desc, queue);
  require(memory && pitch >= width * 4, "pitched memory");
  std::vector<unsigned> from = numbers(width * height, 4), to(width * height);
  // The pitch is the device's: host memory is packed.
  queue.ext_oneapi_copy(from.data(), memory, desc, pitch);
  queue.ext_oneapi_copy(memory, to.data(), desc, pitch);
  queue.wait_and_throw();
  require(from == to, "pixels through pitched memory");
  std::vector<unsigned> row(width);
  queue.memcpy(row.data(), static_cast<char *>(memory) + 3 * pitch, width * 4).wait();
  require(std::equal(row.begin(), row.end(), from.begin() + 3 * width), "a row of pitched memory");
  // A part, between rows of another length on the host and the pitched memory.
  std::vector<unsigned> small = numbers(6 * 4, 5), part(6 * 4);
  queue.ext_oneapi_copy(small.data(), Sizes(1, 1, 0), memory, Sizes(10, 2, 0), desc, pitch, Sizes(6, 4, 1),
                        Sizes(5, 3, 1));
  queue.ext_oneapi_copy(memory, Sizes(10, 2, 0), part.data(), Sizes(1, 1, 0), desc, pitch, Sizes(6, 4, 1),
                        Sizes(5, 3, 1));
  queue.wait_and_throw();
  for (size_t y = 1; y < 4; y++)
    for (size_t x = 1; x < 6; x++)
      equal(part[y * 6 + x], small[y * 6 + x], "a pixel of a part of pitched memory");
  // Image memory and linear memory.
  ex::image_mem image(desc, queue);
  queue.ext_oneapi_copy(from.data(), image.get_handle(), desc);
  queue.ext_oneapi_copy(image.get_handle(), desc, memory, desc, pitch);
  queue.ext_oneapi_copy(memory, to.data(), desc, pitch);
  queue.wait_and_throw();
  require(from == to, "pixels from an image to pitched memory");
  ex::sampled_image_handle read = ex::create_image(memory, pitch, ex::bindless_image_sampler(
      sycl::addressing_mode::clamp, sycl::coordinate_normalization_mode::normalized, sycl::filtering_mode::nearest),
      desc, queue);
  ex::destroy_image_handle(read, queue);
  sycl::free(memory, queue);
}

static void linear() {
  sycl::queue queue = images();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_bindless_images_2d_usm))
    skip("no images in linear memory");
  constexpr size_t width = 32, height = 8;
  ex::image_descriptor desc(sycl::range<2>(width, height), 1, sycl::image_channel_type::unsigned_int32);
  size_t pitch = 0;
  void *one = ex::pitched_alloc_device(&pitch, desc, queue);
  void *two = ex::pitched_alloc_device(&pitch, desc, queue);
  ex::image_mem image(desc, queue);
  std::vector<unsigned> from = numbers(width * height, 6), to(width * height);
  queue.ext_oneapi_copy(from.data(), one, desc, pitch);
  queue.ext_oneapi_copy(one, desc, pitch, two, desc, pitch);
  queue.ext_oneapi_copy(two, desc, pitch, image.get_handle(), desc);
  queue.ext_oneapi_copy(image.get_handle(), to.data(), desc);
  queue.wait_and_throw();
  require(from == to, "pixels from linear memory to an image");
  // Parts, each to another place.
  queue.memset(two, 0, pitch * height);
  queue.ext_oneapi_copy(one, Sizes(3, 2, 0), desc, pitch, two, Sizes(1, 1, 0), desc, pitch, Sizes(4, 3, 1));
  queue.ext_oneapi_copy(two, Sizes(1, 1, 0), desc, pitch, image.get_handle(), Sizes(20, 4, 0), desc, Sizes(4, 3, 1));
  queue.ext_oneapi_copy(image.get_handle(), to.data(), desc);
  queue.wait_and_throw();
  for (size_t y = 0; y < 3; y++)
    for (size_t x = 0; x < 4; x++)
      equal(to[(y + 4) * width + x + 20], from[(y + 2) * width + x + 3], "a pixel of a part of linear memory");
  equal(to[3 * width + 20], from[3 * width + 20], "a pixel before a part");
  queue.memset(one, 0, pitch * height);
  queue.ext_oneapi_copy(image.get_handle(), Sizes(20, 4, 0), desc, one, Sizes(7, 5, 0), desc, pitch, Sizes(4, 3, 1));
  queue.ext_oneapi_copy(one, to.data(), desc, pitch);
  queue.wait_and_throw();
  equal(to[5 * width + 7], from[2 * width + 3], "the first pixel of a part of an image");
  equal(to[7 * width + 10], from[4 * width + 6], "the last pixel of a part of an image");
  equal(to[7 * width + 11], 0u, "a pixel behind a part of an image");
  // Memory of the host's at both ends.
  std::vector<unsigned> host(width * height);
  queue.ext_oneapi_copy(from.data(), desc, width * 4, host.data(), desc, width * 4).wait_and_throw();
  require(from == host, "pixels between memory of the host's");
  sycl::free(one, queue);
  sycl::free(two, queue);
}

static void mipmaps() {
  sycl::queue queue = images();
  sycl::device device = queue.get_device();
  if (!device.has(sycl::aspect::ext_oneapi_mipmap_level_reference))
    skip("no levels of mipmaps");
  ex::image_descriptor desc(sycl::range<2>(16, 8), 1, sycl::image_channel_type::unsigned_int32, ex::image_type::mipmap, 3);
  ex::image_mem mipmap(desc, queue);
  for (unsigned level = 0; level < 3; level++) {
    ex::image_descriptor own = desc.get_mip_level_desc(level);
    std::vector<unsigned> from = numbers(own.width * own.height, level), to(from.size());
    ex::image_mem_handle handle = mipmap.get_mip_level_mem_handle(level);
    queue.ext_oneapi_copy(from.data(), handle, own);
    queue.ext_oneapi_copy(handle, to.data(), own);
    queue.wait_and_throw();
    require(from == to, "pixels of a level");
    ex::unsampled_image_handle written = ex::create_image(handle, own, queue);
    ex::sampled_image_handle sampled = ex::create_image(handle, ex::bindless_image_sampler(), own, queue);
    ex::destroy_image_handle(written, queue);
    ex::destroy_image_handle(sampled, queue);
  }
  // Kernels sample the levels one by one.
  if (!device.has(sycl::aspect::ext_oneapi_mipmap))
    return;
  ex::bindless_image_sampler sampler(sycl::addressing_mode::repeat, sycl::coordinate_normalization_mode::normalized,
                                     sycl::filtering_mode::nearest, sycl::filtering_mode::nearest, 0.0f, 2.0f, 8.0f);
  ex::sampled_image_handle read = ex::create_image(mipmap, sampler, desc, queue);
  ex::destroy_image_handle(read, queue);
}

static void handles() {
  sycl::queue queue = images();
  sycl::addressing_mode modes[3] = {sycl::addressing_mode::repeat, sycl::addressing_mode::mirrored_repeat,
                                    sycl::addressing_mode::clamp_to_edge};
  ex::bindless_image_sampler sampler(modes, sycl::coordinate_normalization_mode::normalized,
                                     sycl::filtering_mode::nearest);
  for (auto &[desc, count] : kinds(queue.get_device())) {
    ex::image_mem image(desc, queue);
    ex::unsampled_image_handle written = ex::create_image(image, desc, queue);
    ex::sampled_image_handle read = ex::create_image(image, sampler, desc, queue);
    require(written.raw_handle && read.raw_handle, "handles");
    ex::destroy_image_handle(written, queue);
    ex::destroy_image_handle(read, queue);
  }
  ex::image_descriptor plain(sycl::range<2>(4, 4), 1, sycl::image_channel_type::unsigned_int32);
  ex::image_mem image(plain, queue);
  ex::sampled_image_handle read = ex::create_image(image, ex::bindless_image_sampler(), plain, queue);
  ex::destroy_image_handle(read, queue);
}

static void properties() {
  sycl::queue queue = images();
  ex::image_descriptor desc(sycl::range<3>(13, 7, 5), 4, sycl::image_channel_type::fp16);
  ex::image_mem image(desc, queue);
  equal(image.get_range()[0], 13, "the width");
  equal(image.get_range()[1], 7, "the height");
  equal(image.get_range()[2], 5, "the depth");
  require(image.get_channel_type() == sycl::image_channel_type::fp16, "the type of a channel");
  equal(image.get_num_channels(), 4, "channels");
  using Kind = ex::image_memory_handle_type;
  auto found = ex::get_image_memory_support(desc, queue);
  require(std::count(found.begin(), found.end(), Kind::opaque_handle) == 1, "support of image memory");
  require(std::count(found.begin(), found.end(), Kind::usm_pointer) == 0, "no 3D image in linear memory");
  require(ex::is_image_handle_supported<ex::unsampled_image_handle>(desc, Kind::opaque_handle, queue),
          "support of an unsampled image");
  require(ex::is_image_handle_supported<ex::sampled_image_handle>(desc, Kind::opaque_handle, queue),
          "support of a sampled image");
  require(!ex::is_image_handle_supported<ex::unsampled_image_handle>(desc, Kind::usm_pointer, queue),
          "no unsampled image in linear memory");
  ex::image_descriptor huge(sycl::range<2>(1 << 30, 4), 4, sycl::image_channel_type::fp16);
  require(ex::get_image_memory_support(huge, queue).empty(), "no huge image");
  sycl::device device = queue.get_device();
  require(device.get_info<ex::info::device::image_row_pitch_align>() > 0, "the alignment of rows");
  require(device.get_info<ex::info::device::max_image_linear_width>() > 0, "the largest width in linear memory");
}

static void external() {
  sycl::queue queue = images();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_exportable_device_mem) ||
      !queue.get_device().has(sycl::aspect::ext_oneapi_external_memory_import))
    skip("the device does not export and import memory");
  constexpr auto kind = ex::external_mem_handle_type::opaque_fd;
  constexpr size_t bytes = 2 << 20, width = 64, height = 32;
  void *own = ex::alloc_exportable_device_mem(0, bytes, kind, queue);
  int file = ex::export_device_mem_handle<kind>(own, queue);
  ex::external_mem memory =
      ex::import_external_memory(ex::external_mem_descriptor<ex::resource_fd>{{file}, kind, bytes}, queue);
  void *mapped = ex::map_external_linear_memory(memory, 0, bytes, queue);
  queue.memset(own, 0x31, bytes);
  std::vector<unsigned char> seen(bytes);
  queue.memcpy(seen.data(), mapped, bytes).wait();
  require(std::count(seen.begin(), seen.end(), 0x31) == bytes, "bytes of imported memory");
  queue.memset(mapped, 0x32, bytes);
  queue.memcpy(seen.data(), own, bytes).wait();
  require(std::count(seen.begin(), seen.end(), 0x32) == bytes, "bytes of exported memory");
  ex::unmap_external_linear_memory(mapped, queue);
  ex::image_descriptor desc(sycl::range<2>(width, height), 1, sycl::image_channel_type::unsigned_int32);
  ex::image_mem_handle image = ex::map_external_image_memory(memory, desc, queue);
  std::vector<unsigned> from = numbers(width * height, 8), to(width * height);
  queue.ext_oneapi_copy(from.data(), image, desc);
  queue.ext_oneapi_copy(image, to.data(), desc);
  queue.wait_and_throw();
  require(from == to, "pixels of imported memory");
  ex::unmap_external_image_memory(image, ex::image_type::standard, queue);
  ex::release_external_memory(memory, queue);
  ex::free_exportable_memory(own, queue);
}

static void order() {
  sycl::queue queue = images();
  sycl::queue loose{queue.get_context(), queue.get_device(), rethrow};
  constexpr size_t count = 256;
  ex::image_descriptor desc(sycl::range<1>(count), 1, sycl::image_channel_type::unsigned_int32);
  ex::image_mem image(desc, loose);
  unsigned *memory = sycl::malloc_device<unsigned>(count, loose);
  std::vector<unsigned> from = numbers(count, 7), to(count);
  Gate gate;
  sycl::event closed = gate.close(loose);
  sycl::event filled = loose.memcpy(memory, from.data(), count * 4, closed);
  filled = client::fill(loose, memory + 16, 5u, 16, filled);
  sycl::event copied = loose.ext_oneapi_copy(from.data(), image.get_handle(), desc, filled);
  copied = loose.ext_oneapi_copy(image.get_handle(), to.data(), desc, copied);
  gate.open();
  copied.wait_and_throw();
  require(from == to, "pixels behind events");
  sycl::free(memory, loose);
}

int main() {
  Program program;
  program.part("copies", copies);
  program.part("regions", regions);
  program.part("pitched", pitched);
  program.part("linear", linear);
  program.part("mipmaps", mipmaps);
  program.part("handles", handles);
  program.part("properties", properties);
  program.part("external", external);
  program.part("order", order);
  return program.conclude();
}
