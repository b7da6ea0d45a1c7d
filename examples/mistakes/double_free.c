/* Frees memory twice on one queue.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./double_free
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, NULL);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  urEnqueueUSMFreeExp(s.first, NULL, memory, 0, NULL, NULL);
  return end(s);
}
