/* Fills 257 bytes of an allocation of 256.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_BOUNDS_CHECKING ./past_the_end
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  unsigned char zero = 0;
  CALL(urUSMDeviceAlloc, s.context, s.device, NULL, NULL, 256, &memory);
  urEnqueueUSMFill(s.first, memory, 1, &zero, 257, 0, NULL, NULL);
  CALL(urUSMFree, s.context, memory);
  return end(s);
}
