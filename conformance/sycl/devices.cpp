// Platforms, devices, aspects and their queries.
#include "client.hpp"

#include <algorithm>
#include <unordered_set>

#if __has_include(<CL/cl.h>)
#include <sycl/backend/opencl.hpp>
#endif

using namespace client;
namespace info = sycl::info::device;
namespace intel = sycl::ext::intel::info::device;

// A query that needs an aspect: it succeeds with the aspect and is refused without it.
template <class Query> void gated(const sycl::device &device, sycl::aspect aspect, const char *name) {
  if (device.has(aspect)) {
    device.get_info<Query>();
    return;
  }
  refused(sycl::errc::feature_not_supported, name, [&] { device.get_info<Query>(); });
}

static void platforms() {
  sycl::device device;
  sycl::platform own = device.get_platform();
  std::vector<sycl::platform> all = sycl::platform::get_platforms();
  require(std::find(all.begin(), all.end(), own) != all.end(), "the device's platform is not listed");
  for (const sycl::platform &platform : all) {
    require(!platform.get_info<sycl::info::platform::name>().empty(), "a platform without a name");
    require(!platform.get_info<sycl::info::platform::vendor>().empty(), "a platform without a vendor");
    require(!platform.get_info<sycl::info::platform::version>().empty(), "a platform without a version");
    require(!platform.get_devices().empty(), "a platform without devices");
  }
  std::vector<sycl::device> devices = own.get_devices();
  require(std::find(devices.begin(), devices.end(), device) != devices.end(), "the platform does not list the device");
  std::unordered_set<sycl::device> set(devices.begin(), devices.end());
  require(set.size() == devices.size(), "a device is listed twice");
  for (const sycl::device &other : own.get_devices())
    require(set.count(other) == 1, "a second query gives another device");
}

static void limits() {
  sycl::device device;
  require(device.is_cpu() == (device.get_info<info::device_type>() == sycl::info::device_type::cpu), "is_cpu");
  require(!device.get_info<info::name>().empty() && !device.get_info<info::vendor>().empty(), "name or vendor");
  require(!device.get_info<info::driver_version>().empty() && !device.get_info<info::version>().empty(), "versions");
  require(device.get_info<info::max_compute_units>() >= 1, "no compute units");
  size_t group = device.get_info<info::max_work_group_size>();
  require(group >= 1, "no work-group size");
  equal(device.get_info<info::max_work_item_dimensions>(), 3u, "dimensions");
  sycl::range<3> sizes = device.get_info<info::max_work_item_sizes<3>>();
  require(sizes[0] >= 1 && sizes[1] >= 1 && sizes[2] >= 1, "work-item sizes");
  require(device.get_info<info::max_work_item_sizes<1>>()[0] >= 1, "work-item sizes in one dimension");
  equal(device.get_info<info::address_bits>(), 64u, "address bits");
  size_t memory = device.get_info<info::global_mem_size>();
  require(memory >= size_t(64) << 20, "less than 64 MiB of memory");
  size_t largest = device.get_info<info::max_mem_alloc_size>();
  require(largest >= memory / 4 && largest <= memory, "the largest allocation against the memory");
  require(device.get_info<info::local_mem_size>() >= 1024, "local memory");
  require(device.get_info<info::max_parameter_size>() >= 1024, "parameter size");
  require(device.get_info<info::mem_base_addr_align>() >= 8, "base alignment");
  require(device.get_info<info::profiling_timer_resolution>() >= 1, "timer resolution");
  require(device.get_info<info::is_available>(), "not available");
  std::vector<size_t> sub_groups = device.get_info<info::sub_group_sizes>();
  for (size_t size : sub_groups)
    require(size >= 1 && size <= group, "a sub-group larger than a work-group");
  device.get_info<info::max_num_sub_groups>();
  device.get_info<info::max_clock_frequency>();
  device.get_info<info::global_mem_cache_type>();
  device.get_info<info::global_mem_cache_line_size>();
  device.get_info<info::global_mem_cache_size>();
  device.get_info<info::local_mem_type>();
  device.get_info<info::error_correction_support>();
  device.get_info<info::preferred_vector_width_int>();
  device.get_info<info::native_vector_width_float>();
  device.get_info<info::max_samplers>();
  device.get_info<info::image2d_max_width>();
  device.get_info<info::backend_version>();
}

static void arithmetic() {
  sycl::device device;
  std::vector<sycl::info::fp_config> single = device.get_info<info::single_fp_config>();
  require(std::find(single.begin(), single.end(), sycl::info::fp_config::round_to_nearest) != single.end(),
          "single precision does not round to nearest");
  require(device.get_info<info::double_fp_config>().empty() != device.has(sycl::aspect::fp64),
          "fp64 and the configuration of doubles disagree");
  require(device.get_info<info::half_fp_config>().empty() != device.has(sycl::aspect::fp16),
          "fp16 and the configuration of halves disagree");
  auto orders = device.get_info<info::atomic_memory_order_capabilities>();
  require(std::find(orders.begin(), orders.end(), sycl::memory_order::relaxed) != orders.end(), "no relaxed atomics");
  require(!device.get_info<info::atomic_fence_order_capabilities>().empty(), "no fence orders");
  require(!device.get_info<info::atomic_memory_scope_capabilities>().empty(), "no scopes");
  require(!device.get_info<info::atomic_fence_scope_capabilities>().empty(), "no fence scopes");
}

static void aspects() {
  sycl::device device;
  std::vector<sycl::aspect> listed = device.get_info<info::aspects>();
  std::set<int> set;
  for (sycl::aspect aspect : listed) {
    require(device.has(aspect), "a listed aspect is absent: " + std::to_string(static_cast<int>(aspect)));
    set.insert(static_cast<int>(aspect));
  }
  // Every aspect in this runtime's headers.
#define __SYCL_ASPECT(name, value)                                                                                     \
  require(device.has(sycl::aspect::name) == (set.count(value) == 1), "has and the list disagree on " #name);
#include <sycl/info/aspects.def>
#undef __SYCL_ASPECT
  require(device.has(sycl::aspect::cpu) == device.is_cpu(), "the aspect cpu");
  gated<intel::device_id>(device, sycl::aspect::ext_intel_device_id, "device_id");
  gated<intel::pci_address>(device, sycl::aspect::ext_intel_pci_address, "pci_address");
  gated<intel::uuid>(device, sycl::aspect::ext_intel_device_info_uuid, "uuid");
  gated<intel::free_memory>(device, sycl::aspect::ext_intel_free_memory, "free_memory");
  gated<intel::memory_clock_rate>(device, sycl::aspect::ext_intel_memory_clock_rate, "memory_clock_rate");
  gated<intel::memory_bus_width>(device, sycl::aspect::ext_intel_memory_bus_width, "memory_bus_width");
  gated<intel::max_mem_bandwidth>(device, sycl::aspect::ext_intel_max_mem_bandwidth, "max_mem_bandwidth");
  gated<intel::gpu_eu_count>(device, sycl::aspect::ext_intel_gpu_eu_count, "gpu_eu_count");
  device.get_info<intel::max_compute_queue_indices>();
  device.get_info<sycl::ext::oneapi::experimental::info::device::max_work_groups<3>>();
  device.get_info<sycl::ext::oneapi::experimental::info::device::max_global_work_groups>();
}

static void async_allocation() {
  require(sycl::device{}.has(sycl::aspect::ext_oneapi_async_memory_alloc), "the aspect is absent");
}

static void sub_devices() {
  namespace part = sycl::info;
  sycl::device device;
  auto how = device.get_info<info::partition_properties>();
  uint32_t units = device.get_info<info::max_compute_units>();
  uint32_t most = device.get_info<info::partition_max_sub_devices>();
  auto can = [&](part::partition_property property) {
    return std::find(how.begin(), how.end(), property) != how.end();
  };
  if (!can(part::partition_property::partition_equally)) {
    refused(sycl::errc::feature_not_supported, "partition without support",
            [&] { device.create_sub_devices<part::partition_property::partition_equally>(1); });
    skip("the device cannot be partitioned equally");
  }
  require(most >= units, "as many sub-devices as compute units");
  auto halves = device.create_sub_devices<part::partition_property::partition_equally>(1);
  equal(halves.size(), units, "sub-devices of one unit each");
  for (const sycl::device &half : halves) {
    equal(half.get_info<info::max_compute_units>(), 1u, "units of a sub-device");
    require(half.get_info<info::parent_device>() == device, "the parent of a sub-device");
    require(half.get_info<info::partition_type_property>() == part::partition_property::partition_equally,
            "how a sub-device was made");
    sycl::queue queue{half, rethrow};
    int value = 0;
    int *memory = sycl::malloc_device<int>(1, queue);
    client::fill(queue, memory, 7, 1).wait();
    queue.memcpy(&value, memory, sizeof value).wait();
    sycl::free(memory, queue);
    equal(value, 7, "data copied by a sub-device");
  }
  refused(sycl::errc::invalid, "more units than there are",
          [&] { device.create_sub_devices<part::partition_property::partition_equally>(units + 1); });
  if (can(part::partition_property::partition_by_counts)) {
    std::vector<size_t> counts{1};
    auto some = device.create_sub_devices<part::partition_property::partition_by_counts>(counts);
    equal(some.size(), size_t(1), "sub-devices by counts");
  }
}

static void contexts() {
  sycl::device device;
  std::vector<sycl::device> devices = device.get_platform().get_devices();
  sycl::context context{devices};
  equal(context.get_info<sycl::info::context::devices>().size(), devices.size(), "devices of a context");
  require(context.get_platform() == device.get_platform(), "the platform of a context");
  sycl::context copy = context, other{devices};
  require(copy == context && copy != other, "contexts compared");
  sycl::queue queue{context, device};
  require(queue.get_context() == context && queue.get_device() == device, "the context or the device of a queue is wrong");
  refused(sycl::errc::invalid, "a context without devices", [] { sycl::context{std::vector<sycl::device>{}}; });
}

#if __has_include(<CL/cl.h>)
static void native() {
  constexpr auto opencl = sycl::backend::opencl;
  sycl::device device;
  if (device.get_backend() != opencl)
    skip("not OpenCL");
  auto id = sycl::get_native<opencl>(device);
  require(id != nullptr && sycl::make_device<opencl>(id) == device, "a device from its native handle");
  auto platform = sycl::get_native<opencl>(device.get_platform());
  require(sycl::make_platform<opencl>(platform) == device.get_platform(), "a platform from its native handle");
  sycl::context context{device};
  sycl::queue queue{context, device, rethrow};
  auto made = sycl::make_context<opencl>(sycl::get_native<opencl>(context));
  sycl::queue again = sycl::make_queue<opencl>(sycl::get_native<opencl>(queue), made);
  int value = 0;
  int *memory = sycl::malloc_device<int>(1, device, made);
  client::fill(again, memory, 9, 1).wait();
  again.memcpy(&value, memory, sizeof value).wait();
  equal(value, 9, "data copied by a queue made from a native one");
  sycl::event event = again.memset(memory, 0, sizeof value);
  event.wait();
  auto events = sycl::get_native<opencl>(event);
  require(!events.empty() && events[0] != nullptr, "an event has no native handle");
  sycl::event same = sycl::make_event<opencl>(events, made);
  same.wait();
  require(same.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete,
          "an event from its native handle");
  sycl::free(memory, made);
}
#endif

int main() {
  Program program;
  program.part("platforms", platforms);
  program.part("limits", limits);
  program.part("arithmetic", arithmetic);
  program.part("aspects", aspects);
  program.part("async_allocation", async_allocation);
  program.part("sub_devices", sub_devices);
  program.part("contexts", contexts);
#if __has_include(<CL/cl.h>)
  program.part("native", native);
#endif
  return program.conclude();
}
