/* Asynchronous allocation from C, from start to end: two queues, a kernel, copies, and memory that one queue
 * frees and the other reuses after an event.
 *
 * The kernels are functions of this program, which only native_cpu can run: it takes the first device of that
 * adapter, whatever others there are, and says so if there is none.
 *
 *   cc async_alloc.c $(pkg-config --cflags --libs libur_loader) -o async_alloc && ./async_alloc
 *
 * Prints
 *   device: ...
 *   ok: 20 allocations on two queues, 5242880 numbers right, ... bytes reserved, ... address at the end
 */
#include "common.h"

enum { COUNT = 1 << 18, ROUNDS = 20 };

/* --- kernels: the state has the work-item's position; an argument is a pointer itself, or the address of
 * a value's bytes --- */

typedef struct native_cpu_state {
  size_t global_id[3], global_range[3], group_size[3], group_id[3], local_id[3], groups[3], offset[3];
  uint32_t sub_groups, sub_group_id, sub_group_local_id, sub_group_size;
} native_cpu_state;

typedef void (*native_cpu_kernel)(void *const *args, native_cpu_state *state);

typedef struct native_cpu_entry {
  const char *name;
  native_cpu_kernel kernel;
} native_cpu_entry;

/* squares(uint32_t *out, uint32_t add): out[i] = i * i + add */
static void squares(void *const *args, native_cpu_state *state) {
  uint32_t i = (uint32_t)state->global_id[0];
  ((uint32_t *)args[0])[i] = i * i + *(const uint32_t *)args[1];
}

/* triple(uint32_t *data): data[i] *= 3 */
static void triple(void *const *args, native_cpu_state *state) {
  ((uint32_t *)args[0])[state->global_id[0]] *= 3;
}

static const native_cpu_entry kernels[] = {{"squares", squares}, {"triple", triple}, {NULL, NULL}};

/* --- the device --- */

typedef struct bench {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue[2];
  ur_program_handle_t program;
  ur_kernel_handle_t squares, triple;
  ur_usm_pool_handle_t pool;
} bench;

static void find_device(bench *b) {
  char name[256];
  ur_bool_t able = 0;
  b->device = first_device(UR_BACKEND_NATIVE_CPU, &b->adapter);
  CALL(urDeviceGetInfo, b->device, UR_DEVICE_INFO_NAME, sizeof name, name, NULL);
  CALL(urDeviceGetInfo, b->device, UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP, sizeof able, &able, NULL);
  printf("device: %s\n", name);
  require(able, "the device has no asynchronous allocation");
}

static void set_up(bench *b) {
  const uint8_t *binary = (const uint8_t *)kernels;
  size_t size = sizeof kernels;
  int i;
  find_device(b);
  CALL(urContextCreate, 1, &b->device, NULL, &b->context);
  for (i = 0; i < 2; i++)
    CALL(urQueueCreate, b->context, b->device, NULL, &b->queue[i]);
  CALL(urProgramCreateWithBinary, b->context, 1, &b->device, &size, &binary, NULL, &b->program);
  CALL(urProgramBuild, b->context, b->program, NULL);
  CALL(urKernelCreate, b->program, "squares", &b->squares);
  CALL(urKernelCreate, b->program, "triple", &b->triple);
  CALL(urUSMPoolGetDefaultDevicePoolExp, b->context, b->device, &b->pool);
}

static void tear_down(bench *b) {
  int i;
  CALL(urKernelRelease, b->triple);
  CALL(urKernelRelease, b->squares);
  CALL(urProgramRelease, b->program);
  for (i = 0; i < 2; i++)
    CALL(urQueueRelease, b->queue[i]);
  CALL(urContextRelease, b->context);
  CALL(urDeviceRelease, b->device);
  CALL(urAdapterRelease, b->adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
}

static void launch(ur_queue_handle_t queue, ur_kernel_handle_t kernel, void *memory, uint32_t add) {
  ur_exp_kernel_arg_properties_t args[2] = {
      {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
       .type = UR_EXP_KERNEL_ARG_TYPE_POINTER,
       .index = 0,
       .size = sizeof(void *),
       .value = {.pointer = memory}},
      {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
       .type = UR_EXP_KERNEL_ARG_TYPE_VALUE,
       .index = 1,
       .size = sizeof add,
       .value = {.value = &add}}};
  size_t global = COUNT;
  CALL(urEnqueueKernelLaunchWithArgsExp, queue, kernel, 1, NULL, &global, NULL, 2, args, NULL, 0, NULL, NULL);
}

static size_t figure(const bench *b, ur_usm_pool_info_t property) {
  size_t value = 0;
  CALL(urUSMPoolGetInfoExp, b->pool, property, &value, NULL);
  return value;
}

/* --- the work --- */

/* One block moves between the queues: each round allocates it after the event of the last round's free,
 * and writes its result to `out`. The host does not wait in between. */
static void hand_over(const bench *b, uint32_t *out, void **first, void **last, size_t *reserved) {
  const size_t bytes = COUNT * sizeof(uint32_t);
  ur_event_handle_t freed = NULL, next;
  uint32_t round;
  void *memory;
  for (round = 0; round < ROUNDS; round++) {
    ur_queue_handle_t queue = b->queue[round % 2];
    CALL(urEnqueueUSMDeviceAllocExp, queue, NULL, bytes, NULL, freed ? 1 : 0, freed ? &freed : NULL, &memory, NULL);
    if (round == 0) {
      *first = memory;
      *reserved = figure(b, UR_USM_POOL_INFO_RESERVED_CURRENT_EXP);
    }
    launch(queue, b->squares, memory, round);
    launch(queue, b->triple, memory, 0);
    CALL(urEnqueueUSMMemcpy, queue, false, out + round * (size_t)COUNT, memory, bytes, 0, NULL, NULL);
    CALL(urEnqueueUSMFreeExp, queue, NULL, memory, 0, NULL, &next);
    if (freed)
      CALL(urEventRelease, freed);
    freed = next;
  }
  *last = memory;
  CALL(urEventWait, 1, &freed);
  CALL(urEventRelease, freed);
}

int main(void) {
  bench b;
  void *first, *last, *host;
  size_t reserved, used;
  uint32_t round, i, wrong = 0;
  set_up(&b);
  CALL(urUSMHostAlloc, b.context, NULL, NULL, (size_t)ROUNDS * COUNT * sizeof(uint32_t), &host);
  /* Host memory may come from the same pool. */
  used = figure(&b, UR_USM_POOL_INFO_USED_CURRENT_EXP);
  hand_over(&b, host, &first, &last, &reserved);
  for (round = 0; round < ROUNDS; round++)
    for (i = 0; i < COUNT; i++)
      wrong += ((uint32_t *)host)[round * (size_t)COUNT + i] != 3 * (i * i + round);
  require(wrong == 0, "the numbers are wrong");
  require(figure(&b, UR_USM_POOL_INFO_RESERVED_HIGH_EXP) == reserved, "the pool grew: memory was not reused across queues");
  require(figure(&b, UR_USM_POOL_INFO_USED_CURRENT_EXP) == used, "something is still in use");
  CALL(urUSMFree, b.context, host);
  tear_down(&b);
  printf("ok: %d allocations on two queues, %u numbers right, %zu bytes reserved, %s address at the end\n", ROUNDS,
         (unsigned)ROUNDS * COUNT, reserved, first == last ? "the same" : "another");
  return 0;
}
