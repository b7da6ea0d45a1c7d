urEnqueueHostTaskExp(queue, host_function, host, NULL, 0, NULL, NULL); /* runs on a thread, in the queue's order */
