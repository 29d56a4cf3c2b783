// One walk of some texts through the layers.
#pragma once

#include <cstdint>

#include "encoder.h"
#include "exponential.h"

#if defined(HEADGATE_VECTORS)
#include "products.h"
#include "workspace.h"

// Its templates are compiled for what they are declared for.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

namespace headgate {

class Team;

class Pass {
  public:
    Pass(const HeadgateEncoder& encoder, bool tiles, const int32_t* ids, const int64_t* starts, int64_t texts, float* vectors,
         float* states, Workspace& space);

    // With `team`, another thread takes part.
    void run(Team* team);

    // What a thread does before and after its parts of the pass.
    void begin() const;
    void end() const;

    // One of the parts of a step, which do not depend on each other. `who` is 0, which goes through them upwards, or 1, which
    // goes downwards; with `last` no part is left after this one.
    void part(int64_t step, int64_t at, int who, bool last);

    int64_t parts(int64_t step) const;
    int64_t height() const { return blocks_.height; }
    bool tiles() const { return tiles_; }

  private:
    void do_all(Team* team, int64_t step);
    template <typename F>
    void multiply(const uint16_t* x, const uint16_t* packed, int64_t depth, int64_t column, const char* ask, const F& finish);
    void linear(const uint16_t* x, const uint16_t* packed, const float* bias, int64_t depth, int64_t outputs, int64_t first,
                const char* ask);
    void widen(const uint16_t* packed, const float* bias, int64_t first, const char* ask);
    void embed();
    void add_norm(const float* norms, float* states);
    // The row of x_ in place, as bfloat16 in narrow_, and where `states` is given there.
    void norm(int64_t row, const float* weights, float* states);
    // One head of one text; of queries, keys and values [rows][3][heads][dim] in made_.
    template <int PARTS>
    void attend(int64_t from, int64_t length, int64_t head, int who);
    void pool();

    const HeadgateEncoder& e_;
    const bool tiles_;
    const int32_t* const ids_;
    const int64_t* const starts_;
    const int64_t texts_;
    float* const vectors_;
    float* const states_;
    const int64_t rows_;
    const Blocks blocks_;
    const int64_t dim_;
    int64_t stride_;
    float* x_;  // [rows][hidden], what the layers add to
    float* made_;  // what a product gives
    uint16_t* narrow_;  // [rows][hidden], what the next product reads
    uint16_t* wide_;  // [rows][wide]
    float* keys_[2];  // of one head, transposed; for either thread
    float* shares_[2];  // of one query in them
};

}  // namespace headgate

#pragma GCC pop_options
#endif
