/* Ends neither a reservation of addresses nor a registration of host memory.
 *
 *   UR_ENABLE_LAYERS=UR_LAYER_LEAK_CHECKING ./leaked_reservation
 */
#include "mistake.h"

static _Alignas(4096) char host[4096];

int main(void) {
  setup s = start();
  void *start;
  size_t page = 0;
  CALL(urVirtualMemGranularityGetInfo, s.context, s.device, 1,
       UR_VIRTUAL_MEM_GRANULARITY_INFO_RECOMMENDED, sizeof page, &page, NULL);
  CALL(urVirtualMemReserve, s.context, NULL, page, &start);
  CALL(urUSMHostAllocRegisterExp, s.context, host, sizeof host, NULL);
  return end(s);
}
