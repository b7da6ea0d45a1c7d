/* Runs a kernel from SPIR-V on an OpenCL device, in memory that is allocated and freed in the queue's order.
 *
 *   ur-conformance --write-kernels kernels.spv
 *   cc spirv.c $(pkg-config --cflags --libs libur_loader) -o spirv && ./spirv kernels.spv
 *
 * The kernel is iota(uint32_t *out, uint32_t base): out[i] = base + i. Prints
 *   iota of 1024 is right
 */
#include "common.h"

#include <string.h>

enum { COUNT = 1024 };

static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  char *bytes = NULL;
  long end = 0;
  require(file != NULL, "no such file; see the head of this example");
  require(fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) > 0, "the file is empty");
  rewind(file);
  bytes = malloc((size_t)end);
  require(bytes != NULL && fread(bytes, 1, (size_t)end, file) == (size_t)end, "the file cannot be read");
  fclose(file);
  *size = (size_t)end;
  return bytes;
}

static int takes_spirv(ur_device_handle_t device) {
  char versions[256] = "";
  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_IL_VERSION, sizeof versions, versions, NULL);
  return strstr(versions, "SPIR-V") != NULL;
}

int main(int argc, char **argv) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_program_handle_t program;
  ur_kernel_handle_t kernel;
  size_t size, global = COUNT;
  void *il, *memory;
  uint32_t host[COUNT], base = 100, i;

  il = read_file(argc > 1 ? argv[1] : "kernels.spv", &size);
  device = first_device(UR_BACKEND_OPENCL, &adapter);
  if (!takes_spirv(device)) {
    fprintf(stderr, "skipped: the device takes no SPIR-V\n");
    return 77;
  }
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &queue);
  CALL(urProgramCreateWithIL, context, il, size, NULL, &program);
  if (urProgramBuild(context, program, "") != UR_RESULT_SUCCESS) {
    char log[4096] = "";
    urProgramGetBuildInfo(program, device, UR_PROGRAM_BUILD_INFO_LOG, sizeof log, log, NULL);
    fprintf(stderr, "%s\n", log);
    return 1;
  }
  CALL(urKernelCreate, program, "iota", &kernel);

  CALL(urEnqueueUSMDeviceAllocExp, queue, NULL, sizeof host, NULL, 0, NULL, &memory, NULL);
  {
    ur_exp_kernel_arg_properties_t args[2] = {{.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_POINTER,
                                               .index = 0,
                                               .size = sizeof memory,
                                               .value = {.pointer = memory}},
                                              {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_VALUE,
                                               .index = 1,
                                               .size = sizeof base,
                                               .value = {.value = &base}}};
    CALL(urEnqueueKernelLaunchWithArgsExp, queue, kernel, 1, NULL, &global, NULL, 2, args, NULL, 0, NULL, NULL);
  }
  CALL(urEnqueueUSMMemcpy, queue, false, host, memory, sizeof host, 0, NULL, NULL);
  CALL(urEnqueueUSMFreeExp, queue, NULL, memory, 0, NULL, NULL);
  CALL(urQueueFinish, queue);
  for (i = 0; i < COUNT; i++)
    require(host[i] == base + i, "a number is wrong");
  printf("iota of %d is right\n", COUNT);

  CALL(urKernelRelease, kernel);
  CALL(urProgramRelease, program);
  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  free(il);
  return 0;
}
