void *exported;
int descriptor;
urMemoryExportAllocExportableMemoryExp(context, device, 0, 1 << 20, UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD, &exported);
urMemoryExportExportMemoryHandleExp(context, device, UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD, exported, &descriptor);
urMemoryExportFreeExportableMemoryExp(context, device, exported);
