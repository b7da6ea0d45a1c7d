ur_context_handle_t own;
urContextCreate(1, &device, NULL, &own);
uint32_t devices;
urContextGetInfo(own, UR_CONTEXT_INFO_NUM_DEVICES, sizeof devices, &devices, NULL);
urContextRelease(own);
