/* What the examples share: a call that must succeed, and the first device of a backend. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include "ur_api.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void check(ur_result_t result, const char *call) {
  if (result != UR_RESULT_SUCCESS) {
    fprintf(stderr, "%s returned %#x\n", call, (unsigned)result);
    exit(1);
  }
}

#define CALL(function, ...) check(function(__VA_ARGS__), #function)

static inline void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "%s\n", what);
    exit(1);
  }
}

/* The adapter's name in ONEAPI_DEVICE_SELECTOR. */
static inline const char *backend_name(ur_backend_t backend) {
  switch (backend) {
  case UR_BACKEND_CUDA:
    return "cuda";
  case UR_BACKEND_NATIVE_CPU:
    return "native_cpu";
  case UR_BACKEND_OPENCL:
    return "opencl";
  default:
    return "any";
  }
}

/* The first device of an adapter for `backend`, or of any adapter for UR_BACKEND_UNKNOWN; obeys
 * ONEAPI_DEVICE_SELECTOR. Exits with 77, "skipped", if there is none. The adapter stays retained. */
static inline ur_device_handle_t first_device(ur_backend_t backend, ur_adapter_handle_t *adapter) {
  ur_adapter_handle_t adapters[16];
  ur_platform_handle_t platforms[16];
  ur_device_handle_t device = NULL;
  uint32_t adapter_count = 0, platform_count, i, p;
  *adapter = NULL;
  CALL(urLoaderInit, 0, NULL);
  CALL(urAdapterGet, 0, NULL, &adapter_count);
  if (adapter_count > 16)
    adapter_count = 16;
  if (adapter_count > 0)
    CALL(urAdapterGet, adapter_count, adapters, NULL);
  for (i = 0; i < adapter_count; i++) {
    ur_backend_t found;
    CALL(urAdapterGetInfo, adapters[i], UR_ADAPTER_INFO_BACKEND, sizeof found, &found, NULL);
    platform_count = 0;
    if (device == NULL && (backend == UR_BACKEND_UNKNOWN || found == backend)) {
      CALL(urPlatformGet, adapters[i], 0, NULL, &platform_count);
      if (platform_count > 16)
        platform_count = 16;
      if (platform_count > 0)
        CALL(urPlatformGet, adapters[i], platform_count, platforms, NULL);
    }
    for (p = 0; p < platform_count && device == NULL; p++) {
      uint32_t devices = 0;
      CALL(urDeviceGetSelected, platforms[p], UR_DEVICE_TYPE_ALL, 0, NULL, &devices);
      if (devices > 0)
        CALL(urDeviceGetSelected, platforms[p], UR_DEVICE_TYPE_ALL, 1, &device, NULL);
    }
    if (device != NULL && *adapter == NULL)
      *adapter = adapters[i];
    else
      CALL(urAdapterRelease, adapters[i]);
  }
  if (device == NULL) {
    fprintf(stderr, "skipped: no device of %s adapter; is ONEAPI_DEVICE_SELECTOR right? `urinfo` lists what there is\n",
            backend_name(backend));
    exit(77);
  }
  return device;
}

#endif
