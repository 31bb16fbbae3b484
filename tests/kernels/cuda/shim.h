// What linscan.cu asks of CUDA, for a compiler of plain C++.  shim.cpp runs the threads.

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define SHARED(Type, name) Type& name = *static_cast<Type*>(shim::shared_memory(sizeof(Type)))

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace shim {

struct Dimension {
    unsigned x;
};
struct Thread {
    Dimension thread, block, grid;
    uint64_t loaded, stored, vectors;  // bytes, bytes, and accesses of 16 bytes
};

Thread& self();
void* shared_memory(size_t size);
void barrier();
bool barrier_or(bool x);
unsigned shuffle(unsigned word, unsigned from);
unsigned ballot(bool x);
void launch(void (*body)(const void*), const void* parameters, unsigned blocks, unsigned threads);

template <class P>
void run(void (*kernel)(P), const void* parameters, unsigned blocks, unsigned threads) {
    static void (*chosen)(P);
    chosen = kernel;
    launch([](const void* p) { chosen(*static_cast<const P*>(p)); }, parameters, blocks, threads);
}

template <class T>
T load(const T* from) {
    self().loaded += sizeof(T);
    self().vectors += sizeof(T) == 16;
    return *from;
}
template <class T>
void store(T* to, T x) {
    self().stored += sizeof(T);
    self().vectors += sizeof(T) == 16;
    *to = x;
}

}  // namespace shim

#define threadIdx (shim::self().thread)
#define blockIdx (shim::self().block)
#define gridDim (shim::self().grid)
#define __ldca shim::load
#define __ldcs shim::load
#define __stcs shim::store

inline void __syncthreads() { shim::barrier(); }
inline int __syncthreads_or(int x) { return shim::barrier_or(x); }
inline unsigned __ballot_sync(unsigned, bool x) { return shim::ballot(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }

inline int __shfl_sync(unsigned, int word, int from, int width) {
    const unsigned lane = shim::self().thread.x % 32;
    return shim::shuffle(word, lane / width * width + from % width);
}
inline int __shfl_up_sync(unsigned, int word, int by, int width) {
    const unsigned lane = shim::self().thread.x % 32;
    return shim::shuffle(word, int(lane % width) < by ? lane : lane - by);
}

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof(x));
    return bits;
}
inline float half_to_float(unsigned short bits) {
    _Float16 x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
inline unsigned short float_to_half(float x) {
    const _Float16 half = x;
    unsigned short bits;
    memcpy(&bits, &half, sizeof(bits));
    return bits;
}

// The compiler may fuse a product with what is added to it, but not these.
inline float __fmul_rn(float a, float b) {
    float x = a * b;
    asm("" : "+m"(x));
    return x;
}
inline double __dmul_rn(double a, double b) {
    double x = a * b;
    asm("" : "+m"(x));
    return x;
}
