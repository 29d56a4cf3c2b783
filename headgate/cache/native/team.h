// Two threads at the pass of a single text.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace headgate {

class Pass;

// A second thread that takes parts of a pass, as many as it gets to. It is woken at the beginning and spins until the end, and
// nobody waits for it but for a part that it has begun: without a core of its own it costs next to nothing, and where it lost
// its core with a part in hand for long, passes do without it for a while.
class Team {
  public:
    // Whether this pass may have it; `leave` follows.
    bool enter(Pass* pass);
    void leave();
    void do_all(Pass& pass, int64_t step, int64_t parts);

  private:
    static constexpr uint64_t kNothing = 0;
    static constexpr uint64_t kLate = 400'000;  // cycles, some 0.2 ms
    // Cycles, some 2 ms: on a shared machine a thread stops for less every few passes, and goes on where it was.
    static constexpr uint64_t kGone = 4'000'000;
    static constexpr uint64_t kRest = 40'000'000;  // cycles, some 20 ms: what had the core then may have left it

    // A step and which of its parts, from `low` to below `high`, nobody has begun.
    static uint64_t ticket(uint64_t step, uint64_t low, uint64_t high) { return step << 48 | low << 24 | high; }
    static uint64_t low(uint64_t t) { return t >> 24 & 0xffffff; }
    static uint64_t high(uint64_t t) { return t & 0xffffff; }

    void help();
    static bool leave_core(int core);

    std::mutex one_;
    std::atomic<uint32_t> called_{0};
    bool started_ = false;
    uint64_t rest_ = 0;  // cycles until which passes do without the other thread
    Pass* pass_ = nullptr;
    alignas(64) std::atomic<uint64_t> open_{kNothing};
    alignas(64) std::atomic<int64_t> done_{0};  // parts that the other thread has finished
    int64_t taken_ = 0;  // of this step by the other thread
    std::atomic<bool> over_{true};
    std::atomic<int> core_{-1};  // that the pass began on
};

}  // namespace headgate
