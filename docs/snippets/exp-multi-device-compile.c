urProgramBuildExp(program, 1, &device, 0, ""); /* for one device of the program's */
