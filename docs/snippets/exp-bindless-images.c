ur_image_format_t format = {UR_IMAGE_CHANNEL_ORDER_RGBA, UR_IMAGE_CHANNEL_TYPE_FLOAT};
ur_image_desc_t desc = {.stype = UR_STRUCTURE_TYPE_IMAGE_DESC, .type = UR_MEM_TYPE_IMAGE2D, .width = 64, .height = 64,
                        .depth = 1, .arraySize = 1, .numMipLevel = 1};
ur_exp_image_mem_native_handle_t storage;
ur_exp_image_native_handle_t image; /* an argument of kernels */
urBindlessImagesImageAllocateExp(context, device, &format, &desc, &storage);
urBindlessImagesUnsampledImageCreateExp(context, device, storage, &format, &desc, &image);
/* ... */
urBindlessImagesUnsampledImageHandleDestroyExp(context, device, image);
urBindlessImagesImageFreeExp(context, device, storage);
