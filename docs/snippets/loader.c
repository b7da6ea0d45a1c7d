ur_loader_config_handle_t config;
urLoaderConfigCreate(&config);
urLoaderConfigEnableLayer(config, "UR_LAYER_FULL_VALIDATION");
urLoaderInit(0, config);
urLoaderConfigRelease(config);
/* ... */
urLoaderTearDown();
