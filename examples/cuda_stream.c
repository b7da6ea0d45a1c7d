/* Allocations on a CUDA stream of the caller's own, beside the caller's own CUDA calls.
 *
 *   cc cuda_stream.c $(pkg-config --cflags --libs libur_loader) -I$CUDA_HOME/include -lcuda -o cuda_stream
 *   ./cuda_stream
 *
 * Prints
 *   the stream is the queue's
 *   the data is right
 */
#include "common.h"

#include <cuda.h>

enum { BYTES = 1 << 20 };

static void driver(CUresult result, const char *call) {
  if (result != CUDA_SUCCESS) {
    fprintf(stderr, "%s returned %d\n", call, (int)result);
    exit(1);
  }
}

#define CUDA(function, ...) driver(function(__VA_ARGS__), #function)

int main(void) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device = first_device(UR_BACKEND_CUDA, &adapter);
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_native_handle_t native;
  CUcontext own;
  CUstream stream;
  void *memory;
  unsigned char *host;
  size_t i;

  /* The caller's context: the device's primary one, which the adapter uses too. */
  CALL(urDeviceGetNativeHandle, device, &native);
  CUDA(cuDevicePrimaryCtxRetain, &own, (CUdevice)native);
  CUDA(cuCtxSetCurrent, own);
  CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  host = malloc(BYTES);
  require(host != NULL, "out of memory");

  CALL(urContextCreate, 1, &device, NULL, &context);
  {
    ur_queue_native_properties_t properties = {.stype = UR_STRUCTURE_TYPE_QUEUE_NATIVE_PROPERTIES,
                                               .isNativeHandleOwned = false};
    CALL(urQueueCreateWithNativeHandle, (ur_native_handle_t)stream, context, device, &properties, &queue);
  }
  CALL(urQueueGetNativeHandle, queue, NULL, &native);
  require(native == (ur_native_handle_t)stream, "the queue has another stream");
  puts("the stream is the queue's");

  /* The allocation, the caller's own fill and copy, and the free are in the order of the stream. */
  CALL(urEnqueueUSMDeviceAllocExp, queue, NULL, BYTES, NULL, 0, NULL, &memory, NULL);
  CUDA(cuMemsetD8Async, (CUdeviceptr)memory, 5, BYTES, stream);
  CUDA(cuMemcpyDtoHAsync, host, (CUdeviceptr)memory, BYTES, stream);
  CALL(urEnqueueUSMFreeExp, queue, NULL, memory, 0, NULL, NULL);
  CUDA(cuStreamSynchronize, stream);
  for (i = 0; i < BYTES; i++)
    require(host[i] == 5, "the data is wrong");
  puts("the data is right");

  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CUDA(cuStreamDestroy, stream);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  free(host);
  return 0;
}
