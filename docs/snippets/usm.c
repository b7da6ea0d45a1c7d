ur_usm_pool_limits_desc_t limits = {.stype = UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
                                    .maxPoolableSize = 1 << 30,     /* at most 1 GiB */
                                    .minDriverAllocSize = 64 << 20}; /* keeps 64 MiB of free memory */
ur_usm_pool_desc_t desc = {.stype = UR_STRUCTURE_TYPE_USM_POOL_DESC, .pNext = &limits};
ur_usm_pool_handle_t own;
urUSMPoolCreate(context, &desc, &own);
void *memory;
urUSMSharedAlloc(context, device, NULL, own, 4096, &memory);
memset(memory, 0, 4096);
urUSMFree(context, memory);
urUSMPoolRelease(own);
