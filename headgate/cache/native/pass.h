// One walk of some texts through the layers.
#pragma once

#include <cstdint>
#include <memory>

#include "encoder.h"
#include "workspace.h"

namespace headgate {

class Team;

// What a thread calls after its parts of a pass, which may be gone by then; or nothing.
using Release = void (*)();

class Pass {
  public:
    virtual ~Pass() = default;

    // With `team`, another thread takes part.
    virtual void run(Team* team) = 0;

    // What a thread does before its parts of the pass.
    virtual Release begin() const = 0;

    // One of the parts of a step, which do not depend on each other. `who` is 0, which goes through them upwards, or 1, which
    // goes downwards; with `last` no part is left after this one.
    virtual void part(int64_t step, int64_t at, int who, bool last) = 0;

    // Of its blocks of rows; 0 where a thread need not begin anew for another.
    virtual int64_t height() const = 0;
};

// The texts of a pass, and where its results go; see `headgate_encoder_run`.
struct Texts {
    const int32_t* ids;
    const int64_t* starts;
    int64_t count;
    float* vectors;
    float* states;
};

}  // namespace headgate
