// Kernels on bindless images for CUDA. compile.py makes `bindless.ptx` from this file.
//
// A kernel takes images by value. `at` is the work-item, and pixels count along x first.

__device__ unsigned int at() { return blockIdx.x * blockDim.x + threadIdx.x; }

// A pixel at each pair of coordinates.
extern "C" __global__ void sample(float *out, const float *coordinates, unsigned long long image) {
    out[at()] = tex2D<float>(image, coordinates[2 * at()], coordinates[2 * at() + 1]);
}

extern "C" __global__ void sample_level(float *out, const float *coordinates,
                                        unsigned long long image, float level) {
    const float *own = coordinates + 2 * at();
    out[at()] = tex2DLod<float>(image, own[0], own[1], level);
}

extern "C" __global__ void sample_layer(float *out, const float *coordinates,
                                        unsigned long long image, unsigned int layer) {
    const float *own = coordinates + 2 * at();
    out[at()] = tex2DLayered<float>(image, own[0], own[1], (int)layer);
}

// A pixel in each direction.
extern "C" __global__ void sample_cube(float *out, const float *directions, unsigned long long image) {
    const float *own = directions + 3 * at();
    out[at()] = texCubemap<float>(image, own[0], own[1], own[2]);
}

// All pixels of a 2D image by their numbers.
extern "C" __global__ void fetch(unsigned int *out, unsigned long long image, unsigned int width) {
    out[at()] = tex2D<unsigned int>(image, (float)(at() % width), (float)(at() / width));
}

// All pixels of a line in linear memory.
extern "C" __global__ void fetch_line(unsigned int *out, unsigned long long image) {
    out[at()] = tex1Dfetch<unsigned int>(image, (int)at());
}

// Adds to each pixel of an unsampled image.
extern "C" __global__ void add_to_pixels(unsigned long long image, unsigned int width,
                                         unsigned int amount) {
    int x = (at() % width) * sizeof(unsigned int), y = at() / width;
    unsigned int pixel = surf2Dread<unsigned int>(image, x, y);
    surf2Dwrite<unsigned int>(pixel + amount, image, x, y);
}

// Writes to each pixel of the layers of an unsampled image.
extern "C" __global__ void write_layers(unsigned long long image, unsigned int width,
                                        unsigned int height, unsigned int base) {
    int x = at() % width, y = at() / width % height, layer = at() / (width * height);
    surf2DLayeredwrite<unsigned int>(base + at(), image, x * sizeof(unsigned int), y, layer);
}
