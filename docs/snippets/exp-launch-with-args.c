uint32_t add = 7;
ur_exp_kernel_arg_properties_t args[2] = {
    {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
     .type = UR_EXP_KERNEL_ARG_TYPE_POINTER,
     .index = 0,
     .size = sizeof memory,
     .value = {.pointer = memory}},
    {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
     .type = UR_EXP_KERNEL_ARG_TYPE_VALUE,
     .index = 1,
     .size = sizeof add,
     .value = {.value = &add}}};
size_t global = 1024;
urEnqueueKernelLaunchWithArgsExp(queue, kernel, 1, NULL, &global, NULL, 2, args, NULL, 0, NULL, NULL);
