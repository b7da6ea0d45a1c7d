/* Lists every device and what it can do with asynchronous allocation.
 *
 *   cc enumerate.c $(pkg-config --cflags --libs libur_loader) -o enumerate && ./enumerate
 *
 * Prints a line for each device, such as
 *   SYCL_NATIVE_CPU / ...: ... compute units, ... GiB, asynchronous allocation
 */
#include "common.h"

static char *text(ur_device_handle_t device, ur_device_info_t property) {
  size_t size = 0;
  char *value;
  CALL(urDeviceGetInfo, device, property, 0, NULL, &size);
  value = malloc(size);
  require(value != NULL, "out of memory");
  CALL(urDeviceGetInfo, device, property, size, value, NULL);
  return value;
}

static void show(ur_platform_handle_t platform, ur_device_handle_t device) {
  char name[256] = "";
  char *device_name = text(device, UR_DEVICE_INFO_NAME);
  uint32_t units = 0;
  uint64_t bytes = 0;
  ur_bool_t async = 0;
  CALL(urPlatformGetInfo, platform, UR_PLATFORM_INFO_NAME, sizeof name, name, NULL);
  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
  CALL(urDeviceGetInfo, device, UR_DEVICE_INFO_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
  /* An adapter without this property answers with an error. */
  if (urDeviceGetInfo(device, UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP, sizeof async, &async, NULL))
    async = 0;
  printf("%s / %s: %u compute units, %u GiB, %s\n", name, device_name, units, (unsigned)(bytes >> 30),
         async ? "asynchronous allocation" : "no asynchronous allocation");
  free(device_name);
}

int main(void) {
  ur_adapter_handle_t adapters[16];
  ur_platform_handle_t platforms[16];
  ur_device_handle_t devices[64];
  uint32_t adapter_count = 0, platform_count = 0, device_count = 0, a, p, d, shown = 0;
  CALL(urLoaderInit, 0, NULL);
  CALL(urAdapterGet, 0, NULL, &adapter_count);
  require(adapter_count <= 16, "more adapters than this example expects");
  if (adapter_count > 0)
    CALL(urAdapterGet, adapter_count, adapters, NULL);
  for (a = 0; a < adapter_count; a++) {
    CALL(urPlatformGet, adapters[a], 0, NULL, &platform_count);
    require(platform_count <= 16, "more platforms than this example expects");
    if (platform_count > 0)
      CALL(urPlatformGet, adapters[a], platform_count, platforms, NULL);
    for (p = 0; p < platform_count; p++) {
      CALL(urDeviceGetSelected, platforms[p], UR_DEVICE_TYPE_ALL, 0, NULL, &device_count);
      require(device_count <= 64, "more devices than this example expects");
      if (device_count > 0)
        CALL(urDeviceGetSelected, platforms[p], UR_DEVICE_TYPE_ALL, device_count, devices, NULL);
      for (d = 0; d < device_count; d++, shown++) {
        show(platforms[p], devices[d]);
        CALL(urDeviceRelease, devices[d]);
      }
    }
    CALL(urAdapterRelease, adapters[a]);
  }
  check(urLoaderTearDown(), "urLoaderTearDown");
  require(shown > 0, "no device");
  return 0;
}
