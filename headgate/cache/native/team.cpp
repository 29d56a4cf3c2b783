#include "team.h"

#include "lanes.h"
#include "pass.h"

#if defined(HEADGATE_VECTORS)
#include <sched.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace headgate {

bool Team::enter(Pass* pass) {
    if (!one_.try_lock()) return false;
    if (__builtin_ia32_rdtsc() < rest_) {
        one_.unlock();
        return false;
    }
    if (!started_) {
        started_ = true;
        try {
            std::thread(&Team::help, this).detach();
        } catch (const std::system_error&) {
        }
    }
    pass_ = pass;
    done_.store(0, std::memory_order_relaxed);
    taken_ = 0;
    core_.store(sched_getcpu(), std::memory_order_relaxed);
    over_.store(false, std::memory_order_release);
    called_.fetch_add(1, std::memory_order_release);
    called_.notify_one();
    return true;
}

void Team::leave() {
    over_.store(true, std::memory_order_release);
    one_.unlock();
}

void Team::do_all(Pass& pass, int64_t step, int64_t parts) {
    uint64_t now = ticket(static_cast<uint64_t>(step), 0, static_cast<uint64_t>(parts));
    open_.store(now, std::memory_order_release);
    int64_t own = 0;
    for (;;) {
        if (low(now) >= high(now)) break;
        // The other thread moves `high` down.
        if (!open_.compare_exchange_weak(now, now + (1 << 24), std::memory_order_acq_rel)) continue;
        pass.part(step, static_cast<int64_t>(low(now)), 0, low(now) + 1 >= high(now));
        ++own;
        now = open_.load(std::memory_order_acquire);
    }
    taken_ += parts - own;
    const uint64_t since = __builtin_ia32_rdtsc();
    for (int64_t spun = 0; done_.load(std::memory_order_acquire) < taken_; ++spun) {
        _mm_pause();
        if (spun % 256 != 255) continue;
        const uint64_t now = __builtin_ia32_rdtsc();
        if (now - since > kGone) rest_ = now + kRest;
        if (now - since > kLate) std::this_thread::yield();
    }
}

// Keeps this thread off the core where the pass is: Linux likes to wake it just there. False where there is no other.
bool Team::leave_core(int core) {
    cpu_set_t cores;
    // The first thread's are the process's.
    if (core < 0 || sched_getaffinity(getpid(), sizeof(cores), &cores) != 0) return false;
    CPU_CLR(core, &cores);
    return CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

void Team::help() {
    int left = -1;
    for (uint32_t seen = 0;;) {
        called_.wait(seen, std::memory_order_acquire);
        seen = called_.load(std::memory_order_acquire);
        const int core = core_.load(std::memory_order_relaxed);
        if (core != left && leave_core(core)) left = core;
        if (core != left) continue;
        uint64_t since = __builtin_ia32_rdtsc();
        int64_t height = 0;  // that the tiles are set to
        Release release = nullptr;
        while (!over_.load(std::memory_order_acquire)) {
            uint64_t now = open_.load(std::memory_order_acquire);
            if (low(now) >= high(now) || !open_.compare_exchange_strong(now, now - 1, std::memory_order_acq_rel)) {
                _mm_pause();
                // Whoever has the pass has lost its core, perhaps to this thread.
                if (__builtin_ia32_rdtsc() - since > kGone) break;
                continue;
            }
            // Whatever pass this is by now: it waits for the part.
            Pass& pass = *pass_;
            // Once and not for every part: a new shape of tiles takes longer than many products.
            if (pass.height() != height) {
                release = pass.begin();
                height = pass.height();
            }
            pass.part(static_cast<int64_t>(now >> 48), static_cast<int64_t>(high(now)) - 1, 1, low(now) + 1 >= high(now));
            done_.fetch_add(1, std::memory_order_release);
            since = __builtin_ia32_rdtsc();
        }
        if (release != nullptr) release();
    }
}

}  // namespace headgate
#endif
