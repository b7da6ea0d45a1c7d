/* Releases an event twice that has one reference.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LIFETIME_VALIDATION ./released_twice
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_event_handle_t event;
  CALL(urEnqueueEventsWait, s.first, 0, NULL, &event);
  CALL(urEventRelease, event);
  urEventRelease(event);
  return end(s);
}
