/* Passes memory of the program as a queue.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LIFETIME_VALIDATION ./unknown_handle
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  static void *nothing[16];
  urQueueFinish((ur_queue_handle_t)nothing);
  return end(s);
}
