/* Uses memory on another queue, without an event of its allocation.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./use_before_allocation
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  unsigned char zero = 0;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, NULL);
  CALL(urEnqueueUSMFill, s.second, memory, 1, &zero, 1024, 0, NULL, NULL);
  CALL(urQueueFinish, s.second);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  return end(s);
}
