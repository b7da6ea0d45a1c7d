void *block;
ur_event_handle_t freed;
urEnqueueUSMDeviceAllocExp(queue, NULL, 1 << 20, NULL, 0, NULL, &block, NULL);
urEnqueueUSMFill(queue, block, 1, "", 1 << 20, 0, NULL, NULL);
urEnqueueUSMFreeExp(queue, NULL, block, 0, NULL, &freed);

/* Another queue: ordered after the free, so it may get the memory at once. */
void *again;
urEnqueueUSMDeviceAllocExp(other_queue, NULL, 1 << 20, NULL, 1, &freed, &again, NULL);
urEnqueueUSMFreeExp(other_queue, NULL, again, 0, NULL, NULL);
urEventRelease(freed);
