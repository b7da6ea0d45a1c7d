// The cost of calls over the driver's own, in one process and in turns: launches, copies, fills, pairs of
// allocation and free. Needs a GPU, a CUDA toolkit and a loader beside its CUDA adapter:
//
//   c++ -O2 -std=c++17 -I../../../include -I$CUDA/include calls.cpp -o calls -L. -lur_loader -lcuda -ldl
//   UR_ADAPTERS_FORCE_LOAD=.../libur_adapter_cuda.so.0 ./calls [CALL...]
//
// With CALLs, only those whose names begin so. Times are host times in nanoseconds: medians of 128 samples of
// 400 calls, with an empty stream at the start of each. The cost of a call over the driver's is the median
// difference of two successive samples, since the host's speed changes.
//
// The driver's own call takes up to 127 ns more on one stream than on another, for an unknown reason. By
// default the driver spreads streams over eight connections to the device. So there are eight streams of the
// driver, eight queues, and eight more streams. They are made in turns, so that each kind has all
// connections. Each stream is compared with each queue, in any order. The difference between the two kinds of
// streams is printed, too: it is noise.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <functional>
#include <string>
#include <thread>
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

// The launched kernel: to[i] = a[i] + b[i] + c[i], with one block.
static const char kernels[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry sum(.param .u64 to, .param .u64 a, .param .u64 b, .param .u64 c) {
    .reg .u32 %r<5>;
    .reg .u64 %rd<6>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd5, %r1, 4;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u64 %rd4, [to];
    add.u64 %rd1, %rd1, %rd5;
    add.u64 %rd2, %rd2, %rd5;
    add.u64 %rd3, %rd3, %rd5;
    add.u64 %rd4, %rd4, %rd5;
    ld.u32 %r2, [%rd1];
    ld.u32 %r3, [%rd2];
    ld.u32 %r4, [%rd3];
    add.u32 %r2, %r2, %r3;
    add.u32 %r2, %r2, %r4;
    st.u32 [%rd4], %r2;
    ret;
}
)";

struct Measure {
    const char *name;
    // Empty where the driver has no comparable call.
    std::function<void()> bare, ours;
    std::vector<double> bare_times, our_times, over, noise;
};

// Number of streams or queues of a kind, and number of samples in which each pair occurs twice.
static const int sides = 8, samples = 2 * sides * sides;

static double sample(const std::function<void()> &call, const std::function<void()> &drain) {
    const int calls = 400;
    drain();
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    drain();
    return took.count() / calls;
}

// Millions of calls in a second by `threads` threads together, each with its own number.
static double together(int threads, const std::function<void(int)> &call) {
    const int calls = 500000;
    std::atomic<int> ready{0};
    std::vector<std::chrono::steady_clock::time_point> from(threads), to(threads);
    std::vector<std::thread> all;
    for (int own = 0; own < threads; ++own)
        all.emplace_back([&, own] {
            call(own);
            ++ready;
            while (ready < threads) {}
            from[own] = std::chrono::steady_clock::now();
            for (int i = 0; i < calls; ++i) call(own);
            to[own] = std::chrono::steady_clock::now();
        });
    for (auto &one : all) one.join();
    auto first = *std::min_element(from.begin(), from.end());
    auto last = *std::max_element(to.begin(), to.end());
    return 1e3 * calls * threads / std::chrono::duration<double, std::nano>(last - first).count();
}

static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
}

int main(int argc, char **argv) {
    CU(cuInit(0));
    CUdevice native;
    CU(cuDeviceGet(&native, 0));
    CUcontext primary;
    CU(cuDevicePrimaryCtxRetain(&primary, native));
    CU(cuCtxPushCurrent(primary));
    CUmodule module;
    CU(cuModuleLoadData(&module, kernels));
    CUfunction function;
    CU(cuModuleGetFunction(&function, module, "sum"));
    CUevent native_event;
    CU(cuEventCreate(&native_event, CU_EVENT_DISABLE_TIMING));

    UR(urLoaderInit(0, nullptr));
    ur_adapter_handle_t adapter;
    ur_platform_handle_t platform;
    ur_device_handle_t device;
    UR(urAdapterGet(1, &adapter, nullptr));
    UR(urPlatformGet(adapter, 1, &platform, nullptr));
    UR(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 1, &device, nullptr));
    ur_context_handle_t context;
    UR(urContextCreate(1, &device, nullptr, &context));
    // The streams or queues of the next calls.
    CUstream stream, bare_streams[sides], more_streams[sides];
    ur_queue_handle_t queue, queues[sides], loose;
    for (int i = 0; i < sides; ++i) {
        CU(cuStreamCreate(i % 2 ? &more_streams[i] : &bare_streams[i], CU_STREAM_NON_BLOCKING));
        UR(urQueueCreate(context, device, nullptr, &queues[i]));
        CU(cuStreamCreate(i % 2 ? &bare_streams[i] : &more_streams[i], CU_STREAM_NON_BLOCKING));
    }
    stream = bare_streams[0], queue = queues[0];
    ur_queue_properties_t properties = {UR_STRUCTURE_TYPE_QUEUE_PROPERTIES, nullptr,
                                        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE};
    UR(urQueueCreate(context, device, &properties, &loose));
    size_t size = sizeof(kernels);
    const uint8_t *text = (const uint8_t *)kernels;
    ur_program_handle_t program;
    UR(urProgramCreateWithBinary(context, 1, &device, &size, &text, nullptr, &program));
    UR(urProgramBuild(context, program, nullptr));
    ur_kernel_handle_t kernel;
    UR(urKernelCreate(program, "sum", &kernel));
    const size_t bytes = 1 << 20;
    void *memory, *host;
    UR(urUSMDeviceAlloc(context, device, nullptr, nullptr, bytes, &memory));
    UR(urUSMHostAlloc(context, nullptr, nullptr, bytes, &host));
    void *far = (char *)memory + bytes / 2;

    void *pointers[4] = {memory, memory, far, far};
    void *params[4] = {&pointers[0], &pointers[1], &pointers[2], &pointers[3]};
    ur_exp_kernel_arg_properties_t args[4] = {};
    for (uint32_t i = 0; i < 4; ++i) {
        args[i].stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES;
        args[i].type = UR_EXP_KERNEL_ARG_TYPE_POINTER;
        args[i].index = i;
        args[i].size = sizeof(void *);
        args[i].value.pointer = pointers[i];
    }
    const size_t global = 256, local = 256;
    auto launch = [&](ur_queue_handle_t on, uint32_t waits, const ur_event_handle_t *list, ur_event_handle_t *event) {
        UR(urEnqueueKernelLaunchWithArgsExp(on, kernel, 1, nullptr, &global, &local, 4, args, nullptr, waits, list, event));
    };
    auto bare_launch = [&] { CU(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, params, nullptr)); };
    auto fill = [&](size_t pattern, size_t of = 4096) {
        static const unsigned char letters[] = "0123456789abcdefghijklmnopqrstuv";
        UR(urEnqueueUSMFill(queue, memory, pattern, letters, of, 0, nullptr, nullptr));
    };
    auto pair = [&](size_t of) {
        void *block;
        UR(urEnqueueUSMDeviceAllocExp(queue, nullptr, of, nullptr, 0, nullptr, &block, nullptr));
        UR(urEnqueueUSMFreeExp(queue, nullptr, block, 0, nullptr, nullptr));
    };
    auto native_pair = [&](size_t of) {
        CUdeviceptr block;
        CU(cuMemAllocAsync(&block, of, stream));
        CU(cuMemFreeAsync(block, stream));
    };
    auto pair_with_events = [&] {
        void *block;
        ur_event_handle_t made, freed;
        UR(urEnqueueUSMDeviceAllocExp(queue, nullptr, 4096, nullptr, 0, nullptr, &block, &made));
        UR(urEnqueueUSMFreeExp(queue, nullptr, block, 0, nullptr, &freed));
        UR(urEventRelease(made));
        UR(urEventRelease(freed));
    };
    auto chain = [&](bool allocates) {
        void *block = nullptr;
        ur_event_handle_t made = nullptr, ran, freed;
        if (allocates)
            UR(urEnqueueUSMDeviceAllocExp(loose, nullptr, 4096, nullptr, 0, nullptr, &block, &made));
        launch(loose, allocates ? 1 : 0, allocates ? &made : nullptr, &ran);
        if (allocates) {
            UR(urEnqueueUSMFreeExp(loose, nullptr, block, 1, &ran, &freed));
            UR(urEventRelease(made));
            UR(urEventRelease(freed));
        }
        UR(urEventRelease(ran));
    };
    // Four queues. Each launch waits for the last launches of two other queues and has its own event.
    const int webbed = 4, kept = 64;
    ur_queue_handle_t web[webbed];
    ur_event_handle_t last[webbed];
    CUstream streams[webbed];
    CUevent marks[webbed][kept];
    for (int i = 0; i < webbed; ++i) {
        if (i % 2) CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        UR(urQueueCreate(context, device, nullptr, &web[i]));
        launch(web[i], 0, nullptr, &last[i]);
        if (i % 2 == 0) CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        for (auto &mark : marks[i]) {
            CU(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
            CU(cuEventRecord(mark, streams[i]));
        }
    }
    unsigned turn = 0, bare_turn = 0;
    auto joined = [&] {
        int own = turn++ % webbed;
        ur_event_handle_t list[2] = {last[(own + 1) % webbed], last[(own + 2) % webbed]}, before = last[own];
        launch(web[own], 2, list, &last[own]);
        UR(urEventRelease(before));
    };
    // The launches of four queues with existing events, which are used again.
    auto bare_joined = [&] {
        int own = bare_turn % webbed, round = bare_turn / webbed;
        ++bare_turn;
        for (int other : {(own + 1) % webbed, (own + 2) % webbed})
            CU(cuStreamWaitEvent(streams[own], marks[other][(other < own ? round : round + kept - 1) % kept], 0));
        CU(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, streams[own], params, nullptr));
        CU(cuEventRecord(marks[own][round % kept], streams[own]));
    };
    ur_event_handle_t finished;
    launch(queue, 0, nullptr, &finished);
    UR(urEventWait(1, &finished));
    pair(4096), pair(256 << 20);

    std::vector<Measure> all;
    auto wanted = [&](const std::string &name) {
        auto begins = [&](const char *with) { return name.rfind(with, 0) == 0; };
        return argc < 2 || std::any_of(argv + 1, argv + argc, begins);
    };
    auto add = [&](const char *name, std::function<void()> bare, std::function<void()> ours) {
        if (wanted(name)) all.push_back({name, bare, ours, {}, {}, {}, {}});
    };
    add("launch (4 pointers)", bare_launch, [&] { launch(queue, 0, nullptr, nullptr); });
    add("launch, event, release", bare_launch, [&] {
        ur_event_handle_t event;
        launch(queue, 0, nullptr, &event);
        UR(urEventRelease(event));
    });
    add("launch after two others, event", bare_joined, joined);
    add("copy of 64 B", [&] { CU(cuMemcpyAsync((CUdeviceptr)memory, (CUdeviceptr)far, 64, stream)); },
        [&] { UR(urEnqueueUSMMemcpy(queue, false, memory, far, 64, 0, nullptr, nullptr)); });
    add("fill, 1 B pattern", [&] { CU(cuMemsetD8Async((CUdeviceptr)memory, 1, 4096, stream)); }, [&] { fill(1); });
    add("fill, 4 B pattern", [&] { CU(cuMemsetD32Async((CUdeviceptr)memory, 1, 1024, stream)); }, [&] { fill(4); });
    // The driver has no such fill, except one column of four bytes at a time.
    auto columns = [&](int words) {
        for (int i = 0; i < words; ++i)
            CU(cuMemsetD2D32Async((CUdeviceptr)memory + 4 * i, 4 * words, i, 1, 1024 / words, stream));
    };
    add("fill, 8 B pattern", [=] { columns(2); }, [&] { fill(8); });
    add("fill, 16 B pattern", [=] { columns(4); }, [&] { fill(16); });
    for (size_t kib : {64, 1024}) {
        for (size_t pattern : {4, 8, 16}) {
            std::string name = "fill of " + std::to_string(kib) + " KiB, " + std::to_string(pattern) + " B pattern";
            std::function<void()> bare = [&, kib] {
                CU(cuMemsetD32Async((CUdeviceptr)memory, 1, kib * 256, stream));
            };
            add(strdup(name.c_str()), pattern == 4 ? bare : std::function<void()>(),
                [&, kib, pattern] { fill(pattern, kib << 10); });
        }
    }
    add("wait for a finished event", [&] { CU(cuEventQuery(native_event)); }, [&] { UR(urEventWait(1, &finished)); });
    for (size_t of : {256ul, 65536ul, 16ul << 20, 256ul << 20}) {
        static std::vector<std::string> names(8);
        names.push_back("alloc and free, " + std::to_string(of) + " B");
        char *name = strdup(names.back().c_str());
        add(name, [&, of] { native_pair(of); }, [&, of] { pair(of); });
    }
    add("the same, 4 KiB, two events", {}, pair_with_events);
    add("out of order: launch", {}, [&] { chain(false); });
    add("out of order: alloc, launch, free", {}, [&] { chain(true); });

    if (wanted("pairs")) {
        std::vector<ur_queue_handle_t> own_queues(8);
        for (auto &own : own_queues) UR(urQueueCreate(context, device, nullptr, &own));
        std::printf("## pairs of 4 KiB, each thread on a queue of its own; beside a loop of arithmetic\n");
        for (int threads : {1, 2, 4, 8}) {
            double pairs = together(threads, [&](int own) {
                void *block = nullptr;
                UR(urEnqueueUSMDeviceAllocExp(own_queues[own], nullptr, 4096, nullptr, 0, nullptr, &block, nullptr));
                UR(urEnqueueUSMFreeExp(own_queues[own], nullptr, block, 0, nullptr, nullptr));
            });
            double steps = together(threads, [](int) {
                for (volatile int i = 0; i < 40; i = i + 1) {}
            });
            std::printf("%d threads: %.1f million pairs a second; %.1f million loops\n", threads, pairs, steps);
        }
        for (auto own : own_queues) UR(urQueueRelease(own));
    }

    auto finish = [&] {
        for (auto one : queues) UR(urQueueFinish(one));
        UR(urQueueFinish(loose));
        for (auto one : web) UR(urQueueFinish(one));
    };
    auto drain = [&] {
        for (auto one : bare_streams) CU(cuStreamSynchronize(one));
        for (auto one : more_streams) CU(cuStreamSynchronize(one));
        for (auto one : streams) CU(cuStreamSynchronize(one));
        finish();
    };
    // The first samples are discarded, since the host has not reached its full speed.
    for (int round = 0; round < 10; ++round) {
        for (auto &one : all) {
            stream = bare_streams[round % sides], queue = queues[round % sides];
            if (one.bare) sample(one.bare, drain);
            sample(one.ours, drain);
        }
    }
    for (bool current : {true, false}) {
        for (auto &one : all) {
            one.bare_times.clear(), one.our_times.clear(), one.over.clear(), one.noise.clear();
            for (int round = 0; round < samples; ++round) {
                int own = round % sides, met = round / sides % sides;
                auto first = bare_streams[own], other = more_streams[(own + met) % sides];
                queue = queues[met];
                double bare = 0, again = 0, ours = 0;
                auto run_bare = [&] {
                    if (!one.bare) return;
                    stream = first, bare = sample(one.bare, drain);
                };
                auto run_again = [&] {
                    if (!one.bare) return;
                    stream = other, again = sample(one.bare, drain);
                };
                auto run_ours = [&] {
                    if (!current) CU(cuCtxPopCurrent(&primary));
                    ours = sample(one.ours, finish);
                    if (!current) CU(cuCtxPushCurrent(primary));
                };
                static const int orders[6][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}};
                for (int which : orders[round % 6]) which == 0 ? run_bare() : which == 1 ? run_ours() : run_again();
                one.our_times.push_back(ours);
                if (!one.bare) continue;
                one.bare_times.push_back(bare);
                one.over.push_back(ours - bare);
                one.noise.push_back(again - bare);
            }
        }
        std::printf("## the primary context is %scurrent on the caller's thread\n", current ? "" : "not ");
        std::printf("%-36s %10s %10s %10s %10s\n", "call", "driver ns", "ours ns", "over", "noise");
        for (auto &one : all) {
            double bare = median(one.bare_times), ours = median(one.our_times);
            if (one.bare)
                std::printf("%-36s %10.0f %10.0f %10.0f %10.0f\n", one.name, bare, ours, median(one.over), median(one.noise));
            else
                std::printf("%-36s %10s %10.0f\n", one.name, "", ours);
        }
    }
    return 0;
}
