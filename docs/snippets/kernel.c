ur_kernel_handle_t squares;
urKernelCreate(program, "squares", &squares);
size_t most;
urKernelGetGroupInfo(squares, device, UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE, sizeof most, &most, NULL);
urKernelRelease(squares);
