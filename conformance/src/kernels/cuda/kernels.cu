// The test kernels for CUDA. compile.py makes `kernels.ptx` from this file.
//
// A kernel comes twice, as DPC++ makes them: for launches without a global offset, and, named `_with_offset`,
// for those with one, which is then the last parameter. Local memory is an offset into the work-group's
// shared memory.

struct Offset { unsigned int of[3]; };
struct Triple { unsigned char a; unsigned long long b; unsigned short c; };
struct Ids { unsigned int global[3], local[3], group[3], range[3], size[3], groups[3], offset[3]; };

extern __shared__ unsigned char shared[];

// The linear position of the work-item, without its offset.
__device__ unsigned long long position() {
    unsigned long long x = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long y = blockIdx.y * (unsigned long long)blockDim.y + threadIdx.y;
    unsigned long long z = blockIdx.z * (unsigned long long)blockDim.z + threadIdx.z;
    unsigned long long width = gridDim.x * (unsigned long long)blockDim.x;
    unsigned long long height = gridDim.y * (unsigned long long)blockDim.y;
    return (z * height + y) * width + x;
}

// Both forms of a kernel that does not use its offset.
#define TWICE(name, parameters, ...)                                                               \
    extern "C" __global__ void name(INSIDE parameters) { __VA_ARGS__ }                             \
    extern "C" __global__ void name##_with_offset(INSIDE parameters, Offset) { __VA_ARGS__ }
#define INSIDE(...) __VA_ARGS__

TWICE(iota, (unsigned int *out, unsigned int base), { out[position()] = base + (unsigned int)position(); })

TWICE(add, (unsigned int *data, unsigned int amount), { data[position()] += amount; })

TWICE(sum, (unsigned int *out, const unsigned int *a, const unsigned int *b),
      { out[position()] = a[position()] + b[position()]; })

TWICE(verify, (const unsigned int *data, unsigned int base, unsigned int *wrong), {
    if (data[position()] != base + (unsigned int)position()) atomicAdd_system(wrong, 1u);
})

__device__ void write_ids(Ids *out, Offset offset) {
    unsigned int local[3] = {threadIdx.x, threadIdx.y, threadIdx.z};
    unsigned int group[3] = {blockIdx.x, blockIdx.y, blockIdx.z};
    unsigned int size[3] = {blockDim.x, blockDim.y, blockDim.z};
    unsigned int groups[3] = {gridDim.x, gridDim.y, gridDim.z};
    Ids *to = out + position();
    for (int d = 0; d < 3; ++d) {
        to->global[d] = group[d] * size[d] + local[d] + offset.of[d];
        to->local[d] = local[d];
        to->group[d] = group[d];
        to->range[d] = groups[d] * size[d];
        to->size[d] = size[d];
        to->groups[d] = groups[d];
        to->offset[d] = offset.of[d];
    }
}

extern "C" __global__ void ids(Ids *out) { write_ids(out, Offset{{0, 0, 0}}); }

extern "C" __global__ void ids_with_offset(Ids *out, Offset offset) { write_ids(out, offset); }

TWICE(through_local, (unsigned int *out, unsigned int scratch), {
    volatile unsigned int *own = (volatile unsigned int *)(shared + scratch);
    own[threadIdx.x] = threadIdx.x;
    out[position()] = own[threadIdx.x];
})

TWICE(mixed,
      (unsigned long long *out, unsigned char a, unsigned short b, unsigned int c,
       unsigned long long d, Triple e),
      { out[position()] = a + b + c + d + e.a + e.b + e.c; })

TWICE(reach, (const unsigned long long *addresses, unsigned int amount),
      { *(unsigned int *)addresses[position()] += amount; })
