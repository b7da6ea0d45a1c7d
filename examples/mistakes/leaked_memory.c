/* Does not free memory of a call, nor memory of a command.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LEAK_CHECKING ./leaked_memory
 */
#include "mistake.h"

int main(void) {
  setup s = start();
  void *memory;
  CALL(urUSMHostAlloc, s.context, NULL, NULL, 256, &memory);
  CALL(urEnqueueUSMDeviceAllocExp, s.first, NULL, 64, NULL, 0, NULL, &memory, NULL);
  return end(s);
}
