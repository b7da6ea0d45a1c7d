/* Reads 65 bytes of a buffer of 64.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING ./past_the_buffer
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_mem_handle_t buffer;
  unsigned char host[65];
  CALL(urMemBufferCreate, s.context, UR_MEM_FLAG_READ_WRITE, 64, NULL, &buffer);
  urEnqueueMemBufferRead(s.first, buffer, true, 0, 65, host, 0, NULL, NULL);
  CALL(urMemRelease, buffer);
  return end(s);
}
