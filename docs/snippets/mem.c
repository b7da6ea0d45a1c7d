float host[256] = {0};
ur_buffer_properties_t properties = {.stype = UR_STRUCTURE_TYPE_BUFFER_PROPERTIES, .pHost = host};
ur_mem_handle_t copy;
urMemBufferCreate(context, UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER, sizeof host, &properties, &copy);
urMemRelease(copy);
