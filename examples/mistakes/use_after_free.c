/* Uses memory after its free on the same queue.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./use_after_free
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  unsigned char zero = 0;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, NULL);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  CALL(urEnqueueUSMFill, s.first, memory, 1, &zero, 1024, 0, NULL, NULL);
  return end(s);
}
