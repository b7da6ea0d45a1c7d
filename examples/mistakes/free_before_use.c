/* Frees memory without an event of its use on another queue.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./free_before_use
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  unsigned char zero = 0;
  ur_event_handle_t allocated;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, &allocated);
  CALL(urEnqueueUSMFill, s.second, (char *)memory + 64, 1, &zero, 1024, 1, &allocated, NULL);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  CALL(urEventRelease, allocated);
  return end(s);
}
