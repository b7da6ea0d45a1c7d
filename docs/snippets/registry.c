ur_function_t launch = UR_FUNCTION_ENQUEUE_KERNEL_LAUNCH_WITH_ARGS_EXP;
printf("function %d\n", (int)launch);
