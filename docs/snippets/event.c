ur_event_handle_t done;
urEnqueueUSMMemcpy(queue, false, memory, host, 4096, 0, NULL, &done);
urEventWait(1, &done);
ur_event_status_t status;
urEventGetInfo(done, UR_EVENT_INFO_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
urEventRelease(done);
