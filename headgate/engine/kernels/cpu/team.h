// Threads that walk through the phases of a step together, free of torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headgate {

// Where the threads of one walk stand. Nobody waits for a thread, only for work that one has begun: a phase ends when all of
// it is done, whoever did it, and a thread that comes late, or lost its core, goes past the phases that ended without it.
class Team {
  public:
    explicit Team(int64_t places) : places_(places), parts_(new Part[places]) {}

  private:
    friend class Member;
    // What nobody has taken yet of one place's part of a phase: phase << 32 | pieces taken. An older phase means none.
    struct alignas(64) Part {
        std::atomic<uint64_t> taken{0};
    };
    const int64_t places_;
    const std::unique_ptr<Part[]> parts_;
    alignas(64) std::atomic<int64_t> done_{0};    // of the present phase
    alignas(64) std::atomic<uint64_t> phase_{1};  // the present one
};

// One thread's part in it. Every thread must call `share` equally often, and with the same arguments while the phase lasts.
class Member {
  public:
    Member(Team& team, int64_t number) : team_(team), number_(number) {}

    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Threads there may be.
    int64_t places() const { return team_.places_; }

    // From 0 on; 0 is the thread that began.
    int64_t number() const { return number_; }

    // f(begin, end) over [0, count) in pieces of `piece`; returns when all of it is done. Every place has a part of its own, the
    // same in each walk, so that what it reads may still be in its core's cache; whoever is done with his helps the others.
    template <typename F>
    void share(int64_t count, int64_t piece, const F& f) {
        if (team_.places_ == 1) {
            if (count > 0) f(int64_t{0}, count);
            return;
        }
        const uint64_t phase = ++phase_;
        // Arguments that were read from what the walk has computed are right only if the phase has not ended by now.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (team_.phase_.load(std::memory_order_acquire) != phase) return;
        const int64_t pieces = (count + piece - 1) / piece;
        int64_t done = 0;
        for (int64_t i = 0; i < team_.places_; ++i) {
            const int64_t part = (number_ + i) % team_.places_;
            const int64_t begin = first(part, pieces), end = first(part + 1, pieces);
            for (int64_t next = begin; (next = take(part, phase, begin, end)) < end; ++done)
                f(next * piece, next * piece + piece < count ? next * piece + piece : count);
        }
        const bool last = done > 0 && team_.done_.fetch_add(done) + done == pieces;
        if (last || pieces == 0) {
            // A phase of nothing is ended by whoever comes first, and who comes late may be overtaken by the next one's pieces.
            if (last) team_.done_.store(0, std::memory_order_relaxed);
            uint64_t present = phase;
            team_.phase_.compare_exchange_strong(present, phase + 1);
        } else {
            wait([&] { return team_.phase_.load(std::memory_order_acquire) != phase; });
        }
    }

    // The same, in about eight pieces per thread.
    template <typename F>
    void share(int64_t count, const F& f) {
        const int64_t pieces = 8 * team_.places_;
        share(count, count < pieces ? 1 : (count + pieces - 1) / pieces, f);
    }

    template <typename F>
    static void wait(const F& done) {
        // A phase takes microseconds. Whoever waits much longer waits for a thread that lost its core, and lends it this one.
        for (int spins = 0; !done(); ++spins) {
            if (spins < 256)
                pause();
            else
                std::this_thread::yield();
        }
    }

    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }

  private:
    int64_t first(int64_t part, int64_t pieces) const { return (pieces * part + team_.places_ - 1) / team_.places_; }

    // A piece of a part that is now this thread's; `end` if none is left. Where a part has pieces and its word an older phase,
    // the phase cannot have ended, so that taking one from an ended phase always fails.
    int64_t take(int64_t part, uint64_t phase, int64_t begin, int64_t end) {
        std::atomic<uint64_t>& taken = team_.parts_[part].taken;
        uint64_t word = taken.load(std::memory_order_relaxed);
        while (begin < end) {
            if (word >> 32 > phase) return end;
            const int64_t next = word >> 32 == phase ? begin + static_cast<int64_t>(word & 0xffffffff) : begin;
            if (next >= end) return end;
            if (taken.compare_exchange_weak(word, phase << 32 | static_cast<uint64_t>(next + 1 - begin))) return next;
        }
        return end;
    }

    Team& team_;
    const int64_t number_;
    uint64_t phase_ = 0;
};

// Threads of the one that calls: they come to its walks, and between two of them stay awake for a moment. OpenMP's, which
// must all come and all leave, either sleep at once, and waking one takes as long as a small model's step, or spin on.
class Crew {
  public:
    // Of the calling thread, with itself `places` strong; made anew where that has changed. They end when it does.
    static Crew& mine(int64_t places);

    ~Crew();

    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    // f(member) here, and on those that come in time; returns when none is in it any more.
    template <typename F>
    void walk(const F& f) {
        Team team(places_);
        if (places_ > 1) open([](const void* f, Team& t, int64_t number) { enter(*static_cast<const F*>(f), t, number); }, &f, team);
        enter(f, team, 0);
        if (places_ > 1) close();
    }

  private:
    using Entry = void (*)(const void* f, Team& team, int64_t number);

    explicit Crew(int64_t places);

    template <typename F>
    static void enter(const F& f, Team& team, int64_t number) {
        Member member(team, number);
        f(member);
    }

    void open(Entry entry, const void* f, Team& team);
    void close();
    void serve(int64_t number);
    bool await(uint64_t last);

    const int64_t places_;
    Entry entry_ = nullptr;  // of the walk that goes on, and what it takes
    const void* f_ = nullptr;
    Team* team_ = nullptr;
    alignas(64) std::atomic<uint64_t> state_{0};  // walk << 32 | whether it is open | threads in it
    alignas(64) std::atomic<uint32_t> calls_{0};  // what those wait for that sleep
    std::atomic<int64_t> asleep_{0};
    std::atomic<bool> over_{false};
    std::vector<std::thread> threads_;
};

}  // namespace headgate
