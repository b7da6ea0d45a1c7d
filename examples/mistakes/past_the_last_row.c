/* Fills 4 rows from the second row of 4 on.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING ./past_the_last_row
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  char *memory;
  unsigned char zero = 0;
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 4 * 64, NULL, 0, NULL, (void **)&memory, NULL);
  urEnqueueUSMFill2D(s.first, memory + 64, 64, 1, &zero, 64, 4, 0, NULL, NULL);
  CALL(urEnqueueUSMFreeExp, s.first, NULL, memory, 0, NULL, NULL);
  return end(s);
}
