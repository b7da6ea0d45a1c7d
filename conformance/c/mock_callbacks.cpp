// The mock's callbacks as C++ tests set them: include/ur_mock.hpp. Prints "ok" and exits with 0.
#include "ur_mock.hpp"

#include <cstdio>
#include <cstdlib>

static int calls = 0;
static std::size_t seen = 0;

static ur_result_t before(void *pParams) {
  calls++;
  seen = *static_cast<ur_usm_device_alloc_params_t *>(pParams)->psize;
  return UR_RESULT_SUCCESS;
}

static ur_result_t instead(void *pParams) {
  **static_cast<ur_usm_device_alloc_params_t *>(pParams)->pppMem = &calls;
  return UR_RESULT_SUCCESS;
}

static ur_result_t after(void *) { return UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY; }

static void check(bool holds, const char *what) {
  if (!holds) {
    std::fprintf(stderr, "mock_callbacks: %s\n", what);
    std::exit(1);
  }
}

int main() {
  ur_loader_config_handle_t config;
  check(urLoaderConfigCreate(&config) == UR_RESULT_SUCCESS, "config");
  check(urLoaderConfigSetMockingEnabled(config, true) == UR_RESULT_SUCCESS, "mocking");
  check(urLoaderInit(0, config) == UR_RESULT_SUCCESS, "init");
  urLoaderConfigRelease(config);

  auto &callbacks = mock::getCallbacks();
  const char *name = "urUSMDeviceAlloc";
  callbacks.set_before_callback(name, before);
  callbacks.set_replace_callback(name, &instead);
  void *memory = nullptr;
  // Handles may be made up: only the mock is loaded, and it does not access them.
  auto context = reinterpret_cast<ur_context_handle_t>(0x10);
  auto device = reinterpret_cast<ur_device_handle_t>(0x20);
  ur_result_t result = urUSMDeviceAlloc(context, device, nullptr, nullptr, 77, &memory);
  check(result == UR_RESULT_SUCCESS && calls == 1 && seen == 77 && memory == &calls, "before and replace");
  callbacks.set_after_callback(name, after);
  result = urUSMDeviceAlloc(context, device, nullptr, nullptr, 1, &memory);
  check(result == UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "after");
  check(urContextRelease(context) == UR_RESULT_ERROR_INVALID_CONTEXT, "a made-up handle is unknown");
  callbacks.resetCallbacks();
  check(urUSMDeviceAlloc(context, device, nullptr, nullptr, 1, &memory) == UR_RESULT_SUCCESS, "reset");
  check(calls == 2 && urUSMFree(context, memory) == UR_RESULT_SUCCESS, "free");
  try {
    callbacks.set_before_callback("urNothing", before);
    check(false, "a name that no function has");
  } catch (const std::invalid_argument &) {
  }
  check(urLoaderTearDown() == UR_RESULT_SUCCESS, "teardown");
  std::puts("ok");
  return 0;
}
