/* The forms that C passes in its own ways: structs by value, unions, bool, enums and callbacks, through
 * the loader to the adapter of the environment. Prints "ok" and exits with 0, or prints the error and
 * exits with 1. */
#define _POSIX_C_SOURCE 200809L
#include "ur_api.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "abi_calls: %s\n", what);
    exit(1);
  }
}

static void check(ur_result_t result, const char *function) {
  if (result != UR_RESULT_SUCCESS) {
    fprintf(stderr, "abi_calls: %s returned %#x\n", function, (unsigned)result);
    exit(1);
  }
}

#define CALL(function, ...) check(function(__VA_ARGS__), #function)

static ur_adapter_handle_t adapter;
static ur_device_handle_t device;
static ur_context_handle_t context;
static ur_queue_handle_t queue;

static void set_up(void) {
  ur_platform_handle_t platform;
  ur_queue_properties_t properties = {UR_STRUCTURE_TYPE_QUEUE_PROPERTIES, NULL, UR_QUEUE_FLAG_PROFILING_ENABLE};
  CALL(urLoaderInit, 0, NULL);
  CALL(urAdapterGet, 1, &adapter, NULL);
  CALL(urPlatformGet, adapter, 1, &platform, NULL);
  CALL(urDeviceGet, platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL);
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, &properties, &queue);
}

static void tear_down(void) {
  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
}

/* Three structs of three 64-bit members each, by value in one call, with scalars on the stack. */
static void structs_by_value(void) {
  enum { PITCH = 16, ROWS = 8, SLICES = 4, SIZE = PITCH * ROWS * SLICES };
  uint8_t source[SIZE], target[SIZE];
  ur_rect_offset_t from = {3, 2, 1}, to = {5, 1, 2};
  ur_rect_region_t region = {7, 4, 2};
  ur_mem_handle_t buffer;
  int at, x, y, z;
  for (at = 0; at < SIZE; at++)
    source[at] = (uint8_t)(at * 7 + 1);
  memset(target, 0, sizeof target);
  CALL(urMemBufferCreate, context, UR_MEM_FLAG_READ_WRITE, SIZE, NULL, &buffer);
  CALL(urEnqueueMemBufferWrite, queue, buffer, true, 0, SIZE, source, 0, NULL, NULL);
  CALL(urEnqueueMemBufferReadRect, queue, buffer, true, from, to, region, PITCH, PITCH * ROWS, PITCH, PITCH * ROWS,
       target, 0, NULL, NULL);
  for (z = 0; z < SLICES; z++)
    for (y = 0; y < ROWS; y++)
      for (x = 0; x < PITCH; x++) {
        int inside = x >= 5 && x < 12 && y >= 1 && y < 5 && z >= 2 && z < 4;
        int want = inside ? source[((z - 1) * ROWS + y + 1) * PITCH + x - 2] : 0;
        require(target[(z * ROWS + y) * PITCH + x] == want, "a struct by value arrived wrong (read)");
      }
  memset(source, 0xee, sizeof source);
  CALL(urEnqueueMemBufferWriteRect, queue, buffer, true, from, to, region, PITCH, PITCH * ROWS, PITCH, PITCH * ROWS,
       source, 0, NULL, NULL);
  memset(target, 0, sizeof target);
  CALL(urEnqueueMemBufferRead, queue, buffer, true, 0, SIZE, target, 0, NULL, NULL);
  for (at = x = 0; at < SIZE; at++)
    x += target[at] == 0xee;
  require(x >= 7 * 4 * 2 && target[(1 * ROWS + 2) * PITCH + 3] == 0xee && target[(2 * ROWS + 5) * PITCH + 9] == 0xee,
          "a struct by value arrived wrong (write)");
  CALL(urMemRelease, buffer);
}

/* A union in a struct: the type of a partition, and its value. */
static void unions(void) {
  ur_device_partition_t ways[16];
  size_t size = 0, i;
  uint32_t units = 0, count = 0;
  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_SUPPORTED_PARTITIONS, 0, NULL, &size);
  require(size <= sizeof ways, "too many ways of splitting a device");
  if (size)
    CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_SUPPORTED_PARTITIONS, size, ways, NULL);
  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
  for (i = 0; i < size / sizeof *ways; i++) {
    ur_device_partition_property_t property = {.type = ways[i]};
    ur_device_partition_properties_t properties = {UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES, NULL, &property, 1};
    if (ways[i] == UR_DEVICE_PARTITION_EQUALLY)
      property.value.equally = 1;
    else if (ways[i] == UR_DEVICE_PARTITION_BY_COUNTS)
      property.value.count = units;
    else
      continue;
    CALL(urDevicePartition, device, &properties, 0, NULL, &count);
    require(count == (ways[i] == UR_DEVICE_PARTITION_EQUALLY ? units : 1), "a union arrived wrong");
  }
}

typedef struct seen {
  volatile int count;
  ur_event_handle_t event;
  ur_execution_info_t status;
} seen;

static void on_event(ur_event_handle_t event, ur_execution_info_t status, void *data) {
  seen *s = data;
  s->event = event;
  s->status = status;
  s->count++;
}

static void on_host(void *data) { *(uint32_t *)data += 5; }

static void on_log(ur_logger_level_t level, const char *message, void *data) {
  if (message && level <= UR_LOGGER_LEVEL_QUIET)
    ++*(int *)data;
}

static void on_context_end(void *data) { ++*(int *)data; }

static void callbacks(void) {
  static seen s;
  static int logged, ended;
  static uint32_t number = 37;
  ur_event_handle_t event;
  ur_context_handle_t other;
  ur_bool_t tasks = 0;
  int waited;
  CALL(urAdapterSetLoggerCallback, adapter, on_log, &logged, UR_LOGGER_LEVEL_DEBUG);
  CALL(urEnqueueEventsWait, queue, 0, NULL, &event);
  CALL(urEventSetCallback, event, UR_EXECUTION_INFO_COMPLETE, on_event, &s);
  CALL(urQueueFinish, queue);
  /* A callback may run slightly after the wait. */
  for (waited = 0; !s.count && waited < 10000; waited++)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  require(s.count == 1, "the event's callback did not run once");
  require(s.event == event && s.status == UR_EXECUTION_INFO_COMPLETE, "the event's callback got something else");
  CALL(urEventRelease, event);

  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP, sizeof tasks, &tasks, NULL);
  if (tasks) {
    CALL(urEnqueueHostTaskExp, queue, on_host, &number, NULL, 0, NULL, NULL);
    CALL(urQueueFinish, queue);
    require(number == 42, "the host task did not run once");
  }

  CALL(urContextCreate, 1, &device, NULL, &other);
  CALL(urContextSetExtendedDeleter, other, on_context_end, &ended);
  CALL(urContextRelease, other);
  require(ended == 1, "the context's deleter did not run once");
  CALL(urAdapterSetLoggerCallbackLevel, adapter, UR_LOGGER_LEVEL_QUIET);
}

/* A value outside an enumeration or a bool is refused with an error. */
static void values_that_are_none(void) {
  ur_event_handle_t event;
  size_t size;
  require(urDeviceGetInfo(device, (ur_device_info_t)0x7ffffffe, 0, NULL, &size) == UR_RESULT_ERROR_INVALID_ENUMERATION,
          "an unknown property was not refused");
  CALL(urEnqueueEventsWait, queue, 0, NULL, &event);
  require(urEventSetCallback(event, (ur_execution_info_t)77, on_event, NULL) == UR_RESULT_ERROR_INVALID_ENUMERATION,
          "an unknown state was not refused");
  CALL(urEventRelease, event);
  require(urEventWait(0, &event) == UR_RESULT_ERROR_INVALID_VALUE, "an empty wait was not refused");
  require(urQueueFinish(NULL) == UR_RESULT_ERROR_INVALID_NULL_HANDLE, "a null queue was not refused");
}

int main(void) {
  set_up();
  structs_by_value();
  unions();
  callbacks();
  values_that_are_none();
  tear_down();
  printf("ok: structs, unions, callbacks and refusals\n");
  return 0;
}
