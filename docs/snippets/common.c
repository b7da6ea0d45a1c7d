ur_api_version_t version = UR_API_VERSION_CURRENT;
printf("UR %d.%d\n", UR_MAJOR_VERSION(version), UR_MINOR_VERSION(version));
