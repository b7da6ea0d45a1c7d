// Copies between two GPUs, and what access of several devices costs a pool's growth: the adapter beside the
// driver, in one process and in turns. Needs two GPUs, CUDA's headers and a loader beside its CUDA adapter:
//
//   c++ -O2 -std=c++17 -I../../../include -I$CUDA/include between.cpp -o between -L. -lur_loader -lcuda
//   UR_ADAPTERS_FORCE_LOAD=.../libur_adapter_cuda.so.0 ./between [MIB]
//
// Each row is a way to copy MIB (256) from the first device to the second: GB/s, the median of 15 samples of at
// least 2 ms, and its spread. The rows of a part are measured in turns. A row of the adapter ends with its
// ratio to the fastest row of the driver's in the same part. Every row checks what has arrived.
//
// The driver's rows differ by memory and call: `alloc` is cuMemAlloc, `pages` is cuMemCreate with cuMemSetAccess;
// `plain` is cuMemcpyAsync, `peer` is cuMemcpyPeerAsync.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <functional>
#include <string>
#include <ur_api.h>
#include <vector>

static void ur(ur_result_t code, const char *call) {
    if (code != UR_RESULT_SUCCESS) {
        std::printf("%s failed with %d\n", call, (int)code);
        std::exit(1);
    }
}
static void cu(CUresult code, const char *call) {
    if (code != CUDA_SUCCESS) {
        std::printf("%s failed with %d\n", call, (int)code);
        std::exit(1);
    }
}
#define UR(call) ur(call, #call)
#define CU(call) cu(call, #call)

struct Row {
    std::string name;
    bool ours;
    // Submits one copy, and waits for all of them.
    std::function<void()> copy, drain;
    // Where the copy comes from and goes to.
    CUdeviceptr from, to;
    std::vector<double> rates;
};

static CUcontext contexts[2];
static CUstream streams[2];
static size_t bytes;

static double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

// Makes a device's context current while it lives.
struct Current {
    explicit Current(int device) { CU(cuCtxPushCurrent(contexts[device])); }
    ~Current() { CU(cuCtxPopCurrent(nullptr)); }
};

static CUdeviceptr allocated(int device) {
    Current current(device);
    CUdeviceptr memory;
    CU(cuMemAlloc(&memory, bytes));
    return memory;
}

// Pages of one device, mapped for that device and perhaps the other.
static CUdeviceptr mapped(int device, bool shared) {
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    CU(cuMemCreate(&handle, bytes, &what, 0));
    CU(cuMemAddressReserve(&memory, bytes, 0, 0, 0));
    CU(cuMemMap(memory, bytes, 0, handle, 0));
    CUmemAccessDesc who[2];
    for (int own = 0; own < 2; ++own) {
        who[own].location = {CU_MEM_LOCATION_TYPE_DEVICE, own == 0 ? device : 1 - device};
        who[own].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    CU(cuMemSetAccess(memory, bytes, who, shared ? 2 : 1));
    return memory;
}

static void set(int device, CUdeviceptr memory, unsigned word) {
    Current current(device);
    CU(cuMemsetD32(memory, word, bytes / 4));
    CU(cuCtxSynchronize());
}

static void check(Row &row, unsigned word) {
    set(0, row.from, word);
    set(1, row.to, 0);
    row.copy();
    row.drain();
    Current current(1);
    for (CUdeviceptr at : {row.to, row.to + bytes / 8 * 4, row.to + bytes - 4}) {
        unsigned there = 0;
        CU(cuMemcpyDtoH(&there, at, 4));
        if (there != word) {
            std::printf("%s: a word is %u, not %u\n", row.name.c_str(), there, word);
            std::exit(1);
        }
    }
}

static void measure(const char *part, std::vector<Row> &rows) {
    unsigned word = 1;
    for (Row &row : rows) check(row, ++word);
    for (int turn = 0; turn < 15; ++turn)
        for (Row &row : rows) {
            row.drain();
            int copies = 0;
            double start = now(), took;
            do {
                for (int i = 0; i < 4; ++i) row.copy();
                copies += 4;
                row.drain();
                took = now() - start;
            } while (took < 2e-3);
            row.rates.push_back(1e-9 * bytes * copies / took);
        }
    double best = 0;
    for (Row &row : rows)
        if (!row.ours) best = std::max(best, median(row.rates));
    std::printf("%s, %zu KiB\n", part, bytes >> 10);
    for (Row &row : rows) {
        auto [least, most] = std::minmax_element(row.rates.begin(), row.rates.end());
        double rate = median(row.rates);
        std::printf("  %-34s %8.2f GB/s  (%.2f to %.2f)", row.name.c_str(), rate, *least, *most);
        row.ours ? std::printf("  %.3f of the driver's\n", rate / best) : std::printf("\n");
    }
}

static Row driver(const char *name, CUdeviceptr from, CUdeviceptr to, bool peer, int on) {
    CUstream stream = streams[on];
    auto copy = [=] {
        Current current(on);
        if (peer)
            CU(cuMemcpyPeerAsync(to, contexts[1], from, contexts[0], bytes, stream));
        else
            CU(cuMemcpyAsync(to, from, bytes, stream));
    };
    auto drain = [=] {
        Current current(on);
        CU(cuStreamSynchronize(stream));
    };
    return {name, false, copy, drain, from, to, {}};
}

static Row ours(const char *name, void *from, void *to, ur_queue_handle_t queue) {
    auto copy = [=] { UR(urEnqueueUSMMemcpy(queue, false, to, from, bytes, 0, nullptr, nullptr)); };
    auto drain = [=] { UR(urQueueFinish(queue)); };
    return {name, true, copy, drain, (CUdeviceptr)from, (CUdeviceptr)to, {}};
}

// Milliseconds of the first allocation of 4 GiB in a new context over these devices.
static double growth(std::vector<ur_device_handle_t> devices) {
    ur_context_handle_t context;
    UR(urContextCreate((uint32_t)devices.size(), devices.data(), nullptr, &context));
    void *memory;
    double start = now();
    UR(urUSMDeviceAlloc(context, devices[0], nullptr, nullptr, (size_t)4 << 30, &memory));
    double took = 1e3 * (now() - start);
    UR(urUSMFree(context, memory));
    UR(urContextRelease(context));
    return took;
}

static void growths(const char *access, const ur_device_handle_t *devices) {
    std::vector<double> one, two;
    for (int turn = 0; turn < 7; ++turn) {
        one.push_back(growth({devices[0]}));
        two.push_back(growth({devices[0], devices[1]}));
    }
    std::printf("growth by 4 GiB: %.2f ms in a context of one device, %.2f ms of two %s\n", median(one),
                median(two), access);
}

int main(int argc, char **argv) {
    size_t large = (argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 256) << 20;
    CU(cuInit(0));
    for (int device = 0; device < 2; ++device) {
        CUdevice native;
        CU(cuDeviceGet(&native, device));
        CU(cuDevicePrimaryCtxRetain(&contexts[device], native));
        Current current(device);
        CU(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    }
    int can = 0, atomics = 0, rank = 0;
    CU(cuDeviceCanAccessPeer(&can, 1, 0));
    if (can) {
        CU(cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1, 0));
        CU(cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 0));
    }
    std::printf("access %d, atomics %d, rank %d\n", can, atomics, rank);

    UR(urLoaderInit(0, nullptr));
    ur_adapter_handle_t adapter;
    ur_platform_handle_t platform;
    ur_device_handle_t devices[2];
    UR(urAdapterGet(1, &adapter, nullptr));
    UR(urPlatformGet(adapter, 1, &platform, nullptr));
    UR(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 2, devices, nullptr));
    if (can) growths("with access", devices);
    ur_context_handle_t context;
    UR(urContextCreate(2, devices, nullptr, &context));
    ur_queue_handle_t queues[2];
    void *memory[2], *ordered[2];
    bytes = large;
    for (int device = 0; device < 2; ++device) {
        UR(urQueueCreate(context, devices[device], nullptr, &queues[device]));
        UR(urUSMDeviceAlloc(context, devices[device], nullptr, nullptr, bytes, &memory[device]));
        UR(urEnqueueUSMDeviceAllocExp(queues[device], nullptr, bytes, nullptr, 0, nullptr, &ordered[device],
                                      nullptr));
        UR(urQueueFinish(queues[device]));
    }
    CUdeviceptr alloc[2], own[2], shared[2] = {};
    for (int device = 0; device < 2; ++device) {
        alloc[device] = allocated(device);
        own[device] = mapped(device, false);
        if (can) shared[device] = mapped(device, true);
    }
    const size_t sizes[] = {large, (size_t)1 << 20, (size_t)4 << 10};

    if (can) {
        for (size_t size : sizes) {
            bytes = size;
            std::vector<Row> rows;
            rows.push_back(driver("pages, plain, first's stream", shared[0], shared[1], false, 0));
            rows.push_back(driver("pages, plain, second's stream", shared[0], shared[1], false, 1));
            rows.push_back(driver("pages, peer, first's stream", shared[0], shared[1], true, 0));
            rows.push_back(ours("USM, first's queue", memory[0], memory[1], queues[0]));
            rows.push_back(ours("USM, second's queue", memory[0], memory[1], queues[1]));
            rows.push_back(ours("asynchronous, first's queue", ordered[0], ordered[1], queues[0]));
            measure("with access of pages", rows);
        }
        // Enabled and disabled, access is off for members of a context, too.
        for (int from = 0; from < 2; ++from) {
            UR(urUsmP2PEnablePeerAccessExp(devices[from], devices[1 - from]));
            UR(urUsmP2PDisablePeerAccessExp(devices[from], devices[1 - from]));
        }
    }
    for (size_t size : sizes) {
        bytes = size;
        std::vector<Row> rows;
        rows.push_back(driver("alloc, plain, first's stream", alloc[0], alloc[1], false, 0));
        rows.push_back(driver("alloc, peer, first's stream", alloc[0], alloc[1], true, 0));
        rows.push_back(driver("pages, peer, first's stream", own[0], own[1], true, 0));
        rows.push_back(driver("pages, peer, second's stream", own[0], own[1], true, 1));
        rows.push_back(ours("USM, first's queue", memory[0], memory[1], queues[0]));
        rows.push_back(ours("USM, second's queue", memory[0], memory[1], queues[1]));
        rows.push_back(ours("asynchronous, first's queue", ordered[0], ordered[1], queues[0]));
        measure("without access", rows);
    }
    if (can) {
        for (int from = 0; from < 2; ++from) {
            Current current(from);
            CU(cuCtxEnablePeerAccess(contexts[1 - from], 0));
            UR(urUsmP2PEnablePeerAccessExp(devices[from], devices[1 - from]));
        }
        for (size_t size : sizes) {
            bytes = size;
            std::vector<Row> rows;
            rows.push_back(driver("alloc, plain, first's stream", alloc[0], alloc[1], false, 0));
            rows.push_back(driver("alloc, peer, first's stream", alloc[0], alloc[1], true, 0));
            rows.push_back(ours("USM, first's queue", memory[0], memory[1], queues[0]));
            rows.push_back(ours("asynchronous, first's queue", ordered[0], ordered[1], queues[0]));
            measure("with access of contexts", rows);
        }
        for (int from = 0; from < 2; ++from)
            UR(urUsmP2PDisablePeerAccessExp(devices[from], devices[1 - from]));
    }
    for (int device = 0; device < 2; ++device) {
        UR(urUSMFree(context, memory[device]));
        UR(urEnqueueUSMFreeExp(queues[device], nullptr, ordered[device], 0, nullptr, nullptr));
        UR(urQueueFinish(queues[device]));
        UR(urQueueRelease(queues[device]));
    }
    UR(urContextRelease(context));

    growths("without access", devices);
    UR(urAdapterRelease(adapter));
    UR(urLoaderTearDown());
}
