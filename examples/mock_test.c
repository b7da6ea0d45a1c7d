/* How a consumer tests its own code against errors, without any device: the mock and a script.
 *
 *   cc mock_test.c $(pkg-config --cflags --libs libur_loader) -o mock_test && ./mock_test
 *
 * Prints
 *   the copy was tried again: 2 calls of urEnqueueUSMMemcpy
 *   no handle is left
 */
#include "common.h"
#include "ur_mock.h"

/* The code under test: a copy that is tried again once if the device is short of resources. */
static ur_result_t copy(ur_queue_handle_t queue, void *to, const void *from, size_t size) {
  ur_result_t result = urEnqueueUSMMemcpy(queue, true, to, from, size, 0, NULL, NULL);
  if (result == UR_RESULT_ERROR_OUT_OF_RESOURCES) {
    urQueueFinish(queue);
    result = urEnqueueUSMMemcpy(queue, true, to, from, size, 0, NULL, NULL);
  }
  return result;
}

int main(void) {
  ur_loader_config_handle_t config;
  ur_adapter_handle_t adapter;
  ur_platform_handle_t platform;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  const ur_mock_api_t *mock = NULL;
  uint64_t calls = 0, live = 0;
  char from[64] = "data", to[64];

  CALL(urLoaderConfigCreate, &config);
  CALL(urLoaderConfigSetMockingEnabled, config, true);
  CALL(urLoaderInit, 0, config);
  CALL(urLoaderConfigRelease, config);
  CALL(urMockGet, &mock);

  CALL(urAdapterGet, 1, &adapter, NULL);
  CALL(urPlatformGet, adapter, 1, &platform, NULL);
  CALL(urDeviceGet, platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL);
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &queue);

  CALL(mock->setScript, "urEnqueueUSMMemcpy@1: error OUT_OF_RESOURCES", NULL);
  check(copy(queue, to, from, sizeof from), "copy");
  CALL(mock->getCalls, "urEnqueueUSMMemcpy", &calls);
  require(calls == 2, "the copy was not tried again");
  printf("the copy was tried again: %u calls of urEnqueueUSMMemcpy\n", (unsigned)calls);

  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(mock->getLiveHandles, "ur_queue_handle_t", &live);
  require(live == 0, "a queue is left");
  puts("no handle is left");
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}
