ur_exp_command_buffer_desc_t desc = {.stype = UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC};
ur_exp_command_buffer_handle_t buffer;
ur_exp_command_buffer_sync_point_t filled;
urCommandBufferCreateExp(context, device, &desc, &buffer);
urCommandBufferAppendUSMFillExp(buffer, memory, "", 1, 4096, 0, NULL, 0, NULL, &filled, NULL, NULL);
urCommandBufferAppendUSMMemcpyExp(buffer, host, memory, 4096, 1, &filled, 0, NULL, NULL, NULL, NULL);
urCommandBufferFinalizeExp(buffer);
for (int i = 0; i < 10; i++)
  urEnqueueCommandBufferExp(queue, buffer, 0, NULL, NULL);
urCommandBufferReleaseExp(buffer);
