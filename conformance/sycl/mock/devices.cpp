// A SYCL program's view of the mock adapter, behind Intel's own runtime: its device, memory and commands.
//
// With UR_MOCK_SCRIPT set, it expects a device of another name and a copy that fails.
//
//   devices [NAME]
//
// NAME is the expected device. A program with a NAME expects the copy's error as well.
#include <iostream>
#include <string>
#include <sycl/sycl.hpp>

static int failed(const std::string &what) {
  std::cerr << "devices: " << what << "\n";
  return 1;
}

int main(int argc, char **argv) {
  const std::string expected = argc > 1 ? argv[1] : "Mock Device";
  const bool scripted = argc > 1;
  sycl::queue queue;
  const auto name = queue.get_device().get_info<sycl::info::device::name>();
  if (name != expected)
    return failed("the device is called " + name);
  if (!queue.get_device().has(sycl::aspect::usm_shared_allocations))
    return failed("no shared allocations");

  int *memory = sycl::malloc_shared<int>(16, queue);
  if (!memory)
    return failed("no memory");
  memory[15] = 1;
  queue.memset(memory, 0, 64).wait_and_throw();
  bool refused = false;
  try {
    queue.memcpy(memory, memory + 8, 32).wait_and_throw();
  } catch (const sycl::exception &error) {
    refused = std::string(error.what()).find("DEVICE_LOST") != std::string::npos;
  }
  sycl::free(memory, queue);
  if (refused != scripted)
    return failed(refused ? "the copy failed" : "the copy did not fail");
  std::cout << "ok " << name << "\n";
  return 0;
}
