void *data;
size_t size;
urIPCGetMemHandleExp(context, memory, &data, &size);
/* send `size` bytes at `data` to another process, which calls urIPCOpenMemHandleExp with them */
urIPCPutMemHandleExp(context, data);
