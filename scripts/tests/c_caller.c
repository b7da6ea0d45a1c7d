// A C caller for c_caller.rs: what crosses the boundary by value, in both directions. It is built
// against include/ and knows nothing of Rust; the Rust side checks what arrives.
#include "unified-runtime/ur_ddi.h"
#include <string.h>

#define HANDLE(type, number) ((type)(uintptr_t)(number))

// Three structs of 24 bytes by value, between handles, a bool, sizes and pointers.
ur_result_t c_read_rect(ur_pfnEnqueueMemBufferReadRect_t read, ur_event_handle_t *event) {
  const ur_rect_offset_t buffer = {1, 2, 3};
  const ur_rect_offset_t host = {4, 5, 6};
  const ur_rect_region_t region = {7, 8, 9};
  const ur_event_handle_t waits[2] = {HANDLE(ur_event_handle_t, 0x31), HANDLE(ur_event_handle_t, 0x32)};
  return read(HANDLE(ur_queue_handle_t, 0x10), HANDLE(ur_mem_handle_t, 0x20), true, buffer, host, region, 10, 11,
              12, 13, event, 2, waits, event);
}

// A union in a list of structs, each member in turn.
ur_result_t c_launch(ur_pfnEnqueueKernelLaunchWithArgsExp_t launch, const void *value, const void *pointer) {
  const size_t offset[2] = {1, 2}, global[2] = {64, 32}, local[2] = {8, 4};
  ur_exp_kernel_arg_properties_t args[5];
  memset(args, 0, sizeof(args));
  for (uint32_t at = 0; at < 5; at++) {
    args[at].stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES;
    args[at].index = at;
    args[at].size = 8 + at;
  }
  args[0].type = UR_EXP_KERNEL_ARG_TYPE_VALUE;
  args[0].value.value = value;
  args[1].type = UR_EXP_KERNEL_ARG_TYPE_POINTER;
  args[1].value.pointer = pointer;
  args[2].type = UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ;
  args[2].value.memObjTuple.hMem = HANDLE(ur_mem_handle_t, 0x40);
  args[2].value.memObjTuple.flags = UR_MEM_FLAG_READ_ONLY | UR_MEM_FLAG_READ_WRITE;
  args[3].type = UR_EXP_KERNEL_ARG_TYPE_LOCAL;
  args[4].type = UR_EXP_KERNEL_ARG_TYPE_SAMPLER;
  args[4].value.sampler = HANDLE(ur_sampler_handle_t, 0x50);
  return launch(HANDLE(ur_queue_handle_t, 0x10), HANDLE(ur_kernel_handle_t, 0x60), 2, offset, global, local, 5, args,
                NULL, 0, NULL, NULL);
}

// A union of 4 bytes in a list, behind a struct of options.
ur_result_t c_partition(ur_pfnDevicePartition_t partition) {
  ur_device_partition_property_t list[2];
  list[0].type = UR_DEVICE_PARTITION_BY_COUNTS;
  list[0].value.count = 3;
  list[1].type = UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
  list[1].value.affinity_domain = UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA;
  const ur_device_partition_properties_t options = {UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES, NULL, list, 2};
  uint32_t found = 0;
  const ur_result_t result = partition(HANDLE(ur_device_handle_t, 0x70), &options, 0, NULL, &found);
  return result == UR_RESULT_SUCCESS && found != 2 ? UR_RESULT_ERROR_UNKNOWN : result;
}

// A callback that returns a struct of 24 bytes by value.
ur_code_location_t c_location(void *data) {
  ur_code_location_t location = {"main", "program.c", 40, 2};
  location.lineNumber += *(uint32_t *)data;
  return location;
}

// Callbacks that get enums by value and write down what they saw.
void c_event(ur_event_handle_t event, ur_execution_info_t status, void *data) {
  uint64_t *seen = (uint64_t *)data;
  seen[0] = (uint64_t)(uintptr_t)event;
  seen[1] = (uint64_t)status;
}

void c_log(ur_logger_level_t level, const char *message, void *data) {
  uint64_t *seen = (uint64_t *)data;
  seen[0] = (uint64_t)level;
  seen[1] = (uint64_t)strlen(message);
}

// The callbacks' types are the headers' own.
const ur_code_location_callback_t c_location_callback = c_location;
const ur_event_callback_t c_event_callback = c_event;
const ur_logger_callback_t c_logger_callback = c_log;
