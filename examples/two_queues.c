/* Memory goes from one queue to another, ordered by an event and without any wait.
 *
 *   cc two_queues.c $(pkg-config --cflags --libs libur_loader) -o two_queues && ./two_queues
 *
 * Prints
 *   ordered by an event: the same memory, 1 hit without a wait
 *   without an order: other memory
 *   the data is right
 */
#include "common.h"
#include "ur_pool.h"

#include <string.h>

enum { BYTES = 8 << 20 };

int main(void) {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device = first_device(UR_BACKEND_UNKNOWN, &adapter);
  ur_context_handle_t context;
  ur_queue_handle_t first, second;
  ur_usm_pool_handle_t pool;
  ur_usm_pool_desc_t desc = {.stype = UR_STRUCTURE_TYPE_USM_POOL_DESC};
  ur_event_handle_t freed;
  void *a, *b, *c;
  unsigned char *host, one = 1, two = 2;
  uint64_t ordered = 0, completed = 0;
  size_t i;

  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urQueueCreate, context, device, NULL, &first);
  CALL(urQueueCreate, context, device, NULL, &second);
  CALL(urUSMPoolCreateExp, context, device, &desc, &pool);
  CALL(urUSMHostAlloc, context, NULL, NULL, BYTES, (void **)&host);

  /* `a` lives on the first queue. Its free returns an event. */
  CALL(urEnqueueUSMDeviceAllocExp, first, pool, BYTES, NULL, 0, NULL, &a, NULL);
  CALL(urEnqueueUSMFill, first, a, 1, &one, BYTES, 0, NULL, NULL);
  CALL(urEnqueueUSMFreeExp, first, pool, a, 0, NULL, &freed);

  /* `b` comes after that event, so it may be the memory of `a` although the fill has not run yet. */
  CALL(urEnqueueUSMDeviceAllocExp, second, pool, BYTES, NULL, 1, &freed, &b, NULL);
  CALL(urEnqueueUSMFill, second, b, 1, &two, BYTES, 0, NULL, NULL);
  /* By its order, or because the fill has completed meanwhile. Another adapter has no such counters. */
  if (urUSMPoolGetInfoExp(pool, UR_USM_POOL_INFO_HITS_ORDERED_EXT, &ordered, NULL) != UR_RESULT_SUCCESS ||
      urUSMPoolGetInfoExp(pool, UR_USM_POOL_INFO_HITS_COMPLETED_EXT, &completed, NULL) != UR_RESULT_SUCCESS)
    ordered = completed = 0;
  printf("ordered by an event: %s memory, %u hit without a wait\n", a == b ? "the same" : "other",
         (unsigned)(ordered + completed));

  /* `c` lives while `b` does. */
  CALL(urEnqueueUSMDeviceAllocExp, first, pool, BYTES, NULL, 0, NULL, &c, NULL);
  printf("without an order: %s memory\n", c == b ? "the same" : "other");
  CALL(urEnqueueUSMFreeExp, first, pool, c, 0, NULL, NULL);

  CALL(urEnqueueUSMMemcpy, second, true, host, b, BYTES, 0, NULL, NULL);
  for (i = 0; i < BYTES; i++)
    require(host[i] == 2, "the data is wrong");
  puts("the data is right");

  CALL(urEnqueueUSMFreeExp, second, pool, b, 0, NULL, NULL);
  CALL(urQueueFinish, first);
  CALL(urQueueFinish, second);
  CALL(urEventRelease, freed);
  CALL(urUSMFree, context, host);
  CALL(urUSMPoolDestroyExp, context, device, pool);
  CALL(urQueueRelease, first);
  CALL(urQueueRelease, second);
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}
