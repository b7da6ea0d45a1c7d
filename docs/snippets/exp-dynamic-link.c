ur_program_handle_t programs[2] = {program, library};
urProgramDynamicLinkExp(context, 2, programs);
