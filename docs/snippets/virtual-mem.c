size_t page;
urVirtualMemGranularityGetInfo(context, device, 1, UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM, sizeof page, &page, NULL);
ur_physical_mem_handle_t physical;
urPhysicalMemCreate(context, device, page, NULL, &physical);
void *start;
urVirtualMemReserve(context, NULL, page, &start);
urVirtualMemMap(context, start, page, physical, 0, UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE);
/* ... */
urVirtualMemUnmap(context, start, page);
urVirtualMemFree(context, start, page);
urPhysicalMemRelease(physical);
