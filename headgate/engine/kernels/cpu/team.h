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
    alignas(64) std::atomic<uint64_t> state_{1ull << 32};  // present phase << 32 | pieces of it that are done
};

// One thread's part in it. Every thread must call `share` equally often, and with the same arguments while the phase lasts.
class Member {
  public:
    Member(Team& team, int64_t number) : team_(team), number_(number) {}

    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Threads there may be.
    int64_t places() const { return team_.places_; }

    // Enough that threads end together where nothing says otherwise.
    int64_t pieces() const { return 8 * team_.places_; }

    // From 0 on; 0 is the thread that began.
    int64_t number() const { return number_; }

    // f(begin, end) over [0, count) in so many pieces, or one for each if there are fewer; then, once and where there was
    // anything, `then()`; returns when all of it is done. Every place has a part of its own, the same in each walk, so that what
    // it reads may still be in its core's cache; whoever has been done with his for a moment helps the others.
    template <typename F, typename G>
    void share(int64_t count, int64_t pieces, const F& f, const G& then) {
        if (team_.places_ == 1) {
            if (count > 0) {
                f(int64_t{0}, count);
                then();
            }
            return;
        }
        const uint64_t phase = ++phase_;
        // Arguments that were read from what the walk has computed are right only if the phase has not ended by now.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (!lasts(phase)) return;
        pieces = pieces < count ? pieces : count;
        if (pieces == 0) {
            // Whoever comes first ends it, and who comes late may be overtaken by the next one's pieces.
            uint64_t nothing = phase << 32;
            team_.state_.compare_exchange_strong(nothing, (phase + 1) << 32);
            return;
        }
        const auto run = [&](int64_t part) {
            const int64_t begin = first(part, pieces), end = first(part + 1, pieces);
            int64_t done = 0;
            for (int64_t next = begin; (next = take(part, phase, begin, end)) < end; ++done)
                f(count * next / pieces, count * (next + 1) / pieces);
            return done;
        };
        // Whether the phase is over with these.
        const auto ends_with = [&](int64_t done) {
            if (done == 0 || static_cast<int64_t>(team_.state_.fetch_add(done) & 0xffffffff) + done < pieces) return false;
            then();
            team_.state_.store((phase + 1) << 32);
            return true;
        };
        int64_t done = run(number_);
        if (ends_with(done)) return;
        // The others are about as far, and to look at their parts takes these from their cores.
        for (int spins = 0; accompanied_ && spins < kPatience && lasts(phase); ++spins) pause();
        if (lasts(phase)) {
            int64_t more = 0;
            for (int64_t i = 1; i < team_.places_; ++i) more += run((number_ + i) % team_.places_);
            done += more;
            if (!ends_with(more)) wait([&] { return !lasts(phase); });
        }
        if (pieces >= team_.places_) accompanied_ = done < pieces;
    }

    template <typename F>
    void share(int64_t count, int64_t pieces, const F& f) {
        share(count, pieces, f, [] {});
    }

    // The same, in `pieces()`.
    template <typename F>
    void share(int64_t count, const F& f) {
        share(count, pieces(), f);
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
    static constexpr int kPatience = 16;  // about a microsecond

    bool lasts(uint64_t phase) const { return team_.state_.load(std::memory_order_acquire) >> 32 == phase; }

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
    bool accompanied_ = false;  // in the latest phase that all could have had a part in
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
