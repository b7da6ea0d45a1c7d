// Stream-ordered allocators compared in one process: this project's through the C interface, the driver's pool,
// RMM's pool and arena, PyTorch's caching allocator. peers.sh builds and runs it.
//
//   UR_ADAPTERS_FORCE_LOAD=.../libur_adapter_cuda.so.0 ./peers [ours] [MEASURE...] [PROGRAM...]
//
// A PROGRAM is a trace, which is repeated, or NAME=trace,trace,... for one that never repeats. Traces are text,
// as tools/traces/README.md says; `cargo xtask bench pool --programs FOLDER` makes those that never repeat.
// With MEASUREs (pair, threads, chain, growth, none), only those and the programs are measured; with `ours`,
// this project's allocator alone. Prints one figure on each line: measure, allocator, parameter and value, with
// tabs between. `cargo xtask bench peers` makes tables and plots from them. Times are host times.
//
// | measure | parameter | value |
// |---------|-----------|-------|
// | pair | bytes | ns for an allocation and its free on one queue, median of 9 times 2,000, on the core that is fastest |
// | threads | number | million pairs of 4 KiB in a second, each thread on its own queue, median of 9 |
// | chain | blocks | different addresses among 200 allocations of 64 MiB over four queues, each after the last free |
// | chain | ms | time of that chain with a fill of each block, median of 25 |
// | chain | ms alone | time of the fills in the same order on one existing block, in turns with the chain |
// | chain | beside alone | quotient of both times, median of 25 turns |
// | growth | ms | 256 allocations of 64 MiB from an empty pool, and a mapping of as much memory, in turns; median of 25 |
// | growth | beside mapping | quotient of both times, median of 25 turns |
// | first | program | ns for an operation of a program without other work, from an empty pool, median of 5 rounds of all allocators in turns |
// | again | program | the slowest of the five or more iterations after it, each the median of 5 |
// | later | program | the median of these iterations |
// | held | program | peak reserved bytes over peak live bytes, each operation followed by a fill of 4 KiB |

#include <algorithm>
#include <atomic>
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <sched.h>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <ur_api.h>
#include <utility>
#include <vector>

template <class Code> static void check(Code code, const char *call) {
    if ((int)code != 0) {
        std::fprintf(stderr, "%s failed with %d\n", call, (int)code);
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

static const int QUEUES = 8;
static const size_t WORK = 4096, LINK = 64 << 20;
// Number of samples where a tenth or less is to be compared.
static const int TURNS = 25;
// Number of runs of a program from an empty pool: its second run may take less than a third of a millisecond.
static const int ROUNDS = 5;
// Least number of iterations of a program in a round.
static const size_t ITERATIONS = 6;

static CUcontext primary;
static CUstream streams[QUEUES];
static CUevent marks[QUEUES];
static CUdeviceptr scratch;

// An allocator under measurement, on queues by number. Their streams are the driver's, unless it has its own.
struct Allocator {
    std::string name;
    explicit Allocator(std::string name) : name(std::move(name)) {}
    virtual ~Allocator() = default;
    virtual void *take(size_t bytes, int queue) = 0;
    virtual void give(void *block, size_t bytes, int queue) = 0;
    // Releases idle memory and resets the peak.
    virtual void reset() {}
    // The peak of reserved bytes since then, or 0 if unknown.
    virtual size_t held() { return 0; }
    // Whether it neither grows nor releases, nor reports its memory.
    virtual bool is_fixed() { return false; }

    virtual void wait() { CHECK(cuCtxSynchronize()); }
    virtual void work(int queue) { CHECK(cuMemsetD8Async(scratch, 1, WORK, streams[queue])); }
    // One link of a chain: it runs after the last one, on whichever queue that was. It uses its own block, or
    // `given` if that is not null.
    virtual void *link(int queue, void *given) {
        CHECK(cuStreamWaitEvent(streams[queue], last, 0));
        void *block = given ? given : take(LINK, queue);
        CHECK(cuMemsetD8Async((CUdeviceptr)block, 1, LINK, streams[queue]));
        if (!given) give(block, LINK, queue);
        CHECK(cuEventRecord(last = marks[queue], streams[queue]));
        return block;
    }

  private:
    CUevent last = marks[0];
};

struct Driver : Allocator {
    CUmemoryPool pool;
    Driver() : Allocator("the driver's pool") {
        CUmemPoolProps properties = {};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CHECK(cuMemPoolCreate(&pool, &properties));
        cuuint64_t all = ~0ull;
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    void *take(size_t bytes, int queue) override {
        CUdeviceptr block;
        CHECK(cuMemAllocFromPoolAsync(&block, bytes, pool, streams[queue]));
        return (void *)block;
    }
    void give(void *block, size_t, int queue) override { CHECK(cuMemFreeAsync((CUdeviceptr)block, streams[queue])); }
    void reset() override {
        wait();
        cuuint64_t none = 0;
        CHECK(cuMemPoolTrimTo(pool, 0));
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
    }
    size_t held() override {
        cuuint64_t high;
        CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high));
        return high;
    }
};

static rmm::mr::cuda_memory_resource upstream;

struct RmmPool : Allocator {
    std::unique_ptr<rmm::mr::pool_memory_resource> pool;
    RmmPool() : Allocator("RMM's pool") { reset(); }
    void *take(size_t bytes, int queue) override {
        return pool->allocate(cuda::stream_ref{(cudaStream_t)streams[queue]}, bytes, 256);
    }
    void give(void *block, size_t bytes, int queue) override {
        pool->deallocate(cuda::stream_ref{(cudaStream_t)streams[queue]}, block, bytes, 256);
    }
    void reset() override {
        wait();
        pool.reset();
        pool = std::make_unique<rmm::mr::pool_memory_resource>(upstream, 0);
    }
    size_t held() override { return pool->pool_size(); }
};

struct RmmArena : Allocator {
    rmm::mr::arena_memory_resource arena{upstream, 4ull << 30};
    RmmArena() : Allocator("RMM's arena") {}
    bool is_fixed() override { return true; }
    void *take(size_t bytes, int queue) override {
        return arena.allocate(cuda::stream_ref{(cudaStream_t)streams[queue]}, bytes, 256);
    }
    void give(void *block, size_t bytes, int queue) override {
        arena.deallocate(cuda::stream_ref{(cudaStream_t)streams[queue]}, block, bytes, 256);
    }
};

struct Torch : Allocator {
    Torch() : Allocator("PyTorch's") { c10::cuda::CUDACachingAllocator::init(1); }
    void *take(size_t bytes, int queue) override {
        return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, (cudaStream_t)streams[queue]);
    }
    void give(void *block, size_t, int) override { c10::cuda::CUDACachingAllocator::raw_delete(block); }
    void reset() override {
        wait();
        c10::cuda::CUDACachingAllocator::emptyCache();
        c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    }
    size_t held() override { return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].peak; }
};

struct Ours : Allocator {
    ur_device_handle_t device;
    ur_context_handle_t context;
    ur_queue_handle_t queues[QUEUES];
    ur_usm_pool_handle_t pool;
    ur_event_handle_t last = nullptr;
    Ours() : Allocator("ours") {
        ur_adapter_handle_t adapter;
        ur_platform_handle_t platform;
        CHECK(urLoaderInit(0, nullptr));
        CHECK(urAdapterGet(1, &adapter, nullptr));
        CHECK(urPlatformGet(adapter, 1, &platform, nullptr));
        CHECK(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 1, &device, nullptr));
        CHECK(urContextCreate(1, &device, nullptr, &context));
        for (auto &queue : queues) CHECK(urQueueCreate(context, device, nullptr, &queue));
        CHECK(urUSMPoolGetDefaultDevicePoolExp(context, device, &pool));
    }
    void *take(size_t bytes, int queue) override {
        void *block;
        CHECK(urEnqueueUSMDeviceAllocExp(queues[queue], nullptr, bytes, nullptr, 0, nullptr, &block, nullptr));
        return block;
    }
    void give(void *block, size_t, int queue) override {
        CHECK(urEnqueueUSMFreeExp(queues[queue], nullptr, block, 0, nullptr, nullptr));
    }
    void reset() override {
        wait();
        size_t none = 0;
        CHECK(urUSMPoolTrimToExp(context, device, pool, 0));
        CHECK(urUSMPoolSetInfoExp(pool, UR_USM_POOL_INFO_RESERVED_HIGH_EXP, &none, sizeof none));
    }
    size_t held() override {
        size_t high;
        CHECK(urUSMPoolGetInfoExp(pool, UR_USM_POOL_INFO_RESERVED_HIGH_EXP, &high, nullptr));
        return high;
    }
    void wait() override {
        for (auto queue : queues) CHECK(urQueueFinish(queue));
    }
    void work(int queue) override { fill(queue, (void *)scratch, WORK, 0, nullptr); }
    void *link(int queue, void *given) override {
        void *block = given;
        ur_event_handle_t before = last;
        uint32_t waits = before ? 1 : 0;
        const ur_event_handle_t *list = before ? &before : nullptr;
        if (!given) {
            CHECK(urEnqueueUSMDeviceAllocExp(queues[queue], nullptr, LINK, nullptr, waits, list, &block, nullptr));
            fill(queue, block, LINK, 0, nullptr);
            CHECK(urEnqueueUSMFreeExp(queues[queue], nullptr, block, 0, nullptr, &last));
        } else {
            fill(queue, block, LINK, waits, list, &last);
        }
        if (before) CHECK(urEventRelease(before));
        return block;
    }
    void fill(int queue, void *block, size_t bytes, uint32_t waits, const ur_event_handle_t *list,
              ur_event_handle_t *event = nullptr) {
        const unsigned char pattern = 1;
        CHECK(urEnqueueUSMFill(queues[queue], block, 1, &pattern, bytes, waits, list, event));
    }
};

// Memory mapped in the same steps without a pool, for the growth alone.
struct Mapping : Allocator {
    static const size_t STEPS = 256;
    CUdeviceptr range, next;
    CUmemAllocationProp properties = {};
    std::vector<CUmemGenericAllocationHandle> handles;
    Mapping() : Allocator("mapping alone") {
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CHECK(cuMemAddressReserve(&range, STEPS * LINK, LINK, 0, 0));
        next = range;
    }
    void *take(size_t bytes, int) override {
        CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUdeviceptr block = std::exchange(next, next + bytes);
        handles.emplace_back();
        CHECK(cuMemCreate(&handles.back(), bytes, &properties, 0));
        CHECK(cuMemMap(block, bytes, 0, handles.back(), 0));
        CHECK(cuMemSetAccess(block, bytes, &access, 1));
        return (void *)block;
    }
    void give(void *, size_t, int) override {}
    void reset() override {
        if (next > range) CHECK(cuMemUnmap(range, next - range));
        for (auto handle : handles) CHECK(cuMemRelease(handle));
        handles.clear();
        next = range;
    }
};

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}
using Sample = std::function<double()>;
static double middle(std::vector<double> all) {
    std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    return all[all.size() / 2];
}
static double median(const Sample &sample) {
    std::vector<double> all;
    for (int turn = 0; turn < 9; ++turn) all.push_back(sample());
    return middle(all);
}
// Samples of two in turns, and the quotients of successive ones, since the host's speed changes.
struct Compared {
    double one, other, quotient;
    Compared(const Sample &sample, const Sample &beside) {
        std::vector<double> ones, others, quotients;
        for (int turn = 0; turn < TURNS; ++turn) {
            others.push_back(beside());
            ones.push_back(sample());
            quotients.push_back(ones.back() / others.back());
        }
        one = middle(ones), other = middle(others), quotient = middle(quotients);
    }
};
static void tell(const char *measure, const Allocator &who, const std::string &of, double value) {
    std::printf("%s\t%s\t%s\t%.4g\n", measure, who.name.c_str(), of.c_str(), value);
    std::fflush(stdout);
}

// The least figure of all cores. A core of which another guest of the host runs the second thread has half its speed.
static double on_fastest_core(const Sample &measure) {
    cpu_set_t all, one;
    check(sched_getaffinity(0, sizeof all, &all), "sched_getaffinity");
    double least = std::numeric_limits<double>::infinity();
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        check(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
        least = std::min(least, measure());
    }
    check(sched_setaffinity(0, sizeof all, &all), "sched_setaffinity");
    return least;
}

static void pairs(Allocator &own) {
    for (size_t bytes : {256ul, 4096ul, 65536ul, 1ul << 20, 16ul << 20, 256ul << 20}) {
        auto pair = [&] {
            const int count = 2000;
            own.wait();
            auto start = Clock::now();
            for (int i = 0; i < count; ++i) own.give(own.take(bytes, 0), bytes, 0);
            return since(start) / count;
        };
        tell("pair", own, std::to_string(bytes), on_fastest_core([&] { return median(pair); }));
    }
}

// Starts the threads' time when all of them have made a pair.
static void threads(Allocator &own) {
    for (int count : {1, 2, 4, 8}) {
        tell("threads", own, std::to_string(count), median([&] {
            const int each = 10000;
            std::atomic<int> ready{0};
            std::vector<Clock::time_point> from(count), to(count);
            std::vector<std::thread> all;
            for (int queue = 0; queue < count; ++queue) {
                all.emplace_back([&, queue] {
                    CHECK(cuCtxSetCurrent(primary));
                    CHECK(cudaSetDevice(0));
                    own.give(own.take(4096, queue), 4096, queue);
                    ++ready;
                    while (ready < count) {}
                    from[queue] = Clock::now();
                    for (int i = 0; i < each; ++i) own.give(own.take(4096, queue), 4096, queue);
                    to[queue] = Clock::now();
                });
            }
            for (auto &one : all) one.join();
            own.wait();
            auto took = *std::max_element(to.begin(), to.end()) - *std::min_element(from.begin(), from.end());
            return 1e3 * each * count / std::chrono::duration<double, std::nano>(took).count();
        }));
    }
}

static void chain(Allocator &own) {
    std::set<void *> blocks;
    auto links = [&](bool allocates) {
        // Includes the allocator's memory, since its placement affects the speed of fills.
        void *given = allocates ? nullptr : own.take(LINK, 0);
        own.wait();
        auto start = Clock::now();
        for (int i = 0; i < 200; ++i) {
            void *block = own.link(i % 4, given);
            if (allocates) blocks.insert(block);
        }
        own.wait();
        double took = since(start) / 1e6;
        if (given) own.give(given, LINK, 0);
        return took;
    };
    own.reset();
    Compared took([&] { return links(true); }, [&] { return links(false); });
    tell("chain", own, "ms", took.one);
    tell("chain", own, "ms alone", took.other);
    tell("chain", own, "beside alone", took.quotient);
    tell("chain", own, "blocks", blocks.size());
}

static double grow(Allocator &own) {
    std::vector<void *> blocks;
    own.reset();
    auto start = Clock::now();
    for (size_t i = 0; i < Mapping::STEPS; ++i) blocks.push_back(own.take(LINK, 0));
    double took = since(start);
    for (auto block : blocks) own.give(block, LINK, 0);
    own.reset();
    return took / 1e6;
}

// Each in turns with the mapping, which is reported first, so that both follow a release of as much memory.
static void growth(Mapping &mapping, Allocator &own, bool first) {
    Compared took([&] { return grow(own); }, [&] { return grow(mapping); });
    tell("growth", own, "ms", took.one);
    tell("growth", own, "beside mapping", took.quotient);
    if (first) tell("growth", mapping, "ms", took.other);
}

struct Op {
    char kind;
    size_t id, bytes;
    int queue;
};

// One iteration of a program.
struct Iteration {
    std::vector<Op> ops;
    size_t ids = 0, peak = 0;
    explicit Iteration(const std::string &path) {
        Op op;
        std::ifstream file(path);
        size_t live = 0;
        while (file >> op.kind >> op.id >> op.bytes >> op.queue) {
            op.queue %= QUEUES;
            ops.push_back(op);
            ids = std::max(ids, op.id + 1);
            live += op.kind == 'a' ? op.bytes : -op.bytes;
            peak = std::max(peak, live);
        }
    }
    // Nanoseconds of an operation. Blocks left live are freed afterwards.
    double run(Allocator &own, bool works) const {
        std::vector<void *> blocks(ids, nullptr);
        auto give = [&](const Op &op) { own.give(std::exchange(blocks[op.id], nullptr), op.bytes, op.queue); };
        auto start = Clock::now();
        for (auto &op : ops) {
            if (op.kind == 'a') blocks[op.id] = own.take(op.bytes, op.queue);
            else give(op);
            if (works) own.work(op.queue);
        }
        double took = since(start) / ops.size();
        own.wait();
        for (auto &op : ops)
            if (op.kind == 'a' && blocks[op.id]) give(op);
        own.wait();
        return took;
    }
};

// A program is one trace, which is repeated, or NAME=trace,trace,... with one iteration each.
static void replay(const std::string &program, std::vector<std::unique_ptr<Allocator>> &all) {
    size_t equals = program.find('=');
    std::string name = program.substr(0, equals), paths = program;
    if (equals == std::string::npos) {
        name = program.substr(program.rfind('/') + 1);
        name = name.substr(0, name.find('.'));
    } else {
        paths = program.substr(equals + 1);
    }
    std::vector<Iteration> given;
    std::stringstream list(paths);
    for (std::string path; std::getline(list, path, ',');) given.emplace_back(path);
    size_t peak = 0;
    for (auto &one : given) peak = std::max(peak, one.peak);
    const size_t count = std::max(ITERATIONS, given.size());
    // All allocators in turns, so that a processor that changes its speed serves them alike.
    std::vector<std::vector<std::vector<double>>> times(all.size(), std::vector<std::vector<double>>(count));
    for (int round = 0; round < ROUNDS; ++round) {
        for (size_t a = 0; a < all.size(); ++a) {
            if (all[a]->is_fixed()) continue;
            all[a]->reset();
            for (size_t i = 0; i < count; ++i) times[a][i].push_back(given[i % given.size()].run(*all[a], false));
            all[a]->reset();
        }
    }
    for (size_t a = 0; a < all.size(); ++a) {
        auto &own = *all[a];
        if (own.is_fixed()) continue;
        std::vector<double> later;
        for (size_t i = 1; i < count; ++i) later.push_back(middle(times[a][i]));
        tell("first", own, name, middle(times[a][0]));
        tell("again", own, name, *std::max_element(later.begin(), later.end()));
        tell("later", own, name, middle(later));
        own.reset();
        for (auto &one : given) one.run(own, true);
        tell("held", own, name, (double)own.held() / peak);
        own.reset();
    }
}

int main(int argc, char **argv) {
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cudaFree(nullptr));
    CHECK(cuMemAlloc(&scratch, LINK));
    for (int i = 0; i < QUEUES; ++i) {
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&marks[i], CU_EVENT_DISABLE_TIMING));
    }
    const std::string measures[] = {"pair", "threads", "chain", "growth", "none"};
    bool alone = false;
    std::vector<std::string> wanted, traces;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "ours") {
            alone = true;
            continue;
        }
        bool measure = std::count(std::begin(measures), std::end(measures), argv[i]);
        (measure ? wanted : traces).push_back(argv[i]);
    }
    auto want = [&](const char *measure) {
        return wanted.empty() || std::count(wanted.begin(), wanted.end(), measure);
    };
    std::vector<std::unique_ptr<Allocator>> all;
    all.push_back(std::make_unique<Ours>());
    if (!alone) {
        all.push_back(std::make_unique<Driver>());
        all.push_back(std::make_unique<RmmPool>());
        all.push_back(std::make_unique<RmmArena>());
        all.push_back(std::make_unique<Torch>());
    }
    // The first samples are discarded, since the host has not reached its full speed.
    for (auto &own : all)
        for (int i = 0; i < 100000; ++i) own->give(own->take(4096, 0), 4096, 0);
    for (auto &own : all)
        if (want("pair")) pairs(*own);
    for (auto &own : all)
        if (want("threads")) threads(*own);
    for (auto &own : all)
        if (want("chain")) chain(*own);
    Mapping mapping;
    for (auto &own : all)
        if (want("growth") && !own->is_fixed()) growth(mapping, *own, own == all.front());
    for (auto &trace : traces) replay(trace, all);
    return 0;
}
