/* Uses memory on one queue while another queue frees it.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_ASYNC_ALLOC_VALIDATION ./use_beside_free
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  unsigned char zero = 0;
  ur_event_handle_t allocated;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4096, NULL, 0, NULL, &memory, &allocated);
  CALL(urEnqueueEventsWait, s.second, 1, &allocated, NULL);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  CALL(urEnqueueUSMFill, s.second, memory, 1, &zero, 1024, 0, NULL, NULL);
  CALL(urEventRelease, allocated);
  return end(s);
}
