ur_sampler_desc_t desc = {.stype = UR_STRUCTURE_TYPE_SAMPLER_DESC,
                          .normalizedCoords = true,
                          .addressingMode = UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
                          .filterMode = UR_SAMPLER_FILTER_MODE_LINEAR};
ur_sampler_handle_t sampler;
urSamplerCreate(context, &desc, &sampler);
urSamplerRelease(sampler);
