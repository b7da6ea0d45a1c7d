/* Passes a context as a queue.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LIFETIME_VALIDATION ./wrong_kind
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  urQueueFinish((ur_queue_handle_t)s.context);
  return end(s);
}
