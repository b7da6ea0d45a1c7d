// The cost of calls through Intel's libsycl: the program that `ur-bench --sycl` runs over each adapter.
//
// It answers each line of its input, a measure's name, with nanoseconds for each call. A sample is the mean
// of several successive calls; clean-up is outside the time. The first argument names the file of the kernel.
// The program knows SYCL only.
#include <sycl/sycl.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace oneapi = sycl::ext::oneapi::experimental;
using Clock = std::chrono::steady_clock;

constexpr int calls = 64;
constexpr size_t elements = 16;

template <class F> static double timed(F &&call) {
  auto begun = Clock::now();
  for (int at = 0; at < calls; at++)
    call(at);
  return std::chrono::duration<double, std::nano>(Clock::now() - begun).count() / calls;
}

// A sample of another adapter than the requested one would prove nothing.
static void check_adapter() {
  const char *wanted = std::getenv("UR_ADAPTERS_FORCE_LOAD");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (wanted && line.find(wanted) != std::string::npos)
      return;
    if (!wanted && line.find("libur_adapter_opencl") != std::string::npos)
      throw std::runtime_error("another adapter was loaded");
  }
  if (wanted)
    throw std::runtime_error("the adapter was not loaded");
}

struct Bench {
  sycl::queue in_order{sycl::property::queue::in_order()};
  sycl::queue out_of_order{in_order.get_context(), in_order.get_device()};
  uint32_t *target = sycl::malloc_device<uint32_t>(calls * elements, in_order);
  uint32_t *source = sycl::malloc_device<uint32_t>(calls * elements, in_order);
  sycl::kernel kernel;

  explicit Bench(const std::string &path) : kernel(build(in_order.get_context(), path)) { check_adapter(); }

  static sycl::kernel build(const sycl::context &context, const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::byte *data = reinterpret_cast<const std::byte *>(text.data());
    std::vector<std::byte> bytes(data, data + text.size());
    auto from = oneapi::create_kernel_bundle_from_source(context, oneapi::source_language::spirv, bytes);
    return oneapi::build(from).ext_oneapi_get_kernel("affine");
  }

  sycl::event copy(sycl::queue &queue, int at) {
    return queue.memcpy(target + at * elements, source + at * elements, elements * sizeof(uint32_t));
  }

  // The submission alone.
  double copies(sycl::queue &queue) {
    double sample = timed([&](int at) { copy(queue, at); });
    queue.wait();
    return sample;
  }

  double launches(sycl::queue &queue) {
    double sample = timed([&](int at) {
      queue.submit([&](sycl::handler &h) {
        h.set_args(target + at * elements, source + at * elements, uint32_t(at), uint32_t(~at));
        h.parallel_for(sycl::nd_range<1>(elements, elements), kernel);
      });
    });
    queue.wait();
    return sample;
  }

  double waits() {
    std::vector<sycl::event> events;
    for (int at = 0; at < calls; at++)
      events.push_back(copy(in_order, at));
    in_order.wait();
    return timed([&](int at) { events[at].wait(); });
  }
};

static double start() {
  auto begun = Clock::now();
  sycl::device device;
  double sample = std::chrono::duration<double, std::nano>(Clock::now() - begun).count();
  check_adapter();
  return sample;
}

int main(int count, char **arguments) {
  std::unique_ptr<Bench> made;
  auto bench = [&]() -> Bench & {
    if (!made)
      made = std::make_unique<Bench>(count > 1 ? arguments[1] : "");
    return *made;
  };
  std::map<std::string, std::function<double()>> measures{
      {"SYCL: start to the first device", start},
      {"SYCL: queue.memcpy, in-order", [&] { return bench().copies(bench().in_order); }},
      {"SYCL: queue.memcpy, out-of-order", [&] { return bench().copies(bench().out_of_order); }},
      {"SYCL: event.wait, finished", [&] { return bench().waits(); }},
      {"SYCL: launch with four arguments, in-order", [&] { return bench().launches(bench().in_order); }},
      {"SYCL: launch with four arguments, out-of-order", [&] { return bench().launches(bench().out_of_order); }},
  };
  for (std::string name; std::getline(std::cin, name);) {
    try {
      std::cout << measures.at(name)() << std::endl;
    } catch (const std::exception &error) {
      std::cout << error.what() << std::endl;
    }
  }
}
