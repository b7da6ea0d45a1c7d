// Kernels that repeat patterns which the driver's own memset does not know. `fill.ptx` is this,
// compiled by NVRTC 12.2 with --gpu-architecture=compute_60 (see conformance/src/kernels/cuda/compile.py).

struct Words { unsigned int word[16]; };
struct Bytes { unsigned char byte[2048]; };

#define EACH(at, count)                                                                              \
    for (unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; at < (count); \
         at += (unsigned long long)gridDim.x * blockDim.x)

// Sixteen bytes at a multiple of sixteen.
extern "C" __global__ void ur_fill_16(uint4 *to, unsigned long long count, uint4 pattern) {
    EACH(at, count) to[at] = pattern;
}

// Eight bytes at a multiple of eight.
extern "C" __global__ void ur_fill_8(uint2 *to, unsigned long long count, uint2 pattern) {
    EACH(at, count) to[at] = pattern;
}

// Up to sixteen words of four bytes.
extern "C" __global__ void ur_fill_words(unsigned int *to, unsigned long long count, Words pattern, unsigned int words) {
    EACH(at, count) to[at] = pattern.word[at % words];
}

// Up to 2048 bytes, anywhere.
extern "C" __global__ void ur_fill_bytes(unsigned char *to, unsigned long long count, Bytes pattern, unsigned int bytes) {
    EACH(at, count) to[at] = pattern.byte[at % bytes];
}

// A slot of a mailbox, a fill: up to 4096 bytes, at a multiple of eight.
struct Post {
    unsigned long long to, pattern[2];
    // The last launch that may run it, and its length in units of eight bytes.
    unsigned int launch, count;
};

#define POSTS 128
#define WORDS (sizeof(Post) / 8)

// A mailbox, shared by host and device: numbers of fills posted and done, and the last closed launch.
struct Box {
    volatile unsigned long long posted, done, unused[6], closed, unused2[7];
    volatile unsigned long long posts[POSTS * WORDS];
};

// Runs the fills posted for this launch or an earlier one, in one work-group. It closes the launch before it
// reads the mailbox. The host posts before it reads `closed`, so it knows which fills were in time.
extern "C" __global__ void ur_fill_posted(Box *box, unsigned int launch) {
    __shared__ Post posts[POSTS];
    __shared__ unsigned long long from;
    __shared__ unsigned int count;
    if (threadIdx.x == 0) {
        box->closed = launch;
        __threadfence_system();
        from = box->done;
        count = (unsigned int)(box->posted - from);
        __threadfence_system();
    }
    __syncthreads();
    const unsigned int words = count * WORDS, first = (unsigned int)(from % POSTS) * WORDS;
    for (unsigned int at = threadIdx.x; at < words; at += blockDim.x)
        ((unsigned long long *)posts)[at] = box->posts[(first + at) % (POSTS * WORDS)];
    __syncthreads();
    unsigned int own = 0;
    // Numbers of launches come round.
    for (; own < count && (int)(posts[own].launch - launch) <= 0; ++own) {
        unsigned long long *to = (unsigned long long *)posts[own].to;
        for (unsigned int at = threadIdx.x; at < posts[own].count; at += blockDim.x) to[at] = posts[own].pattern[at % 2];
        // Later ones may write over it.
        __syncthreads();
    }
    if (threadIdx.x == 0) box->done = from + own;
}
