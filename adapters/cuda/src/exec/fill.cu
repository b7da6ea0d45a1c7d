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
