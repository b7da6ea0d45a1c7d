/* Passes null for a queue.
 *
 *   UR_LOG_VALIDATION=level:info UR_ENABLE_LAYERS=UR_LAYER_PARAMETER_VALIDATION ./null_handle
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  urQueueFinish(NULL);
  return end(s);
}
