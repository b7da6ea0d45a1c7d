/* Kernels for native_cpu, as a shared object: each exported function is a kernel.
 *
 *   cc -O2 -shared -fPIC kernels.c -o kernels.so
 */
#include <stddef.h>
#include <stdint.h>

/* The state of a work-item begins with its global id. */
struct state {
  size_t global_id[3];
};

/* Machine code does not tell the number of a kernel's arguments. With this, a launch with fewer is an error. */
const uint32_t ur_num_args_squares = 2;

/* squares(uint32_t *out, uint32_t add): out[i] = i * i + add. A pointer argument is the pointer itself, a
 * value is the address of its bytes. */
void squares(void *const *args, struct state *state) {
  uint32_t i = (uint32_t)state->global_id[0];
  ((uint32_t *)args[0])[i] = i * i + *(const uint32_t *)args[1];
}
