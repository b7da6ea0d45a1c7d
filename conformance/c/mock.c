/* The mock adapter as the author of a test uses it, with include/ur_mock.h alone.
 *
 *   mock [forced]
 *
 * Enables mocking and initialises the loader. With `forced` the environment loads the mock instead
 * (UR_ADAPTERS_FORCE_LOAD), as a loader that does not look for it needs. Prints "ok" and exits with 0, or
 * prints the error and exits with 1.
 */
#include "ur_mock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "mock: line %d: %s\n", __LINE__, #condition);            \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#define OK(call) CHECK((call) == UR_RESULT_SUCCESS)

static const ur_mock_api_t *mock;
static ur_context_handle_t context;
static ur_device_handle_t device;

/* The callbacks that ran, in order, one letter for each. */
static char trace[16];

static void append(char letter) {
  size_t length = strlen(trace);
  CHECK(length + 1 < sizeof trace);
  trace[length] = letter;
  trace[length + 1] = 0;
}

static ur_result_t note(void *params, void *letter) {
  CHECK(params != NULL);
  append(*(const char *)letter);
  return UR_RESULT_SUCCESS;
}

static ur_result_t refuse(void *params, void *result) {
  (void)params;
  append('!');
  return *(ur_result_t *)result;
}

static ur_result_t create(ur_queue_handle_t *queue) {
  trace[0] = 0;
  return urQueueCreate(context, device, NULL, queue);
}

static void callbacks_run_in_order(void) {
  ur_queue_handle_t queue = NULL;
  OK(mock->setCallback("urQueueCreate", UR_MOCK_BEFORE, note, "b"));
  OK(mock->setCallback("urQueueCreate", UR_MOCK_AFTER, note, "a"));
  OK(create(&queue));
  CHECK(!strcmp(trace, "ba") && queue != NULL);
  OK(urQueueRelease(queue));

  /* A replacement suppresses the mock's answer, so no output is written. */
  queue = NULL;
  OK(mock->setCallback("urQueueCreate", UR_MOCK_REPLACE, note, "r"));
  OK(create(&queue));
  CHECK(!strcmp(trace, "bra") && queue == NULL);

  ur_result_t lost = UR_RESULT_ERROR_DEVICE_LOST, full = UR_RESULT_ERROR_OUT_OF_RESOURCES;
  OK(mock->setCallback("urQueueCreate", UR_MOCK_AFTER, refuse, &full));
  CHECK(create(&queue) == full && !strcmp(trace, "br!"));
  OK(mock->setCallback("urQueueCreate", UR_MOCK_REPLACE, refuse, &lost));
  CHECK(create(&queue) == lost && !strcmp(trace, "b!"));
  OK(mock->setCallback("urQueueCreate", UR_MOCK_BEFORE, refuse, &full));
  CHECK(create(&queue) == full && !strcmp(trace, "!"));

  /* Other functions keep their answers, and all callbacks can be removed. */
  OK(urContextRetain(context));
  OK(urContextRelease(context));
  OK(mock->setCallback("urQueueCreate", UR_MOCK_BEFORE, NULL, NULL));
  CHECK(create(&queue) == lost);
  OK(mock->reset());
  OK(create(&queue));
  CHECK(trace[0] == 0);
  OK(urQueueRelease(queue));
  CHECK(mock->setCallback("urQueueCreated", UR_MOCK_BEFORE, note, "x") == UR_RESULT_ERROR_INVALID_VALUE);
  CHECK(mock->setCallback("urQueueCreate", (ur_mock_when_t)3, note, "x") ==
        UR_RESULT_ERROR_INVALID_ENUMERATION);
}

static int made_up[4];

/* Reads and changes arguments, writes outputs, and calls the interface. */
static ur_result_t give_made_up(void *pParams, void *data) {
  ur_kernel_create_params_t *params = pParams;
  CHECK(!strcmp(**(const char *const *const *)&params->ppKernelName, "kernel"));
  OK(urDeviceRetain(device));
  OK(urDeviceRelease(device));
  **params->pphKernel = (ur_kernel_handle_t)data;
  return UR_RESULT_SUCCESS;
}

static ur_result_t shrink(void *pParams, void *data) {
  ur_usm_host_alloc_params_t *params = pParams;
  (void)data;
  *params->psize = 16;
  return UR_RESULT_SUCCESS;
}

static size_t size_of(void *memory) {
  size_t size = 0;
  OK(urUSMGetMemAllocInfo(context, memory, UR_USM_ALLOC_INFO_SIZE, sizeof size, &size, NULL));
  return size;
}

static void arguments_can_be_read_and_changed(void) {
  ur_program_handle_t program = NULL;
  ur_kernel_handle_t kernel = NULL;
  OK(urProgramCreateWithIL(context, "", 1, NULL, &program));
  OK(mock->setCallback("urKernelCreate", UR_MOCK_REPLACE, give_made_up, made_up));
  OK(urKernelCreate(program, "kernel", &kernel));
  CHECK(kernel == (ur_kernel_handle_t)(void *)made_up);
  OK(urProgramRelease(program));
  CHECK(urProgramRelease(program) == UR_RESULT_ERROR_INVALID_PROGRAM);

  void *memory = NULL;
  OK(mock->setCallback("urUSMHostAlloc", UR_MOCK_BEFORE, shrink, NULL));
  OK(urUSMHostAlloc(context, NULL, NULL, 4096, &memory));
  CHECK(size_of(memory) == 16);
  OK(urUSMFree(context, memory));
  CHECK(urUSMFree(context, memory) != UR_RESULT_SUCCESS);
  OK(mock->reset());
}

static void scripts_fail_calls_and_change_the_device(void) {
  const char *reason = NULL;
  CHECK(mock->setScript("urFoo: error UNKNOWN", &reason) == UR_RESULT_ERROR_INVALID_VALUE);
  CHECK(reason && strstr(reason, "line 1") && strstr(reason, "urFoo"));

  OK(mock->setScript("urQueueCreate@2: error OUT_OF_RESOURCES; UR_DEVICE_INFO_MAX_COMPUTE_UNITS = 3\n"
                     "UR_DEVICE_INFO_UUID = none",
                     NULL));
  ur_queue_handle_t first = NULL, second = NULL;
  OK(create(&first));
  CHECK(create(&second) == UR_RESULT_ERROR_OUT_OF_RESOURCES && second == NULL);
  OK(create(&second));
  OK(urQueueRelease(first));
  OK(urQueueRelease(second));
  uint32_t units = 0;
  OK(urDeviceGetInfo(device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
  CHECK(units == 3);
  size_t size = 0;
  CHECK(urDeviceGetInfo(device, UR_DEVICE_INFO_UUID, 0, NULL, &size) ==
        UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  OK(mock->reset());
  OK(urDeviceGetInfo(device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
  CHECK(units == 8);
}

static void calls_and_handles_are_counted(void) {
  uint64_t calls = 0, before = 0, after = 0;
  ur_queue_handle_t queue;
  ur_event_handle_t event = NULL;
  ur_context_handle_t of = NULL;
  OK(mock->reset());
  OK(mock->getLiveHandles("ur_queue_handle_t", &before));
  OK(create(&queue));
  OK(urQueueRetain(queue));
  OK(mock->getCalls("urQueueCreate", &calls));
  OK(mock->getLiveHandles("ur_queue_handle_t", &after));
  CHECK(calls == 1 && after == before + 1);
  uint32_t references = 0;
  OK(urQueueGetInfo(queue, UR_QUEUE_INFO_REFERENCE_COUNT, sizeof references, &references, NULL));
  CHECK(references == 2);
  OK(urQueueGetInfo(queue, UR_QUEUE_INFO_CONTEXT, sizeof of, &of, NULL));
  CHECK(of == context);

  /* An event keeps its queue until the event's last reference is released. */
  OK(urEnqueueEventsWait(queue, 0, NULL, &event));
  OK(urQueueRelease(queue));
  OK(urQueueRelease(queue));
  OK(mock->getLiveHandles("ur_queue_handle_t", &after));
  CHECK(after == before);
  ur_command_t command = UR_COMMAND_KERNEL_LAUNCH;
  OK(urEventGetInfo(event, UR_EVENT_INFO_COMMAND_TYPE, sizeof command, &command, NULL));
  CHECK(command == UR_COMMAND_EVENTS_WAIT);
  OK(urEventWait(1, &event));
  OK(urEventRelease(event));
  CHECK(mock->getCalls("urFoo", &calls) == UR_RESULT_ERROR_INVALID_VALUE);
  CHECK(mock->getLiveHandles("ur_foo_handle_t", &calls) == UR_RESULT_ERROR_INVALID_VALUE);
}

enum { THREADS = 4, ROUNDS = 2000 };

static ur_result_t count(void *params, void *data) {
  (void)params;
  __atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
  return UR_RESULT_SUCCESS;
}

static void *work(void *data) {
  for (int round = 0; round < ROUNDS; round++) {
    ur_queue_handle_t queue;
    void *memory = NULL;
    OK(urQueueCreate(context, device, NULL, &queue));
    OK(urUSMDeviceAlloc(context, device, NULL, NULL, 64, &memory));
    OK(urUSMFree(context, memory));
    OK(urQueueRelease(queue));
    /* Callbacks are set and removed meanwhile. */
    OK(mock->setCallback("urQueueFinish", UR_MOCK_AFTER, round % 2 ? count : NULL, data));
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];
  int before = 0;
  uint64_t calls = 0, live = 1, queues = 0;
  OK(mock->reset());
  OK(mock->getLiveHandles("ur_queue_handle_t", &queues));
  OK(mock->setCallback("urQueueCreate", UR_MOCK_BEFORE, count, &before));
  for (int at = 0; at < THREADS; at++)
    CHECK(!pthread_create(&all[at], NULL, work, &before));
  for (int at = 0; at < THREADS; at++)
    CHECK(!pthread_join(all[at], NULL));
  OK(mock->getCalls("urQueueCreate", &calls));
  OK(mock->getLiveHandles("ur_queue_handle_t", &live));
  CHECK(before == THREADS * ROUNDS && calls == THREADS * ROUNDS && live == queues);
  OK(mock->reset());
}

int main(int argc, char **argv) {
  int forced = argc > 1 && !strcmp(argv[1], "forced");
  ur_loader_config_handle_t config;
  OK(urLoaderConfigCreate(&config));
  if (!forced)
    OK(urLoaderConfigSetMockingEnabled(config, true));
  OK(urLoaderInit(0, config));
  OK(urLoaderConfigRelease(config));
  OK(urMockGet(&mock));
  CHECK(mock->version == 1);

  ur_adapter_handle_t adapter = NULL;
  ur_platform_handle_t platform = NULL;
  uint32_t adapters = 0;
  OK(urAdapterGet(1, &adapter, &adapters));
  CHECK(forced || adapters == 1);
  OK(urPlatformGet(adapter, 1, &platform, NULL));
  OK(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL));
  OK(urContextCreate(1, &device, NULL, &context));

  callbacks_run_in_order();
  arguments_can_be_read_and_changed();
  scripts_fail_calls_and_change_the_device();
  calls_and_handles_are_counted();
  threads();

  OK(urContextRelease(context));
  OK(urDeviceRelease(device));
  OK(urAdapterRelease(adapter));
  OK(urLoaderTearDown());
  puts("ok");
  return 0;
}
