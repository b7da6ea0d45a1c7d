/* Does not release an event.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LEAK_CHECKING ./leaked_handle
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_event_handle_t event;
  CALL(urEnqueueEventsWait, s.first, 0, NULL, &event);
  return end(s);
}
