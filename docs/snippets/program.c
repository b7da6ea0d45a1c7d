ur_program_handle_t built;
urProgramCreateWithIL(context, spirv, spirv_size, NULL, &built);
if (urProgramBuild(context, built, "") == UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE) {
  char log[4096] = "";
  urProgramGetBuildInfo(built, device, UR_PROGRAM_BUILD_INFO_LOG, sizeof log, log, NULL);
  fputs(log, stderr);
}
urProgramRelease(built);
