/* Allocations between a program's own CUDA kernels, on its own streams.
 *
 *   nvcc cuda_kernel.cu -I$UR/include -L$UR/lib -lur_loader -o cuda_kernel
 *   ./cuda_kernel
 *
 * Prints
 *   one stream: the same memory 10 times, and the data is right
 *   two streams: ... different addresses in 10 rounds, and the data is right
 */
#include "common.h"

#include <cuda_runtime.h>

enum { COUNT = 1 << 20, ROUNDS = 10, THREADS = 256 };

static void runtime(cudaError_t result, const char *call) {
  if (result != cudaSuccess) {
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
    exit(1);
  }
}

#define CUDA(function, ...) runtime(function(__VA_ARGS__), #function)

__global__ void fill(int *values, int value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < COUNT)
    values[i] = value + i;
}

/* Counts wrong values, so that a result need not be copied whole. */
__global__ void compare(const int *values, int value, int *wrong) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < COUNT && values[i] != value + i)
    atomicAdd(wrong, 1);
}

/* A caller's stream, and the queue that was made of it. */
struct Stream {
  cudaStream_t stream;
  ur_queue_handle_t queue;
};

static Stream make(ur_context_handle_t context, ur_device_handle_t device) {
  Stream made = {};
  ur_queue_native_properties_t properties = {};
  properties.stype = UR_STRUCTURE_TYPE_QUEUE_NATIVE_PROPERTIES;
  CUDA(cudaStreamCreateWithFlags, &made.stream, cudaStreamNonBlocking);
  CALL(urQueueCreateWithNativeHandle, (ur_native_handle_t)made.stream, context, device, &properties, &made.queue);
  return made;
}

static void destroy(Stream made) {
  CALL(urQueueFinish, made.queue);
  CALL(urQueueRelease, made.queue);
  CUDA(cudaStreamDestroy, made.stream);
}

static int *alloc(Stream on) {
  void *memory;
  CALL(urEnqueueUSMDeviceAllocExp, on.queue, NULL, COUNT * sizeof(int), NULL, 0, NULL, &memory, NULL);
  return (int *)memory;
}

/* Fills memory and checks it, by two kernels in the order of a stream. */
static void use(Stream on, int *memory, int value, int *wrong) {
  fill<<<COUNT / THREADS, THREADS, 0, on.stream>>>(memory, value);
  compare<<<COUNT / THREADS, THREADS, 0, on.stream>>>(memory, value, wrong);
  runtime(cudaGetLastError(), "a launch");
}

static void require_right(const int *wrong) {
  int count;
  CUDA(cudaDeviceSynchronize);
  CUDA(cudaMemcpy, &count, wrong, sizeof count, cudaMemcpyDeviceToHost);
  require(count == 0, "the data is wrong");
}

int main(void) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device = first_device(UR_BACKEND_CUDA, &adapter);
  ur_native_handle_t ordinal;
  ur_context_handle_t context;
  int *wrong, *first = NULL, *seen[ROUNDS] = {};
  int same = 0, different = 0, round, i;

  CALL(urDeviceGetNativeHandle, device, &ordinal);
  CUDA(cudaSetDevice, (int)ordinal);
  CUDA(cudaMalloc, (void **)&wrong, sizeof *wrong);
  CUDA(cudaMemset, wrong, 0, sizeof *wrong);
  CALL(urContextCreate, 1, &device, NULL, &context);
  Stream one = make(context, device), two = make(context, device);

  /* One stream: the order of the stream lets each allocation have the memory of the last one. */
  for (round = 0; round < ROUNDS; round++) {
    int *memory = alloc(one);
    use(one, memory, round, wrong);
    CALL(urEnqueueUSMFreeExp, one.queue, NULL, memory, 0, NULL, NULL);
    first = round == 0 ? memory : first;
    same += memory == first;
  }
  require_right(wrong);
  require(same == ROUNDS, "a stream did not get its own memory again");
  printf("one stream: the same memory %d times, and the data is right\n", same);

  /* Two streams in turns: the event of a free orders the next allocation, on the other stream, after it. */
  ur_event_handle_t freed = NULL;
  for (round = 0; round < ROUNDS; round++) {
    Stream on = round % 2 ? two : one;
    ur_event_handle_t next;
    void *memory;
    CALL(urEnqueueUSMDeviceAllocExp, on.queue, NULL, COUNT * sizeof(int), NULL, freed != NULL, freed ? &freed : NULL,
         &memory, NULL);
    if (freed != NULL)
      CALL(urEventRelease, freed);
    use(on, (int *)memory, 1000 * round, wrong);
    CALL(urEnqueueUSMFreeExp, on.queue, NULL, memory, 0, NULL, &next);
    freed = next;
    for (i = 0; i < different && seen[i] != memory; i++)
      ;
    if (i == different)
      seen[different++] = (int *)memory;
  }
  CALL(urEventRelease, freed);
  require_right(wrong);
  printf("two streams: %d different addresses in %d rounds, and the data is right\n", different, (int)ROUNDS);

  destroy(one);
  destroy(two);
  CUDA(cudaFree, wrong);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}
