ur_event_handle_t stamp;
uint64_t nanoseconds;
urEnqueueTimestampRecordingExp(queue, true, 0, NULL, &stamp);
urEventGetProfilingInfo(stamp, UR_PROFILING_INFO_COMMAND_END, sizeof nanoseconds, &nanoseconds, NULL);
urEventRelease(stamp);
