/* Makes one of each thing that a program must end and that is no handle with references.
 *
 *   unended leaks|ends
 *
 * `leaks` ends none of them, so that leak checking lists all; `ends` ends each by its function. Needs the
 * mock adapter, which has every function. Prints "ok" and exits with 0, or prints the error and exits with 1.
 */
#include "../../examples/common.h"

#include <string.h>

int main(int count, char **arguments) {
  int ends = count > 1 && !strcmp(arguments[1], "ends");
  ur_adapter_handle_t adapter;
  ur_device_handle_t device = first_device(UR_BACKEND_UNKNOWN, &adapter);
  ur_context_handle_t context;
  CALL(urContextCreate, 1, &device, NULL, &context);

  void *memory, *exportable, *opened, *mapped, *reserved, *blob;
  static char host[2][4096];
  size_t blob_size = 0;
  CALL(urUSMDeviceAlloc, context, device, NULL, NULL, 64, &memory);
  CALL(urMemoryExportAllocExportableMemoryExp, context, device, 0, 128,
       UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD, &exportable);
  CALL(urIPCGetMemHandleExp, context, memory, &blob, &blob_size);
  CALL(urIPCOpenMemHandleExp, context, device, blob, blob_size, &opened);
  CALL(urVirtualMemReserve, context, NULL, 4096, &reserved);
  CALL(urUSMHostAllocRegisterExp, context, host[0], sizeof host[0], NULL);
  CALL(urUSMImportExp, context, host[1], sizeof host[1]);

  ur_physical_mem_handle_t physical;
  CALL(urPhysicalMemCreate, context, device, 4096, NULL, &physical);

  ur_exp_external_mem_desc_t external_desc;
  memset(&external_desc, 0, sizeof external_desc);
  external_desc.stype = UR_STRUCTURE_TYPE_EXP_EXTERNAL_MEM_DESC;
  ur_exp_external_mem_handle_t external;
  CALL(urBindlessImagesImportExternalMemoryExp, context, device, 256,
       UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD, &external_desc, &external);
  CALL(urBindlessImagesMapExternalLinearMemoryExp, context, device, 0, 256, external, &mapped);

  ur_image_format_t format = {UR_IMAGE_CHANNEL_ORDER_RGBA, UR_IMAGE_CHANNEL_TYPE_UNORM_INT8};
  ur_image_desc_t desc;
  memset(&desc, 0, sizeof desc);
  desc.stype = UR_STRUCTURE_TYPE_IMAGE_DESC;
  desc.type = UR_MEM_TYPE_IMAGE2D;
  desc.width = desc.height = 8;
  ur_sampler_desc_t sampler;
  memset(&sampler, 0, sizeof sampler);
  sampler.stype = UR_STRUCTURE_TYPE_SAMPLER_DESC;
  ur_exp_image_mem_native_handle_t image = 0;
  ur_exp_image_native_handle_t sampled = 0, unsampled = 0;
  CALL(urBindlessImagesImageAllocateExp, context, device, &format, &desc, &image);
  CALL(urBindlessImagesUnsampledImageCreateExp, context, device, image, &format, &desc, &unsampled);
  CALL(urBindlessImagesSampledImageCreateExp, context, device, image, &format, &desc, &sampler,
       &sampled);

  if (ends) {
    CALL(urBindlessImagesSampledImageHandleDestroyExp, context, device, sampled);
    CALL(urBindlessImagesUnsampledImageHandleDestroyExp, context, device, unsampled);
    CALL(urBindlessImagesImageFreeExp, context, device, image);
    CALL(urBindlessImagesFreeMappedLinearMemoryExp, context, device, mapped);
    CALL(urBindlessImagesReleaseExternalMemoryExp, context, device, external);
    CALL(urPhysicalMemRelease, physical);
    CALL(urUSMReleaseExp, context, host[1]);
    CALL(urUSMHostAllocUnregisterExp, context, host[0]);
    CALL(urVirtualMemFree, context, reserved, 4096);
    CALL(urIPCCloseMemHandleExp, context, opened);
    CALL(urIPCPutMemHandleExp, context, blob);
    CALL(urMemoryExportFreeExportableMemoryExp, context, device, exportable);
    CALL(urUSMFree, context, memory);
  }
  CALL(urContextRelease, context);
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  puts("ok");
  return 0;
}
