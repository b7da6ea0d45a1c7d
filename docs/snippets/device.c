ur_device_handle_t first;
urDeviceGetSelected(platform, UR_DEVICE_TYPE_ALL, 1, &first, NULL); /* obeys ONEAPI_DEVICE_SELECTOR */
uint64_t bytes;
urDeviceGetInfo(first, UR_DEVICE_INFO_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
urDeviceRelease(first);
