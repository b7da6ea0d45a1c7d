/* Frees memory on two queues that no event orders.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./double_free_at_once
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  CALL(urUSMDeviceAlloc, s.context, s.device, NULL, NULL, 4096, &memory);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  urEnqueueUSMFreeExp(s.second, NULL, memory, 0, NULL, NULL);
  return end(s);
}
