uint32_t count = 0;
urAdapterGet(0, NULL, &count);
ur_adapter_handle_t *adapters = calloc(count, sizeof *adapters);
urAdapterGet(count, adapters, NULL);
for (uint32_t i = 0; i < count; i++) {
  ur_backend_t backend;
  urAdapterGetInfo(adapters[i], UR_ADAPTER_INFO_BACKEND, sizeof backend, &backend, NULL);
  urAdapterRelease(adapters[i]);
}
free(adapters);
