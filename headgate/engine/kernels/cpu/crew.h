// The crew of the calling thread, as many as torch has threads.
//
// Not OpenMP, though torch has it at hand: after each of its loops a thread stays awake for milliseconds, on a core that the
// crew wants for the next step.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "team.h"

namespace headgate {

inline int64_t team_places() { return at::get_num_threads(); }

// Runs f(member) on this thread and its crew.
template <typename F>
void together(const F& f) {
    Crew::mine(team_places()).walk(f);
}

// f(begin, end) over [0, count) by the crew, or here alone where there are no more than `least`.
template <typename F>
void divided(int64_t count, int64_t least, const F& f) {
    if (count > least && team_places() > 1)
        together([&](Member& member) { member.share(count, std::min(member.pieces(), (count + least - 1) / least), f); });
    else if (count > 0)
        f(int64_t{0}, count);
}

}  // namespace headgate
