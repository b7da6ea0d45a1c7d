ur_exp_device_2d_block_array_capability_flags_t able = 0;
urDeviceGetInfo(device, UR_DEVICE_INFO_2D_BLOCK_ARRAY_CAPABILITIES_EXP, sizeof able, &able, NULL);
if (able & UR_EXP_DEVICE_2D_BLOCK_ARRAY_CAPABILITY_FLAG_LOAD) {
  /* kernels may use two-dimensional block loads */
}
