/* Waits for a queue that was released.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LIFETIME_VALIDATION ./used_after_release
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_queue_handle_t queue;
  CALL(urQueueCreate, s.context, s.device, NULL, &queue);
  CALL(urQueueRelease, queue);
  urQueueFinish(queue);
  return end(s);
}
