/* `native_function` gets the queue and `host`, and enqueues work of the backend's own. */
urEnqueueNativeCommandExp(queue, native_function, host, 0, NULL, NULL, 0, NULL, NULL);
