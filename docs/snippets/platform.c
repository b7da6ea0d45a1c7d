uint32_t count = 0;
urPlatformGet(adapter, 0, NULL, &count);
ur_platform_handle_t *platforms = calloc(count, sizeof *platforms);
urPlatformGet(adapter, count, platforms, NULL);
size_t size = 0; /* of the text, with its end */
urPlatformGetInfo(platforms[0], UR_PLATFORM_INFO_NAME, 0, NULL, &size);
char *name = malloc(size);
urPlatformGetInfo(platforms[0], UR_PLATFORM_INFO_NAME, size, name, NULL);
free(name);
free(platforms);
