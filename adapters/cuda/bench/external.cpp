// Memory that CUDA itself exports, used through the interface: a check for a machine with a GPU, without a toolkit.
//
//   g++ -std=c++17 -Iinclude adapters/cuda/bench/external.cpp -o external -ldl FOLDER/libur_loader.so.0
//   UR_ADAPTERS_FORCE_LOAD=FOLDER/libur_adapter_cuda.so.0 LD_LIBRARY_PATH=FOLDER ./external
//
// Prints a line for each check, and exits with the number of those that failed. Semaphores of Vulkan are checked by
// `ur-conformance --filter bindless::a_wait`.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ur_api.h"

namespace {

int failed = 0;

void check(bool holds, const char *what) {
    std::printf("%s  %s\n", holds ? "ok    " : "FAILED", what);
    failed += !holds;
}

// Ends the program if a step fails that the checks need.
void need(bool holds, const char *what) {
    if (holds) return;
    std::printf("FAILED  %s\n", what);
    std::exit(1);
}

// CUDA's driver, as far as the exporter needs it.
struct Cuda {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    template <typename... Arguments> int call(const char *name, Arguments... arguments) {
        auto found = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
        need(found, name);
        return found(arguments...);
    }
};

struct Location { int type, id; };

struct Properties {
    int type, handles;
    Location location;
    void *windows;
    unsigned char flags[8];
};

struct Access { Location location; int flags; };

constexpr size_t bytes = 2 << 20;

// Memory of CUDA's on the first device, mapped for CUDA, with a file descriptor.
struct Exported {
    Cuda &cuda;
    unsigned long long handle = 0, start = 0;
    int descriptor = -1;

    explicit Exported(Cuda &cuda) : cuda(cuda) {
        Properties what{};
        what.type = 1;
        what.handles = 1;
        what.location = {1, 0};
        size_t granularity = 0;
        need(!cuda.call("cuMemGetAllocationGranularity", &granularity, &what, 0u) && bytes % granularity == 0,
             "cuMemGetAllocationGranularity");
        need(!cuda.call("cuMemCreate", &handle, bytes, &what, 0ull), "cuMemCreate");
        need(!cuda.call("cuMemAddressReserve", &start, bytes, size_t(0), 0ull, 0ull), "cuMemAddressReserve");
        need(!cuda.call("cuMemMap", start, bytes, size_t(0), handle, 0ull), "cuMemMap");
        Access access{{1, 0}, 3};
        need(!cuda.call("cuMemSetAccess", start, bytes, &access, size_t(1)), "cuMemSetAccess");
        need(!cuda.call("cuMemExportToShareableHandle", &descriptor, handle, 1, 0ull),
             "cuMemExportToShareableHandle");
    }

    void fill(unsigned char value) {
        need(!cuda.call("cuMemsetD8Async", start, value, bytes, (void *)nullptr), "cuMemsetD8Async");
        need(!cuda.call("cuStreamSynchronize", (void *)nullptr), "cuStreamSynchronize");
    }

    std::vector<unsigned char> read() {
        std::vector<unsigned char> data(bytes);
        auto to = (unsigned long long)(uintptr_t)data.data();
        need(!cuda.call("cuMemcpyAsync", to, start, bytes, (void *)nullptr), "cuMemcpyAsync");
        need(!cuda.call("cuStreamSynchronize", (void *)nullptr), "cuStreamSynchronize");
        return data;
    }

    ~Exported() {
        cuda.call("cuMemUnmap", start, bytes);
        cuda.call("cuMemAddressFree", start, bytes);
        cuda.call("cuMemRelease", handle);
        close(descriptor);
    }
};

bool all_are(const std::vector<unsigned char> &data, unsigned char value) {
    for (auto byte : data)
        if (byte != value) return false;
    return true;
}

} // namespace

int main() {
    Cuda cuda;
    need(cuda.library, "libcuda.so.1");
    void *primary = nullptr, *popped = nullptr;
    need(!cuda.call("cuInit", 0u), "cuInit");
    need(!cuda.call("cuDevicePrimaryCtxRetain", &primary, 0), "cuDevicePrimaryCtxRetain");
    need(!cuda.call("cuCtxPushCurrent_v2", primary), "cuCtxPushCurrent");

    need(!urLoaderInit(0, nullptr), "urLoaderInit");
    ur_adapter_handle_t adapter;
    ur_platform_handle_t platform;
    ur_device_handle_t device;
    ur_context_handle_t context;
    ur_queue_handle_t queue;
    need(!urAdapterGet(1, &adapter, nullptr), "urAdapterGet");
    need(!urPlatformGet(adapter, 1, &platform, nullptr), "urPlatformGet");
    need(!urDeviceGet(platform, UR_DEVICE_TYPE_GPU, 1, &device, nullptr), "urDeviceGet");
    need(!urContextCreate(1, &device, nullptr, &context), "urContextCreate");
    need(!urQueueCreate(context, device, nullptr, &queue), "urQueueCreate");
    {
        Exported exported(cuda);
        exported.fill(0x31);
        ur_exp_file_descriptor_t descriptor{};
        descriptor.stype = UR_STRUCTURE_TYPE_EXP_FILE_DESCRIPTOR;
        // The driver takes a descriptor over.
        descriptor.fd = dup(exported.descriptor);
        ur_exp_external_mem_desc_t desc{};
        desc.stype = UR_STRUCTURE_TYPE_EXP_EXTERNAL_MEM_DESC;
        desc.pNext = &descriptor;
        ur_exp_external_mem_handle_t memory;
        auto status = urBindlessImagesImportExternalMemoryExp(
            context, device, bytes, UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD, &desc, &memory);
        std::printf("import: %d\n", (int)status);
        need(!status, "urBindlessImagesImportExternalMemoryExp");

        void *mapped;
        need(!urBindlessImagesMapExternalLinearMemoryExp(context, device, 0, bytes, memory, &mapped),
             "urBindlessImagesMapExternalLinearMemoryExp");
        std::vector<unsigned char> data(bytes);
        need(!urEnqueueUSMMemcpy(queue, true, data.data(), mapped, bytes, 0, nullptr, nullptr),
             "urEnqueueUSMMemcpy");
        check(all_are(data, 0x31), "imported memory has the exporter's data");
        unsigned char value = 0x32;
        need(!urEnqueueUSMFill(queue, mapped, 1, &value, bytes, 0, nullptr, nullptr), "urEnqueueUSMFill");
        need(!urQueueFinish(queue), "urQueueFinish");
        check(all_are(exported.read(), 0x32), "the exporter sees what a queue wrote");

        ur_image_format_t format{UR_IMAGE_CHANNEL_ORDER_R, UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32};
        ur_image_desc_t shape{};
        shape.stype = UR_STRUCTURE_TYPE_IMAGE_DESC;
        shape.type = UR_MEM_TYPE_IMAGE2D;
        shape.width = 64;
        shape.height = 32;
        shape.numMipLevel = 1;
        ur_exp_image_mem_native_handle_t image;
        status = urBindlessImagesMapExternalArrayExp(context, device, &format, &shape, memory, &image);
        std::printf("map of an image: %d\n", (int)status);
        check(!status, "imported memory is an image");
        if (!status) {
            std::vector<uint32_t> from(64 * 32), to(64 * 32);
            for (size_t at = 0; at < from.size(); ++at) from[at] = 7 * at + 1;
            ur_exp_image_copy_region_t region{};
            region.stype = UR_STRUCTURE_TYPE_EXP_IMAGE_COPY_REGION;
            region.copyExtent = {64 * sizeof(uint32_t), 32, 1};
            need(!urBindlessImagesImageCopyExp(
                     queue, from.data(), (void *)image, &shape, &shape, &format, &format, &region,
                     UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE, UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE, 0,
                     nullptr, nullptr),
                 "urBindlessImagesImageCopyExp to the image");
            need(!urBindlessImagesImageCopyExp(
                     queue, (void *)image, to.data(), &shape, &shape, &format, &format, &region,
                     UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_HOST, UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM, 0,
                     nullptr, nullptr),
                 "urBindlessImagesImageCopyExp from the image");
            need(!urQueueFinish(queue), "urQueueFinish");
            check(from == to, "pixels of imported memory");
            check(!urBindlessImagesImageFreeExp(context, device, image), "the image ends");
        }
        check(!urBindlessImagesReleaseExternalMemoryExp(context, device, memory), "the import ends");
        check(!urBindlessImagesFreeMappedLinearMemoryExp(context, device, mapped), "its mapping ends");
        exported.fill(0x33);
        check(all_are(exported.read(), 0x33), "the exporter keeps its memory");
    }
    need(!urQueueRelease(queue) && !urContextRelease(context) && !urAdapterRelease(adapter), "the end");
    need(!urLoaderTearDown(), "urLoaderTearDown");
    cuda.call("cuCtxPopCurrent_v2", &popped);
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0);
    std::printf("%d failed\n", failed);
    return failed;
}
