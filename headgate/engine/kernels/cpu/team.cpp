#include "team.h"

#include <unistd.h>

#include <chrono>
#include <system_error>

namespace headgate {
namespace {

constexpr uint64_t kOpen = 1u << 31;
constexpr int kSpins = 64;  // about four microseconds; then whoever else wants the core gets it
// How long a thread stays awake after a walk: somewhat longer than a small model's steps lie apart, also where dozens of
// sequences have to be seen to in between. To wake a thread takes its waker as long as many a phase; and whoever is awake
// yields, so that he is in nobody's way.
constexpr std::chrono::microseconds kAwake{1500};

// A thread's crew. A forked process has none of its threads, and must not wait for them.
struct Own {
    std::unique_ptr<Crew> crew;
    int64_t places = 0;
    pid_t process = 0;

    ~Own() { forget(); }

    void forget() {
        if (process != getpid()) static_cast<void>(crew.release());
        crew.reset();
    }
};

}  // namespace

Crew& Crew::mine(int64_t places) {
    thread_local Own own;
    if (own.crew == nullptr || own.places != places || own.process != getpid()) {
        own.forget();
        own.crew.reset(new Crew(places));
        own.places = places;
        own.process = getpid();
    }
    return *own.crew;
}

Crew::Crew(int64_t places) : places_(places) {
    threads_.reserve(places);
    try {
        for (int64_t number = 1; number < places; ++number) threads_.emplace_back([this, number] { serve(number); });
    } catch (const std::system_error&) {
        // The system gives no more threads: those that are there do all of the work, if need be the caller alone.
    }
}

Crew::~Crew() {
    over_ = true;
    ++calls_;
    calls_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Crew::open(Entry entry, const void* f, Team& team) {
    entry_ = entry;
    f_ = f;
    team_ = &team;
    state_.store(((state_.load(std::memory_order_relaxed) >> 32) + 1) << 32 | kOpen);
    // Either it is seen here that a thread sleeps, or it sees there that the walk is open.
    if (asleep_.load() > 0) {
        ++calls_;
        calls_.notify_all();
    }
}

void Crew::close() {
    if ((state_.fetch_and(~kOpen) & ~kOpen & 0xffffffff) == 0) return;
    Member::wait([&] { return (state_.load(std::memory_order_acquire) & 0xffffffff) == 0; });
}

void Crew::serve(int64_t number) {
    uint64_t last = 0;
    while (await(last)) {
        uint64_t state = state_.load();
        if ((state & kOpen) == 0 || state >> 32 == last) continue;
        if (!state_.compare_exchange_strong(state, state + 1)) continue;
        last = state >> 32;
        entry_(f_, *team_, number);
        state_.fetch_sub(1, std::memory_order_release);
    }
}

// Until there is a walk other than the last one; false when there will be none.
bool Crew::await(uint64_t last) {
    const auto there = [&] {
        const uint64_t state = state_.load();
        return ((state & kOpen) != 0 && state >> 32 != last) || over_.load();
    };
    const auto until = std::chrono::steady_clock::now() + kAwake;
    for (int spins = 1; !there(); ++spins) {
        if (spins % kSpins != 0) {
            Member::pause();
            continue;
        }
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() < until) continue;
        const uint32_t calls = calls_.load();
        ++asleep_;
        if (!there()) calls_.wait(calls);
        --asleep_;
    }
    return !over_.load();
}

}  // namespace headgate
