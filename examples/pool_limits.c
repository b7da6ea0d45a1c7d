/* A pool with a maximum size and a release threshold, and its counters.
 *
 *   cc pool_limits.c $(pkg-config --cflags --libs libur_loader) -o pool_limits && ./pool_limits
 *
 * Prints
 *   a sixth block of 16 MiB is refused: the pool may hold 80 MiB
 *   after the free of one it is served
 *   reserved at most 80 MiB, 16 MiB after everything was freed
 *   hits: ... own, ... ordered, ... completed, ... grown
 */
#include "common.h"
#include "ur_pool.h"

enum { MIB = 1 << 20, BLOCKS = 5 };

static uint64_t counter(ur_usm_pool_handle_t pool, ur_usm_pool_info_t property) {
  uint64_t value = 0;
  if (urUSMPoolGetInfoExp(pool, property, &value, NULL) != UR_RESULT_SUCCESS)
    return 0; /* another adapter: no such counter */
  return value;
}

static size_t figure(ur_usm_pool_handle_t pool, ur_usm_pool_info_t property) {
  size_t value = 0;
  CALL(urUSMPoolGetInfoExp, pool, property, &value, NULL);
  return value;
}

int main(void) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device = first_device(UR_BACKEND_UNKNOWN, &adapter);
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_usm_pool_handle_t pool;
  ur_usm_pool_limits_desc_t limits = {.stype = UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
                                      .maxPoolableSize = 80 * MIB,
                                      .minDriverAllocSize = 16 * MIB};
  ur_usm_pool_desc_t desc = {.stype = UR_STRUCTURE_TYPE_USM_POOL_DESC, .pNext = &limits};
  void *blocks[BLOCKS], *more = NULL;
  ur_result_t result;
  int i;

  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &queue);
  CALL(urUSMPoolCreateExp, context, device, &desc, &pool);

  for (i = 0; i < BLOCKS; i++)
    CALL(urEnqueueUSMDeviceAllocExp, queue, pool, 16 * MIB, NULL, 0, NULL, &blocks[i], NULL);
  result = urEnqueueUSMDeviceAllocExp(queue, pool, 16 * MIB, NULL, 0, NULL, &more, NULL);
  require(result == UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY || result == UR_RESULT_ERROR_OUT_OF_RESOURCES,
          "a sixth block was not refused");
  puts("a sixth block of 16 MiB is refused: the pool may hold 80 MiB");
  CALL(urEnqueueUSMFreeExp, queue, pool, blocks[0], 0, NULL, NULL);
  CALL(urEnqueueUSMDeviceAllocExp, queue, pool, 16 * MIB, NULL, 0, NULL, &blocks[0], NULL);
  puts("after the free of one it is served");

  for (i = 0; i < BLOCKS; i++)
    CALL(urEnqueueUSMFreeExp, queue, pool, blocks[i], 0, NULL, NULL);
  CALL(urQueueFinish, queue); /* what exceeds the threshold is released here */
  printf("reserved at most %u MiB, %u MiB after everything was freed\n",
         (unsigned)(figure(pool, UR_USM_POOL_INFO_RESERVED_HIGH_EXP) / MIB),
         (unsigned)(figure(pool, UR_USM_POOL_INFO_RESERVED_CURRENT_EXP) / MIB));
  printf("hits: %u own, %u ordered, %u completed, %u grown\n", (unsigned)counter(pool, UR_USM_POOL_INFO_HITS_OWN_EXT),
         (unsigned)counter(pool, UR_USM_POOL_INFO_HITS_ORDERED_EXT),
         (unsigned)counter(pool, UR_USM_POOL_INFO_HITS_COMPLETED_EXT),
         (unsigned)counter(pool, UR_USM_POOL_INFO_HITS_GROWN_EXT));

  CALL(urUSMPoolDestroyExp, context, device, pool);
  CALL(urQueueRelease, queue);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}
