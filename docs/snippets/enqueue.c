uint32_t zero = 0;
ur_event_handle_t filled;
urEnqueueUSMFill(queue, memory, sizeof zero, &zero, 4096, 0, NULL, &filled);
urEnqueueUSMMemcpy(other_queue, true, host, memory, 4096, 1, &filled, NULL); /* returns when it is done */
urEventRelease(filled);
