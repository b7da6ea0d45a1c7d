/* Frees memory on another queue, without an event of its allocation.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./free_before_allocation
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, NULL);
  CALL(urEnqueueUSMFreeExp, s.second, NULL, memory, 0, NULL, NULL);
  return end(s);
}
