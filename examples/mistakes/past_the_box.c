/* Reads a box whose last row ends one byte after a buffer of 8 rows of 8 bytes.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING ./past_the_box
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  ur_mem_handle_t buffer;
  unsigned char host[64];
  ur_rect_offset_t from = {5, 4, 0}, to = {0, 0, 0};
  ur_rect_region_t region = {4, 4, 1};
  CALL(urMemBufferCreate, s.context, UR_MEM_FLAG_READ_WRITE, 64, NULL, &buffer);
  urEnqueueMemBufferReadRect(s.first, buffer, true, from, to, region, 8, 0, 4, 0, host, 0, NULL, NULL);
  CALL(urMemRelease, buffer);
  return end(s);
}
