// First-order linear recurrences and the return estimators made of them, for any CUDA device.
//
// There are two kernels.  scan() gives GROUP neighbouring threads to each row, and each of them
// STEPS consecutive steps at a time; a group goes through its row tile by tile and carries the
// state.  GROUP = 1 is the loop itself, a row per thread, for rows that lie side by side in memory;
// 8 and 32 put several rows into a block; 256 is a row per block.
//
// Few long rows are cut into chunks, and read twice: scan() with TOTALS says what each chunk does to
// a state, join() follows the state through the chunks of a row, and scan() once more, from there.
//
// What is scanned is a Work: Scan, or Estimate.  It loads a thread's steps, says what each does to
// the state, and stores results.  Its LEAST_BLOCKS, per multiprocessor, is 0 where the compiler knows
// best, and 1 where it would rather spill a little than let only one block run.  The order of the
// arithmetic depends on sizes alone, so that the same input gives the same bits.

typedef long long Index;
typedef unsigned char Byte;

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;

#ifndef SHARED  // where threads are not hardware, who runs them says where a block's memory is
#define SHARED(Type, name) __shared__ Type name
#endif

// ------------------------------------------------------------------------------------- numbers

struct Half {
    unsigned short bits;
};

struct Bfloat {
    unsigned short bits;
};

template <class R>
struct alignas(2 * sizeof(R)) Complex {
    R re, im;
};

#ifdef __CUDACC__
__device__ inline float half_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ inline unsigned short float_to_half(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

// The type that states and sums of an element type are kept in, and the way there and back.

__device__ inline float widen(Half x) { return half_to_float(x.bits); }
__device__ inline float widen(Bfloat x) { return __uint_as_float(unsigned(x.bits) << 16); }
template <class E>
__device__ E widen(E x) {
    return x;
}

template <class E, class T>
__device__ E narrow(T x) {
    return x;
}
template <>
__device__ inline Half narrow<Half>(float x) {
    return {float_to_half(x)};
}
template <>
__device__ inline Bfloat narrow<Bfloat>(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return {(unsigned short)(bits >> 16 | 0x40)};
    return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <class E>
struct Wide {
    typedef E Type;
};
template <>
struct Wide<Half> {
    typedef float Type;
};
template <>
struct Wide<Bfloat> {
    typedef float Type;
};

__device__ inline float times_rounded(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times_rounded(double a, double b) { return __dmul_rn(a, b); }

// a * x + b
__device__ inline float advance(float a, float x, float b) { return fmaf(a, x, b); }
__device__ inline double advance(double a, double x, double b) { return fma(a, x, b); }
template <class R>
__device__ Complex<R> advance(Complex<R> a, Complex<R> x, Complex<R> b) {
    return {advance(-a.im, x.im, advance(a.re, x.re, b.re)),
            advance(a.im, x.re, advance(a.re, x.im, b.im))};
}

template <class T>
__device__ bool is_nan(T x) {
    return x != x;
}
template <class R>
__device__ bool is_nan(Complex<R> x) {
    return x.re != x.re || x.im != x.im;
}

template <class T>
__device__ bool is_finite(T x) {
    return x - x == 0;
}
template <class R>
__device__ bool is_finite(Complex<R> x) {
    return is_finite(x.re) && is_finite(x.im);
}

template <class T>
struct Number {
    __device__ static T of(double re, double) { return T(re); }
};
template <class R>
struct Number<Complex<R>> {
    __device__ static Complex<R> of(double re, double im) { return {R(re), R(im)}; }
};

// --------------------------------------------------------------------------- what steps do to a state

// A product of multipliers, as a sum of two numbers: the rounding error of equal multipliers is the
// same at every step, and would grow with their number.
template <class T>
struct Factor {
    T high, low;

    __device__ static Factor one() { return {1, 0}; }
    __device__ T rounded() const { return high + low; }
};

__device__ inline float low_product(float a, float b, float high) { return fmaf(a, b, -high); }
__device__ inline double low_product(double a, double b, double high) { return fma(a, b, -high); }

template <class T>
__device__ Factor<T> operator*(Factor<T> a, Factor<T> b) {
    const T high = times_rounded(a.high, b.high);
    const T low = low_product(a.high, b.high, high);
    return {high, advance(a.low, b.high, advance(a.high, b.low, low))};
}

template <class T>
__device__ Factor<T> operator*(Factor<T> a, T b) {
    const T high = times_rounded(a.high, b);
    return {high, advance(a.low, b, low_product(a.high, b, high))};
}

template <class T>
__device__ Factor<T> operator+(Factor<T> a, Factor<T> b) {
    const T high = a.high + b.high;
    const T c = high - a.high;
    return {high, ((a.high - (high - c)) + (b.high - c)) + (a.low + b.low)};
}

template <class T>
__device__ Factor<T> operator-(Factor<T> a) {
    return {-a.high, -a.low};
}

template <class R>
struct Factor<Complex<R>> {
    Factor<R> re, im;

    __device__ static Factor one() { return {{1, 0}, {0, 0}}; }
    __device__ Complex<R> rounded() const { return {re.rounded(), im.rounded()}; }
};

template <class R>
__device__ Factor<Complex<R>> operator*(Factor<Complex<R>> a, Factor<Complex<R>> b) {
    return {a.re * b.re + -(a.im * b.im), a.re * b.im + a.im * b.re};
}

template <class R>
__device__ Factor<Complex<R>> operator*(Factor<Complex<R>> a, Complex<R> b) {
    return {a.re * b.re + -(a.im * b.im), a.re * b.im + a.im * b.re};
}

// x -> a * x + b
template <class T>
struct Map {
    Factor<T> a;
    T b;

    __device__ static Map identity() { return {Factor<T>::one(), T{}}; }
};

template <class T>
__device__ T then(T x, Map<T> m) {
    return advance(m.a.rounded(), x, m.b);
}

template <class T>
__device__ Map<T> then(Map<T> first, Map<T> m) {
    return {first.a * m.a, advance(m.a.rounded(), first.b, m.b)};
}

template <class T>
__device__ Map<T> then(Map<T> first, T a, T b) {
    return {first.a * a, advance(a, first.b, b)};
}

// ----------------------------------------------------------------------------------- among threads

template <class X>
__device__ X shuffle_up(X x, int by, int width) {
    static_assert(sizeof(X) % 4 == 0, "whole words");
    int words[sizeof(X) / 4];
    memcpy(words, &x, sizeof(X));
#pragma unroll
    for (int& word : words) word = __shfl_up_sync(ALL, word, by, width);
    memcpy(&x, words, sizeof(X));
    return x;
}

template <class X>
__device__ X shuffle(X x, int from, int width) {
    static_assert(sizeof(X) % 4 == 0, "whole words");
    int words[sizeof(X) / 4];
    memcpy(words, &x, sizeof(X));
#pragma unroll
    for (int& word : words) word = __shfl_sync(ALL, word, from, width);
    memcpy(&x, words, sizeof(X));
    return x;
}

// A map after those of the threads before it among so many.
template <class T>
__device__ Map<T> after_those_before(Map<T> m, int width) {
    const int lane = threadIdx.x % width;
    for (int by = 1; by < width; by *= 2) {
        const Map<T> before = shuffle_up(m, by, width);
        if (lane >= by) m = then(before, m);
    }
    return m;
}

// ------------------------------------------------------------------------------------------ memory

// Strides are in bytes, and 0 where an operand broadcasts.  An operand that is not given is at 0.
struct Operand {
    char* at;
    Index outer, time, inner;

    __device__ char* row(Index i, Index j) const { return at + i * outer + j * inner; }
};

template <int BYTES>
struct Chunk;
template <>
struct Chunk<1> {
    typedef unsigned char Type;
};
template <>
struct Chunk<2> {
    typedef unsigned short Type;
};
template <>
struct Chunk<4> {
    typedef unsigned int Type;
};
template <>
struct Chunk<8> {
    typedef uint2 Type;
};
template <>
struct Chunk<16> {
    typedef uint4 Type;
};

// Reads through the caches when it will be read again, past them when it will not.
template <bool AGAIN, class E>
__device__ void read(E* to, const char* from) {
    typedef typename Chunk<sizeof(E)>::Type C;
    const C* at = reinterpret_cast<const C*>(from);
    const C chunk = AGAIN ? __ldca(at) : __ldcs(at);
    memcpy(to, &chunk, sizeof(E));
}

template <class E>
__device__ void write(char* to, const E* from) {
    typename Chunk<sizeof(E)>::Type chunk;
    memcpy(&chunk, from, sizeof(E));
    __stcs(reinterpret_cast<typename Chunk<sizeof(E)>::Type*>(to), chunk);
}

// As many elements as are read or written at once.
template <class E, int STEPS>
struct alignas(sizeof(E) * STEPS < 16 ? sizeof(E) * STEPS : 16) Vector {
    static constexpr int SIZE = sizeof(E) * STEPS < 16 ? STEPS : 16 / sizeof(E);
    E x[SIZE];
};

// The steps of a thread in memory order, of which the first `count` are there; else 0.
template <bool AGAIN, class E, int STEPS>
__device__ void load(E (&x)[STEPS], const char* at, Index by, bool wide, int count) {
    typedef Vector<E, STEPS> V;
    if (wide && count == STEPS) {
#pragma unroll
        for (int i = 0; i < STEPS; i += V::SIZE) {
            V v;
            read<AGAIN>(&v, at + i * Index(sizeof(E)));
#pragma unroll
            for (int k = 0; k < V::SIZE; ++k) x[i + k] = v.x[k];
        }
    } else {
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            x[i] = E{};
            if (i < count) read<AGAIN>(&x[i], at + i * by);
        }
    }
}

template <class E, int STEPS>
__device__ void store(const E (&x)[STEPS], char* at, Index by, bool wide, int count) {
    typedef Vector<E, STEPS> V;
    if (wide && count == STEPS) {
#pragma unroll
        for (int i = 0; i < STEPS; i += V::SIZE) {
            V v;
#pragma unroll
            for (int k = 0; k < V::SIZE; ++k) v.x[k] = x[i + k];
            write(at + i * Index(sizeof(E)), &v);
        }
    } else {
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            if (i < count) write(at + i * by, &x[i]);
        }
    }
}

// ---------------------------------------------------------------------------------------- the job

// What every kernel is told.  Positions count in the order of the scan, up to `padded`, the steps
// rounded up to whole threads; what lies outside a row changes nothing.
struct Job {
    Index rows, inner, time, padded;
    Index chunks, length, tiles;  // a chunk has `length` positions, in so many tiles
    Index wide;                   // every operand lies along time, and where vectors may be read
    char* totals;                 // one per chunk, rows first
    char* states;                 // one per chunk: the state before it; 0: from the beginning
};

// The steps that a thread has at a position: `count` of them, from the first in memory order.
struct Place {
    Index step;
    int count;
};

// The steps of a thread: what each does to the state, in the order of the scan.
template <class T, int STEPS>
struct Steps {
    T a[STEPS], b[STEPS];
    T c[STEPS], d[STEPS];  // c * (the state before a step) + d, if a work has another result
    unsigned cuts;         // bit i: step i selects b, and d

    __device__ Map<T> map() const {
        Map<T> m = Map<T>::identity();
#pragma unroll
        for (int i = 0; i < STEPS; ++i) m = then(m, a[i], b[i]);
        return m;
    }

    // The state after all of them; x holds it at every one.
    __device__ T walk(T state, T (&x)[STEPS]) const {
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            state = cuts >> i & 1 ? b[i] : advance(a[i], state, b[i]);
            x[i] = state;
        }
        return state;
    }
};

// One row of a work.
template <class E, bool REVERSE_>
struct Row {
    typedef typename Wide<E>::Type T;
    static constexpr int STEPS = sizeof(E) <= 4 ? 8 : sizeof(E) == 8 ? 4 : 2;
    static constexpr bool REVERSE = REVERSE_;

    Index time, padded;
    bool wide;

    __device__ Row(const Job& job, bool live)
        : time(live ? job.time : 0), padded(job.padded), wide(job.wide) {}

    __device__ Place place(Index position) const {
        const Index step = REVERSE ? padded - STEPS - position : position;
        const Index left = time - step;
        if (step < 0 || left <= 0) return {0, 0};
        return {step, int(left < STEPS ? left : STEPS)};
    }

    // Step i in the order of the scan, in memory order.
    __device__ static constexpr int at(int i) { return REVERSE ? STEPS - 1 - i : i; }

    __device__ bool first(Place place, int k) const {
        return place.step + k == (REVERSE ? time - 1 : 0);
    }
    __device__ bool last(Place place, int k) const {
        return place.step + k == (REVERSE ? 0 : time - 1);
    }
};

// -------------------------------------------------------------------------------------------- Scan

struct Nothing {};

// x[t] = a[t] * x[t-1] + b[t].  CONSTANT: a is the same at every step.
template <class E_, bool CONSTANT, bool REVERSE_>
struct Scan : Row<E_, REVERSE_> {
    typedef E_ E;
    typedef Row<E, REVERSE_> Base;
    typedef typename Base::T T;
    static constexpr int STEPS = Base::STEPS;
    static constexpr bool AHEAD = false;
    static constexpr int LEAST_BLOCKS = 0;
    typedef Nothing Ahead;
    typedef Nothing Head;

    struct Params {
        Job job;
        Operand a, b, initial, reset, x, final;
        double re, im;  // a, if it is a number
    };

    struct Raw {
        E a[CONSTANT ? 1 : STEPS], b[STEPS];
        Byte reset[STEPS];
    };

    struct State {
        T x;
        Ahead ahead;
    };

    const char *a, *b, *initial, *reset;
    char *x, *final;
    Index by_a, by_b, by_reset, by_x;
    T constant;

    __device__ Scan(const Params& p, Index i, Index j, bool live)
        : Base(p.job, live), a(p.a.row(i, j)), b(p.b.row(i, j)),
          initial(live && p.initial.at ? p.initial.row(i, j) : nullptr),
          reset(p.reset.at ? p.reset.row(i, j) : nullptr), x(p.x.row(i, j)),
          final(p.final.at ? p.final.row(i, j) : nullptr), by_a(p.a.time), by_b(p.b.time),
          by_reset(p.reset.time), by_x(p.x.time), constant{} {
        if constexpr (CONSTANT) {
            constant = Number<T>::of(p.re, p.im);
            if (p.a.at && live) constant = one(a);
        }
    }

    __device__ static T one(const char* at) {
        E element;
        read<true>(&element, at);
        return widen(element);
    }

    __device__ State start() const { return {initial ? one(initial) : T{}, {}}; }

    template <bool AGAIN>
    __device__ Raw fetch(Place p) const {
        Raw raw;
        const bool wide = this->wide;
        if constexpr (!CONSTANT) {
            load<AGAIN>(raw.a, a + p.step * by_a, by_a, wide, p.count);
        }
        load<AGAIN>(raw.b, b + p.step * by_b, by_b, wide, p.count);
        if (reset) load<AGAIN>(raw.reset, reset + p.step * by_reset, by_reset, wide, p.count);
        return raw;
    }

    template <bool>
    __device__ Steps<T, STEPS> steps(const Raw& raw, Place p, Ahead&, Head&) const {
        Steps<T, STEPS> s;
        s.cuts = 0;
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int k = Base::at(i);
            const bool there = k < p.count;
            const bool cut = there && ((reset && raw.reset[k]) || (!initial && this->first(p, k)));
            s.b[i] = there ? widen(raw.b[k]) : T{};
            s.a[i] = CONSTANT ? constant : widen(raw.a[CONSTANT ? 0 : k]);
            if (cut) s.a[i] = T{};
            if (!there) s.a[i] = Number<T>::of(1, 0);
            s.cuts |= unsigned(cut) << i;
        }
        return s;
    }

    __device__ void finish(T, const T (&state)[STEPS], const Steps<T, STEPS>&, const Raw&,
                           Place p) const {
        E results[STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int k = Base::at(i);
            results[k] = narrow<E>(state[i]);
            if (final && k < p.count && this->last(p, k)) write(final, &results[k]);
        }
        store(results, x + p.step * by_x, by_x, this->wide, p.count);
    }

    __device__ static T enter(const Head&, Ahead, T x) { return x; }
};

// ---------------------------------------------------------------------------------------- Estimate

enum Follows { GOES_ON, ENDED, TRUNCATED, END_OF_ROW, UNKNOWN };
enum Level { PLAIN, FLAGS, MASK };

// What follows the valid step to come, and why.
template <class T>
struct Following {
    T value;
    int code;
};

// A valid step by itself.
template <class T>
struct Known {
    T reward, value, next, log_rho;
};

// The same, if it is the first one of a chunk, which cannot know what follows.
template <class T>
struct Waiting : Known<T> {
    bool there = false;
};

// x[t] = b + a * x[t+1], where the trace goes on, else b; and there is c * x[t+1] + d, else d.
template <class T>
struct Term {
    T a, b, c, d;
};

template <class T, int COUNT>
struct Results {
    T x[COUNT];
};

struct EstimateParams {
    Job job;
    Operand rewards, values, other, last, terminated, truncated, mask, gamma, lam, log_rhos;
    Operand out[3];
    Index estimator, next, current, carry;  // next: other is next_values
    Index gamma_size, lam_size;             // in bytes; 0 for numbers
    double gamma_number, lam_number, log_rho, rho_clip, c_clip, pg_rho_clip, leak;
};

// x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t+1]     where the trace goes on
// x[t] = r[t] + cut * n[t] (- v[t])                    where it ends
enum Estimator { GAE, DISCOUNTED_RETURNS, TD_LAMBDA };

template <class T>
struct Returns {
    static constexpr bool RHOS = false, ANOTHER = false;
    static constexpr int RESULTS = 2;

    bool gae;
    T on, cut, keep;

    __device__ Returns(const EstimateParams& p, double gamma, double lam)
        : gae(p.estimator == GAE), on(T(gamma)), cut(T(gamma)), keep(T(gamma * lam)) {
        if (p.estimator == DISCOUNTED_RETURNS) on = T(0 * gamma), keep = T(gamma);
        if (p.estimator == TD_LAMBDA) on = T(gamma * (1 - lam));
    }

    __device__ Term<T> term(const Known<T>& step, T n, T, bool goes_on) const {
        const T x = advance(goes_on ? on : cut, n, step.reward);
        return {keep, gae ? x - step.value : x, T{}, T{}};
    }

    __device__ Results<T, RESULTS> results(T x, T value, T) const { return {x, x + value}; }
};

// x[t] = rho (r[t] + gamma * n[t] - v[t]) + gamma * lam * c * x[t+1], both of them clipped
// pg[t] = rho (r[t] + gamma * (v[t+1] + lam * x[t+1]) - v[t]), clipped in a way of its own
template <class T>
struct VTrace {
    static constexpr bool RHOS = true, ANOTHER = true;
    static constexpr int RESULTS = 3;

    T gamma, keep, rho_clip, c_clip, pg_rho_clip, leak;

    __device__ VTrace(const EstimateParams& p, double gamma, double lam)
        : gamma(T(gamma)), keep(T(gamma * lam)), rho_clip(T(p.rho_clip)), c_clip(T(p.c_clip)),
          pg_rho_clip(T(p.pg_rho_clip)), leak(T(p.leak)) {}

    __device__ static T least(T rho, T limit) { return rho > limit ? limit : rho; }

    __device__ T leaky(T rho, T limit) const {
        const T x = least(rho, limit);
        return leak == 0 ? x : advance(leak, rho, (1 - leak) * x);
    }

    __device__ Term<T> term(const Known<T>& step, T n, T after, bool goes_on) const {
        const T rho = exp(step.log_rho), pg = least(rho, pg_rho_clip);
        const T target = advance(gamma, n, step.reward) - step.value;
        const T ahead = advance(gamma, goes_on ? after : n, step.reward) - step.value;
        return {keep * leaky(rho, c_clip), leaky(rho, rho_clip) * target, keep * pg, pg * ahead};
    }

    __device__ Results<T, RESULTS> results(T x, T value, T pg) const { return {x + value, pg, x}; }
};

// A return estimator, which goes backwards.  OTHER: next_values are given, or truncation_values.
//
// What follows a step is the value of the valid step met last, or what a flag put there.  That is
// found first, from the last thread that met any; then everything is linear.
template <class E_, int LEVEL, bool OTHER, template <class> class RULE>
struct Estimate : Row<E_, true> {
    typedef E_ E;
    typedef Row<E, true> Base;
    typedef typename Base::T T;
    typedef RULE<T> Rule;
    static constexpr int STEPS = Base::STEPS;
    static constexpr bool AHEAD = true;
    static constexpr int LEAST_BLOCKS = sizeof(E) != 4 && (LEVEL == MASK || Rule::RHOS);
    typedef EstimateParams Params;
    typedef Following<T> Ahead;
    typedef Waiting<T> Head;

    struct Raw {
        E rewards[STEPS], values[STEPS], other[OTHER ? STEPS : 1];
        T log_rhos[Rule::RHOS ? STEPS : 1];
        Byte terminated[STEPS], truncated[STEPS], mask[STEPS];
    };

    struct State {
        T x;
        Ahead ahead;
    };

    const Params& p;
    const char *rewards, *values, *other, *log_rhos, *terminated, *truncated, *mask;
    char* out[Rule::RESULTS];
    Ahead beyond;
    Rule rule;

    __device__ Estimate(const Params& p, Index i, Index j, bool live)
        : Base(p.job, live), p(p), rewards(p.rewards.row(i, j)), values(p.values.row(i, j)),
          other(p.other.row(i, j)), log_rhos(p.log_rhos.row(i, j)),
          terminated(p.terminated.row(i, j)), truncated(p.truncated.row(i, j)),
          mask(p.mask.row(i, j)), beyond{T{}, END_OF_ROW},
          rule(p, decay(p.gamma, i, j, p.gamma_size, p.gamma_number, live),
               decay(p.lam, i, j, p.lam_size, p.lam_number, live)) {
        for (int n = 0; n < Rule::RESULTS; ++n) out[n] = p.out[n].row(i, j);
        if (live && p.last.at) {
            E element;
            read<true>(&element, p.last.row(i, j));
            beyond.value = widen(element);
        }
    }

    __device__ static double decay(Operand x, Index i, Index j, Index size, double number,
                                   bool live) {
        if (!size || !live) return number;
        if (size == sizeof(double)) {
            read<true>(&number, x.row(i, j));
            return number;
        }
        float single;
        read<true>(&single, x.row(i, j));
        return single;
    }

    __device__ State start() const { return {T{}, beyond}; }

    template <bool AGAIN>
    __device__ Raw fetch(Place at) const {
        Raw raw = {};
        const auto get = [&](auto& x, const char* row, const Operand& from) {
            const Index by = from.time;
            if (from.at) load<AGAIN>(x, row + at.step * by, by, this->wide, at.count);
        };
        get(raw.rewards, rewards, p.rewards);
        get(raw.values, values, p.values);
        if constexpr (OTHER) get(raw.other, other, p.other);
        if constexpr (Rule::RHOS) get(raw.log_rhos, log_rhos, p.log_rhos);
        if constexpr (LEVEL >= FLAGS) {
            get(raw.terminated, terminated, p.terminated);
            get(raw.truncated, truncated, p.truncated);
        }
        if constexpr (LEVEL >= MASK) get(raw.mask, mask, p.mask);
        return raw;
    }

    __device__ bool valid(const Raw& raw, Place at, int k) const {
        return k < at.count && (LEVEL < MASK || raw.mask[k]);
    }

    __device__ static T number(const E& x) { return widen(x); }

    // What a step leaves behind, if it leaves anything: a flag, before the step itself is taken.
    __device__ void flag(const Raw& raw, Place at, int k, Ahead& ahead) const {
        if constexpr (LEVEL >= FLAGS) {
            if (k >= at.count || !(raw.terminated[k] || raw.truncated[k])) return;
            const T there = p.current ? number(raw.values[k])
                            : OTHER   ? number(raw.other[OTHER ? k : 0])
                                      : T{};
            ahead = raw.terminated[k] ? Ahead{T{}, ENDED} : Ahead{there, TRUNCATED};
        }
    }

    // The same of all steps together.
    __device__ void leave(const Raw& raw, Place at, Ahead& ahead) const {
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int k = Base::at(i);
            flag(raw, at, k, ahead);
            if (valid(raw, at, k)) ahead = {number(raw.values[k]), GOES_ON};
        }
    }

    __device__ Known<T> known(const Raw& raw, int k) const {
        const T next = OTHER ? number(raw.other[OTHER ? k : 0]) : T{};
        T log_rho{};
        if constexpr (Rule::RHOS) log_rho = p.log_rhos.at ? raw.log_rhos[k] : T(p.log_rho);
        return {number(raw.rewards[k]), number(raw.values[k]), next, log_rho};
    }

    __device__ Term<T> term(const Known<T>& step, Ahead ahead) const {
        T n = p.next ? step.next : ahead.value;
        if (ahead.code == ENDED) n = T{};
        if (ahead.code == TRUNCATED && p.current) n = step.value;
        return rule.term(step, n, ahead.value, ahead.code == GOES_ON);
    }

    template <bool FIRST>
    __device__ Steps<T, STEPS> steps(const Raw& raw, Place at, Ahead& ahead, Head& head) const {
        Steps<T, STEPS> s;
        s.cuts = 0;
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int k = Base::at(i);
            flag(raw, at, k, ahead);
            const bool cut = ahead.code != GOES_ON && (!FIRST || ahead.code != UNKNOWN);
            Term<T> now = {1, T{}, T{}, T{}};
            if (valid(raw, at, k)) {
                const Known<T> step = known(raw, k);
                if (FIRST && ahead.code == UNKNOWN) {
                    head = {step, true};
                } else {
                    now = term(step, ahead);
                }
                ahead = {step.value, GOES_ON};
            }
            s.a[i] = cut ? T{} : now.a;
            s.b[i] = now.b;
            s.c[i] = now.c;
            s.d[i] = now.d;
            s.cuts |= unsigned(cut) << i;
        }
        return s;
    }

    __device__ void finish(T before, const T (&state)[STEPS], const Steps<T, STEPS>& s,
                           const Raw& raw, Place at) const {
        E found[Rule::RESULTS][STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int k = Base::at(i);
            const bool there = valid(raw, at, k), shown = there || p.carry;
            T another{};
            if (Rule::ANOTHER && there) {
                const T following = i ? state[i ? i - 1 : 0] : before;
                another = s.cuts >> i & 1 ? s.d[i] : advance(s.c[i], following, s.d[i]);
            }
            const auto results = rule.results(state[i], number(raw.values[k]), another);
#pragma unroll
            for (int n = 0; n < Rule::RESULTS; ++n) {
                found[n][k] = narrow<E>(shown ? results.x[n] : T{});
            }
        }
#pragma unroll
        for (int n = 0; n < Rule::RESULTS; ++n) {
            const Index by = p.out[n].time;
            if (p.out[n].at) store(found[n], out[n] + at.step * by, by, this->wide, at.count);
        }
    }

    // The state after the step that had to wait for what follows it.
    __device__ T enter(const Head& head, Ahead ahead, T x) const {
        if (!head.there) return x;
        const Term<T> now = term(head, ahead);
        return ahead.code == GOES_ON ? advance(now.a, x, now.b) : now.b;
    }
};

// ----------------------------------------------------------------------------------------- kernels

// The room for a chunk's Total and State, in states.
constexpr int TOTAL = 12, STATE = 4;

// What a chunk does to a state.
template <class W>
struct Total {
    Map<typename W::T> map;
    typename W::Ahead ahead;
    typename W::Head head;
    bool cut;  // nothing comes through
};

template <class W>
struct Shared {
    Map<typename W::T> maps[THREADS / WARP];
    typename W::Ahead aheads[THREADS / WARP];
    typename W::T state;
};

// What is ahead of this thread's steps; `ahead` goes from before the group's steps to after them.
template <class W, int GROUP>
__device__ typename W::Ahead look_ahead(Shared<W>& shared, typename W::Ahead mine,
                                        typename W::Ahead& ahead) {
    typedef typename W::Ahead Ahead;
    constexpr int WIDTH = GROUP < WARP ? GROUP : WARP;
    const unsigned lane = threadIdx.x % WARP, first = lane / WIDTH * WIDTH;
    const bool met = mine.code != UNKNOWN;
    const unsigned group = (WIDTH == WARP ? ALL : (1u << WIDTH % WARP) - 1) << first;
    const unsigned those = __ballot_sync(ALL, met) & group;
    const unsigned before = those & ((1u << lane) - 1);
    const Ahead nearest = shuffle(mine, before ? 31 - __clz(before) : lane, WARP);
    Ahead last = shuffle(mine, those ? 31 - __clz(those) : lane, WARP);
    if (!those) last.code = UNKNOWN;
    Ahead found = ahead;
    if constexpr (GROUP > WARP) {
        const int warp = threadIdx.x / WARP;
        if (lane == 0) shared.aheads[warp] = last;
        __syncthreads();
        for (int i = 0; i < GROUP / WARP; ++i) {
            if (i == warp) found = ahead;
            const Ahead other = shared.aheads[i];
            if (other.code != UNKNOWN) ahead = other;
        }
    } else if (those) {
        ahead = last;
    }
    return before ? nearest : found;
}

template <class A, class B>
struct Same {
    static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
    static constexpr bool value = true;
};

// The state before this thread's steps.  `carry`, a state or a map, goes on to after the group's.
template <int GROUP, class W, class C>
__device__ typename W::T carry_in(Shared<W>& shared, Map<typename W::T> mine, C& carry) {
    typedef typename W::T T;
    constexpr int WIDTH = GROUP < WARP ? GROUP : WARP;
    const int lane = threadIdx.x % WIDTH;
    const Map<T> through = after_those_before(mine, WIDTH);
    C found = carry;
    if constexpr (GROUP > WARP) {
        const int warp = threadIdx.x / WARP;
        if (lane == WARP - 1) shared.maps[warp] = through;
        __syncthreads();
        for (int i = 0; i < GROUP / WARP; ++i) {
            if (i == warp) found = carry;
            carry = then(carry, shared.maps[i]);
        }
    } else {
        carry = then(carry, shuffle(through, WIDTH - 1, WIDTH));
    }
    if constexpr (Same<C, T>::value) {
        const T a = shuffle_up(through.a.rounded(), 1, WIDTH);
        const T b = shuffle_up(through.b, 1, WIDTH);
        return lane ? advance(a, found, b) : found;
    }
    return T{};
}

template <int GROUP>
__device__ bool any_in_group(bool x) {
    if constexpr (GROUP > WARP) return __syncthreads_or(x);
    return __ballot_sync(ALL, x);
}

// One thread's x for its whole group.
template <int GROUP, class W, class T>
__device__ T from_lane(Shared<W>& shared, T x, int lane) {
    if constexpr (GROUP > WARP) {
        if (threadIdx.x == lane) shared.state = x;
        __syncthreads();
        x = shared.state;
        __syncthreads();
        return x;
    } else {
        return shuffle(x, lane, GROUP);
    }
}

// Rows of one launch: `unit` counts rows, and the chunks of all rows one after the other.
template <class W, int GROUP, bool TOTALS>
__global__ void __launch_bounds__(THREADS, W::LEAST_BLOCKS) scan(const typename W::Params p) {
    typedef typename W::T T;
    constexpr int STEPS = W::STEPS;
    SHARED(Shared<W>, shared);

    static_assert(sizeof(Total<W>) <= TOTAL * sizeof(T), "there is room");
    static_assert(sizeof(typename W::State) <= STATE * sizeof(T), "there is room");
    const Job& job = p.job;
    const int lane = threadIdx.x % GROUP;
    const bool again = job.states != nullptr;
    // The second time from behind: what was read last is still in the cache.
    const Index block = again ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const Index given = block * (THREADS / GROUP) + threadIdx.x / GROUP;
    const bool live = given < job.rows * job.chunks;
    const Index unit = live ? given : 0;
    const Index row = unit % job.rows, chunk = unit / job.rows;
    const W work(p, row / job.inner, row % job.inner, live);

    typename W::State state;
    Map<T> total = Map<T>::identity();
    typename W::Head head;
    bool cut = false;
    if constexpr (TOTALS) {
        state = {};
        if constexpr (W::AHEAD) state.ahead.code = UNKNOWN;
    } else {
        state = again ? reinterpret_cast<const typename W::State*>(job.states)[unit] : work.start();
    }

    Index position = chunk * job.length + lane * STEPS;
    typename W::Raw next = work.template fetch<TOTALS>(work.place(position));
    for (Index tile = 0; tile < job.tiles; ++tile) {
        const typename W::Raw raw = next;
        const Place place = work.place(position);
        position += GROUP * STEPS;
        if (tile + 1 < job.tiles) next = work.template fetch<TOTALS>(work.place(position));

        typename W::Ahead ahead = state.ahead;
        if constexpr (W::AHEAD && GROUP > 1) {
            typename W::Ahead mine = {};
            mine.code = UNKNOWN;
            work.leave(raw, place, mine);
            ahead = look_ahead<W, GROUP>(shared, mine, state.ahead);
        }
        const Steps<T, STEPS> steps = work.template steps<TOTALS>(raw, place, ahead, head);
        if constexpr (GROUP == 1) state.ahead = ahead;

        if constexpr (TOTALS) {
            cut |= steps.cuts != 0;
            if constexpr (GROUP == 1) {
                total = then(total, steps.map());
            } else {
                carry_in<GROUP>(shared, steps.map(), total);
                if constexpr (GROUP > WARP) __syncthreads();
            }
        } else {
            T before = state.x, x[STEPS];
            if constexpr (GROUP == 1) {
                state.x = steps.walk(before, x);
            } else {
                T carry = state.x;
                before = carry_in<GROUP>(shared, steps.map(), carry);
                steps.walk(before, x);
                bool finite = true;
#pragma unroll
                for (int i = 0; i < STEPS; ++i) finite &= is_finite(x[i]);
                if (any_in_group<GROUP>(!finite)) {
                    // Products overflowed, or the data are not finite: one thread after the other.
                    carry = state.x;
                    for (int turn = 0; turn < GROUP; ++turn) {
                        T after = carry;
                        if (lane == turn) after = steps.walk(before = carry, x);
                        carry = from_lane<GROUP>(shared, after, turn);
                    }
                }
                state.x = carry;
            }
            work.finish(before, x, steps, raw, place);
        }
    }

    if constexpr (TOTALS) {
        Total<W>& mine = reinterpret_cast<Total<W>*>(job.totals)[unit];
        if constexpr (GROUP > 1) cut = any_in_group<GROUP>(cut);
        if (live && lane == 0) {
            mine.map = total;
            mine.ahead = state.ahead;
            mine.cut = cut;
        }
        if constexpr (W::AHEAD) {
            bool somewhere = head.there;
            if constexpr (GROUP > 1) somewhere = any_in_group<GROUP>(head.there);
            if (live && (head.there || (!somewhere && lane == 0))) mine.head = head;
        }
    }
}

// The state before every chunk: a warp per row.
template <class W>
__global__ void __launch_bounds__(THREADS) join(const typename W::Params p) {
    typedef typename W::T T;
    constexpr int STEPS = W::STEPS;
    const Job& job = p.job;
    const int lane = threadIdx.x % WARP;
    const Index given = Index(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP;
    const bool live = given < job.rows;
    const Index row = live ? given : 0;
    const W work(p, row / job.inner, row % job.inner, live);
    typename W::State state = work.start();

    for (Index first = 0; first < job.chunks; first += WARP) {
        Total<W> own = {};
        if (first + lane < job.chunks) {
            own = reinterpret_cast<const Total<W>*>(job.totals)[(first + lane) * job.rows + row];
        }
        const Index left = job.chunks - first;
        for (int i = 0; i < (left < WARP ? left : WARP); ++i) {
            if (live && lane == i) {
                reinterpret_cast<typename W::State*>(job.states)[(first + i) * job.rows + row] =
                    state;
            }
            const Map<T> map = shuffle(own.map, i, WARP);
            const bool cut = __ballot_sync(ALL, own.cut) >> i & 1;
            T x = state.x;
            if constexpr (W::AHEAD) x = work.enter(shuffle(own.head, i, WARP), state.ahead, x);
            const T before = x;
            x = cut ? map.b : then(x, map);
            if (!is_finite(x) && !(is_nan(before) && !cut)) {
                // An overflow that the loop may not have: the loop says.
                typename W::State now = state;
                typename W::Head none;
                for (Index at = 0; at < job.length; at += STEPS) {
                    const Place place = work.place((first + i) * job.length + at);
                    const typename W::Raw raw = work.template fetch<true>(place);
                    T xs[STEPS];
                    now.x = work.template steps<false>(raw, place, now.ahead, none).walk(now.x, xs);
                }
                x = now.x;
            }
            state.x = x;
            if constexpr (W::AHEAD) {
                const typename W::Ahead left_behind = shuffle(own.ahead, i, WARP);
                if (left_behind.code != UNKNOWN) state.ahead = left_behind;
            }
        }
    }
}
