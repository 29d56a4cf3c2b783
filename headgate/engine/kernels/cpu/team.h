// Threads that walk through the phases of a step together, free of torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headgate {

// What the threads of one parallel region share. A parallel loop over `places` may give one thread several of them, so the
// threads count themselves as they come.
class Team {
  public:
    explicit Team(int64_t places) : places_(places) {}

  private:
    friend class Member;
    const int64_t places_;
    alignas(64) std::atomic<int64_t> covered_{0};
    std::atomic<int64_t> size_{0};
    alignas(64) std::atomic<int64_t> arrived_{0};
    alignas(64) std::atomic<int64_t> phase_{0};
    // One phase's counter is set back while the next phase counts with the other.
    struct alignas(64) Counter {
        std::atomic<int64_t> next{0};
    };
    Counter counters_[2];
};

// One thread's part in it. All threads must call `share` equally often and with equal counts.
class Member {
  public:
    // Comes with `covered` places; waits until all places are taken.
    Member(Team& team, int64_t covered) : team_(team) {
        number_ = team_.size_.fetch_add(1);
        team_.covered_.fetch_add(covered);
        wait([&] { return team_.covered_.load() == team_.places_; });
        size_ = team_.size_.load();
    }

    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    int64_t size() const { return size_; }

    // Of the team: as many as the size, or more.
    int64_t places() const { return team_.places_; }

    // From 0 on.
    int64_t number() const { return number_; }

    // f(begin, end) over [0, count), each piece of `piece` by whoever is free; returns when all of it is done.
    template <typename F>
    void share(int64_t count, int64_t piece, const F& f) {
        if (size_ == 1) {
            if (count > 0) f(int64_t{0}, count);
            return;
        }
        std::atomic<int64_t>& next = team_.counters_[phase_ & 1].next;
        for (int64_t begin = next.fetch_add(piece); begin < count; begin = next.fetch_add(piece))
            f(begin, begin + piece < count ? begin + piece : count);
        if (team_.arrived_.fetch_add(1) + 1 == size_) {
            next.store(0, std::memory_order_relaxed);
            team_.arrived_.store(0, std::memory_order_relaxed);
            team_.phase_.store(phase_ + 1, std::memory_order_release);
        } else {
            wait([&] { return team_.phase_.load(std::memory_order_acquire) != phase_; });
        }
        ++phase_;
    }

    // The same, in about four pieces per thread.
    template <typename F>
    void share(int64_t count, const F& f) {
        const int64_t pieces = 4 * size_;
        share(count, count < pieces ? 1 : (count + pieces - 1) / pieces, f);
    }

  private:
    template <typename F>
    static void wait(const F& done) {
        // A phase takes microseconds. Whoever waits much longer waits for a thread that lost its core, and lends it this one.
        for (int spins = 0; !done(); ++spins) {
            if (spins < 4096) {
#if defined(__x86_64__)
                _mm_pause();
#endif
            } else {
                std::this_thread::yield();
            }
        }
    }

    Team& team_;
    int64_t number_ = 0;
    int64_t size_ = 1;
    int64_t phase_ = 0;
};

}  // namespace headgate
