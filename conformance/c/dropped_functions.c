/* The six functions that the reference dropped after 2026.1 and that libsycl of 2026.1 still calls: those
 * that set a kernel's arguments one by one, and the launch that uses them. The loader keeps them, and no
 * header declares them. Prints "ok" and exits with 0, or prints the error and exits with 1. The kernels
 * are for the native CPU, as in examples/async_alloc.c. */
#include "ur_api.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

ur_result_t urKernelSetArgValue(ur_kernel_handle_t kernel, uint32_t index, size_t size,
                                const ur_kernel_arg_value_properties_t *properties, const void *value);
ur_result_t urKernelSetArgPointer(ur_kernel_handle_t kernel, uint32_t index,
                                  const ur_kernel_arg_pointer_properties_t *properties, const void *pointer);
ur_result_t urKernelSetArgLocal(ur_kernel_handle_t kernel, uint32_t index, size_t size,
                                const ur_kernel_arg_local_properties_t *properties);
ur_result_t urKernelSetArgMemObj(ur_kernel_handle_t kernel, uint32_t index,
                                 const ur_kernel_arg_mem_obj_properties_t *properties, ur_mem_handle_t memory);
ur_result_t urKernelSetArgSampler(ur_kernel_handle_t kernel, uint32_t index,
                                  const ur_kernel_arg_sampler_properties_t *properties, ur_sampler_handle_t sampler);
ur_result_t urEnqueueKernelLaunch(ur_queue_handle_t queue, ur_kernel_handle_t kernel, uint32_t dimensions,
                                  const size_t *offset, const size_t *global, const size_t *local,
                                  const ur_kernel_launch_ext_properties_t *properties, uint32_t count,
                                  const ur_event_handle_t *list, ur_event_handle_t *event);

enum { COUNT = 4096, GROUP = 16 };

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "dropped_functions: %s\n", what);
    exit(1);
  }
}

static void check(ur_result_t result, const char *function) {
  if (result != UR_RESULT_SUCCESS) {
    fprintf(stderr, "dropped_functions: %s returned %#x\n", function, (unsigned)result);
    exit(1);
  }
}

#define CALL(function, ...) check(function(__VA_ARGS__), #function)

typedef struct native_cpu_state {
  size_t global_id[3], global_range[3], group_size[3], group_id[3], local_id[3], groups[3], offset[3];
  uint32_t sub_groups, sub_group_id, sub_group_local_id, sub_group_size;
} native_cpu_state;

typedef struct native_cpu_entry {
  const char *name;
  void (*kernel)(void *const *args, native_cpu_state *state);
} native_cpu_entry;

/* mix(uint32_t *out, const uint32_t *in, uint32_t add, local uint32_t *scratch):
 * out[i] = in[i] + add, by way of the scratch memory */
static void mix(void *const *args, native_cpu_state *state) {
  size_t i = state->global_id[0];
  uint32_t *scratch = (uint32_t *)args[3] + state->local_id[0];
  *scratch = ((const uint32_t *)args[1])[i] + *(const uint32_t *)args[2];
  ((uint32_t *)args[0])[i] = *scratch;
}

static const native_cpu_entry kernels[] = {{"mix", mix}, {NULL, NULL}};

int main(void) {
  ur_adapter_handle_t adapter;
  ur_platform_handle_t platform;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_program_handle_t program;
  ur_kernel_handle_t kernel;
  ur_mem_handle_t buffer;
  ur_event_handle_t first, second;
  const uint8_t *binary = (const uint8_t *)kernels;
  size_t size = sizeof kernels, global = COUNT, local = GROUP;
  uint32_t *out, input[COUNT], add = 1000, i;
  void *memory;
  CALL(urLoaderInit, 0, NULL);
  CALL(urAdapterGet, 1, &adapter, NULL);
  CALL(urPlatformGet, adapter, 1, &platform, NULL);
  CALL(urDeviceGet, platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL);
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &queue);
  CALL(urProgramCreateWithBinary, context, 1, &device, &size, &binary, NULL, &program);
  CALL(urProgramBuild, context, program, NULL);
  CALL(urKernelCreate, program, "mix", &kernel);
  CALL(urUSMSharedAlloc, context, device, NULL, NULL, sizeof input, &memory);
  CALL(urMemBufferCreate, context, UR_MEM_FLAG_READ_WRITE, sizeof input, NULL, &buffer);
  for (i = 0; i < COUNT; i++)
    input[i] = i * 3;
  CALL(urEnqueueMemBufferWrite, queue, buffer, true, 0, sizeof input, input, 0, NULL, NULL);

  CALL(urKernelSetArgPointer, kernel, 0, NULL, memory);
  CALL(urKernelSetArgMemObj, kernel, 1, NULL, buffer);
  CALL(urKernelSetArgValue, kernel, 2, sizeof add, NULL, &add);
  CALL(urKernelSetArgLocal, kernel, 3, GROUP * sizeof(uint32_t), NULL);
  CALL(urEnqueueKernelLaunch, queue, kernel, 1, NULL, &global, &local, NULL, 0, NULL, &first);
  /* The call copied the value. The next launch uses the value that is set then. */
  add = 7;
  CALL(urEventWait, 1, &first);
  out = memory;
  for (i = 0; i < COUNT; i++)
    require(out[i] == i * 3 + 1000, "the first launch computed something else");
  CALL(urKernelSetArgValue, kernel, 2, sizeof add, NULL, &add);
  CALL(urEnqueueKernelLaunch, queue, kernel, 1, NULL, &global, &local, NULL, 1, &first, &second);
  CALL(urEventWait, 1, &second);
  for (i = 0; i < COUNT; i++)
    require(out[i] == i * 3 + 7, "the second launch computed something else");

  require(urKernelSetArgSampler(kernel, 0, NULL, NULL) == UR_RESULT_ERROR_INVALID_NULL_HANDLE,
          "a null sampler was not refused");
  require(urKernelSetArgValue(NULL, 0, sizeof add, NULL, &add) == UR_RESULT_ERROR_INVALID_NULL_HANDLE,
          "a null kernel was not refused");
  require(urKernelSetArgValue(kernel, 0, sizeof add, NULL, NULL) == UR_RESULT_ERROR_INVALID_NULL_POINTER,
          "a null value was not refused");
  require(urEnqueueKernelLaunch(NULL, kernel, 1, NULL, &global, NULL, NULL, 0, NULL, NULL) ==
              UR_RESULT_ERROR_INVALID_NULL_HANDLE,
          "a null queue was not refused");

  CALL(urEventRelease, first);
  CALL(urEventRelease, second);
  CALL(urMemRelease, buffer);
  CALL(urUSMFree, context, memory);
  CALL(urKernelRelease, kernel);
  CALL(urProgramRelease, program);
  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  printf("ok: arguments set one by one, and two launches\n");
  return 0;
}
