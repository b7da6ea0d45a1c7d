urUSMContextMemcpyExp(context, memory, host, 4096); /* without a queue; returns when it is done */
