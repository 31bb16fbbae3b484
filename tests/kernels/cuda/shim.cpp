// Threads, barriers and shuffles on a CPU.  Blocks run on several threads of the system; the threads
// of a block take turns on one of them, from one meeting to the next.  The thread sanitizer is told
// what they are, so that it sees what only a barrier that is missing would have put in order.

#include "shim.h"

#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <ucontext.h>
#include <vector>


// The thread sanitizer, if it is there.
extern "C" {
[[gnu::weak]] void* __tsan_create_fiber(unsigned);
[[gnu::weak]] void __tsan_destroy_fiber(void*);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_switch_to_fiber(void*, unsigned);
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
}

namespace shim {
namespace {

const bool watched = __tsan_create_fiber;
constexpr unsigned NO_ORDER = 1;

void happens(void (*how)(void*), void* what) {
    if (watched) how(what);
}

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 << 10, SHARED_SIZE = 48 << 10;
std::atomic<uint64_t> loaded, stored, vectors;

[[noreturn]] void fail(const char* why) {
    std::fprintf(stderr, "shim: %s\n", why);
    std::abort();
}

struct Block;
void yield(Block&);

// Everybody of a warp or of a block meets here.
struct Meeting {
    unsigned expected = 0, arrived = 0, times = 0;
    bool any = false, result = false;

    bool wait(Block& block, bool x);
};

struct Warp {
    Meeting meeting;
    unsigned words[2][WARP];
};

struct Member : Thread {
    unsigned exchanges = 0;
    bool done = false;
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    jmp_buf state;
    void* fiber = nullptr;
    bool begun = false;
};

struct Block {
    void (*body)(const void*);
    const void* parameters;
    std::vector<Member> members;
    std::vector<Warp> warps;
    Meeting meeting;
    alignas(16) char shared[SHARED_SIZE];
    unsigned running = 0, idle = 0;
    ucontext_t caller;
    void* calling = nullptr;

    explicit Block(unsigned threads) : members(threads), warps((threads + WARP - 1) / WARP) {
        meeting.expected = threads;
        for (auto& warp : warps) warp.meeting.expected = WARP;
    }

    ~Block() {
        for (auto& each : members) {
            if (each.fiber) __tsan_destroy_fiber(each.fiber);
        }
    }

    void run();
};

thread_local Block* block;
thread_local Member* member;

bool Meeting::wait(Block& block, bool x) {
    happens(__tsan_release, this);
    const unsigned before = times;
    any |= x;
    if (++arrived == expected) {
        result = any;
        any = false;
        arrived = 0;
        ++times;
        block.idle = 0;
    } else {
        while (times == before) yield(block);
    }
    happens(__tsan_acquire, this);
    return result;
}

void enter() {
    happens(__tsan_acquire, block);
    block->body(block->parameters);
    happens(__tsan_release, block);
    member->done = true;
    block->idle = 0;
    yield(*block);
}

// On to the next thread of the block that has not ended; out, when all have.
void yield(Block& b) {
    const unsigned n = b.members.size();
    if (++b.idle > 2 * n) fail("threads wait for each other at different places");
    Member& from = b.members[b.running];
    unsigned next = b.running;
    for (unsigned i = 0; i < n; ++i) {
        next = next + 1 == n ? 0 : next + 1;
        if (!b.members[next].done) break;
    }
    Member& to = b.members[next];
    if (to.done) {
        if (watched) __tsan_switch_to_fiber(b.calling, NO_ORDER);
        setcontext(&b.caller);
    }
    b.running = next;
    member = &to;
    if (&to == &from) return;
    if (watched) __tsan_switch_to_fiber(to.fiber, NO_ORDER);
#ifdef SWAP_CONTEXTS
    swapcontext(&from.context, &to.context);
#else
    if (_setjmp(from.state)) return;
    if (to.begun) _longjmp(to.state, 1);
    to.begun = true;
    setcontext(&to.context);
#endif
}

void Block::run() {
    block = this;
    running = idle = 0;
    for (auto& each : members) {
        if (watched && !each.fiber) each.fiber = __tsan_create_fiber(0);
        if (!each.stack) each.stack.reset(new char[STACK]);
        each.begun = each.done = false;
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack.get();
        each.context.uc_stack.ss_size = STACK;
        each.context.uc_link = nullptr;
        makecontext(&each.context, enter, 0);
    }
    member = &members[0];
    members[0].begun = true;
    happens(__tsan_release, this);
    if (watched) {
        calling = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(members[0].fiber, NO_ORDER);
    }
    swapcontext(&caller, &members[0].context);
    happens(__tsan_acquire, this);
}

}  // namespace

Thread& self() { return *member; }

void* shared_memory(size_t size) {
    if (size > SHARED_SIZE) fail("too much shared memory");
    return block->shared;
}

void barrier() { block->meeting.wait(*block, false); }
bool barrier_or(bool x) { return block->meeting.wait(*block, x); }

unsigned shuffle(unsigned word, unsigned from) {
    Warp& warp = block->warps[member->thread.x / WARP];
    unsigned* words = warp.words[member->exchanges++ % 2];
    words[member->thread.x % WARP] = word;
    warp.meeting.wait(*block, false);
    return words[from];
}

unsigned ballot(bool x) {
    Warp& warp = block->warps[member->thread.x / WARP];
    unsigned* words = warp.words[member->exchanges++ % 2];
    words[member->thread.x % WARP] = x;
    warp.meeting.wait(*block, false);
    unsigned bits = 0;
    for (unsigned i = 0; i < WARP; ++i) bits |= words[i] << i;
    return bits;
}

void launch(void (*body)(const void*), const void* parameters, unsigned blocks, unsigned threads) {
    std::atomic<unsigned> next{0};
    const auto work = [&] {
        static thread_local std::unique_ptr<Block> kept;
        if (!kept || kept->members.size() != threads) kept.reset(new Block(threads));
        Block& mine = *kept;
        mine.body = body;
        mine.parameters = parameters;
        for (unsigned index; (index = next++) < blocks;) {
            memset(mine.shared, 0xff, SHARED_SIZE);
            for (unsigned i = 0; i < threads; ++i) {
                static_cast<Thread&>(mine.members[i]) = {{i}, {index}, {blocks}, 0, 0, 0};
                mine.members[i].exchanges = 0;
            }
            mine.run();
            for (const auto& each : mine.members) {
                loaded += each.loaded;
                stored += each.stored;
                vectors += each.vectors;
            }
        }
    };
    const unsigned workers = std::min(blocks, std::min(4u, std::thread::hardware_concurrency()));
    std::vector<std::thread> others;
    for (unsigned i = 1; i < workers; ++i) others.emplace_back(work);
    work();
    for (auto& other : others) other.join();
}

}  // namespace shim

// Bytes loaded and stored, and accesses of 16 bytes, since the last call.
extern "C" void shim_traffic(uint64_t* counts) {
    counts[0] = shim::loaded.exchange(0);
    counts[1] = shim::stored.exchange(0);
    counts[2] = shim::vectors.exchange(0);
}
