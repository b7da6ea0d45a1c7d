/* Runs a kernel from a shared object on native_cpu.
 *
 *   cc -O2 -shared -fPIC kernels.c -o kernels.so
 *   cc kernel_so.c $(pkg-config --cflags --libs libur_loader) -o kernel_so && ./kernel_so ./kernels.so
 *
 * Prints
 *   squares of 0 to 1023 are right
 *   a launch without the last argument is refused
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "common.h"

#include <string.h>

enum { COUNT = 1024 };

int main(int argc, char **argv) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_program_handle_t program;
  ur_kernel_handle_t kernel;
  char *path = realpath(argc > 1 ? argv[1] : "kernels.so", NULL);
  const uint8_t *binary = (const uint8_t *)path;
  size_t size, global = COUNT;
  uint32_t *out, add = 7, i;
  ur_result_t refused;

  require(path != NULL, "no such file; kernels.c says how to make it");
  size = strlen(path);
  device = first_device(UR_BACKEND_NATIVE_CPU, &adapter);
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &queue);
  /* The binary is the file's absolute path; its bytes would do too. */
  CALL(urProgramCreateWithBinary, context, 1, &device, &size, &binary, NULL, &program);
  free(path);
  CALL(urProgramBuild, context, program, NULL);
  CALL(urKernelCreate, program, "squares", &kernel);
  CALL(urUSMSharedAlloc, context, device, NULL, NULL, COUNT * sizeof *out, (void **)&out);

  {
    ur_exp_kernel_arg_properties_t args[2] = {{.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_POINTER,
                                               .index = 0,
                                               .size = sizeof out,
                                               .value = {.pointer = out}},
                                              {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_VALUE,
                                               .index = 1,
                                               .size = sizeof add,
                                               .value = {.value = &add}}};
    CALL(urEnqueueKernelLaunchWithArgsExp, queue, kernel, 1, NULL, &global, NULL, 2, args, NULL, 0, NULL, NULL);
    refused = urEnqueueKernelLaunchWithArgsExp(queue, kernel, 1, NULL, &global, NULL, 1, args, NULL, 0, NULL, NULL);
  }
  CALL(urQueueFinish, queue);
  for (i = 0; i < COUNT; i++)
    require(out[i] == i * i + add, "a square is wrong");
  printf("squares of 0 to %d are right\n", COUNT - 1);
  /* kernels.c says how many arguments the kernel takes. */
  require(refused == UR_RESULT_ERROR_INVALID_KERNEL_ARGS, "a launch without an argument was not refused");
  printf("a launch without the last argument is refused\n");

  CALL(urUSMFree, context, out);
  CALL(urKernelRelease, kernel);
  CALL(urProgramRelease, program);
  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}
