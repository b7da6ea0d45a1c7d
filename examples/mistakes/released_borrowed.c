/* Releases a context that a query returned: a query adds no reference.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LIFETIME_VALIDATION ./released_borrowed
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_queue_handle_t queue;
  ur_context_handle_t context;
  CALL(urContextCreate, 1, &s.device, NULL, &context);
  CALL(urQueueCreate, context, s.device, NULL, &queue);
  CALL(urContextRelease, context);
  CALL(urQueueGetInfo, queue, UR_QUEUE_INFO_CONTEXT, sizeof context, &context, NULL);
  urContextRelease(context);
  CALL(urQueueRelease, queue);
  return end(s);
}
