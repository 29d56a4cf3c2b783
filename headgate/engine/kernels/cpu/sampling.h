// Choosing tokens from logits, free of torch.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

// Index of the largest of `count` > 0 logits, the first of equal ones; -1 where one is NaN or +infinity, or all are
// -infinity, because then there is no distribution.
int64_t likeliest(Element element, const void* logits, int64_t count);

// Makes the logits of tokens impossible that have no bit in `allowed` [words], where there is a bit per token from the lowest
// on.
void forbid(Element element, void* logits, int64_t count, const uint32_t* allowed, int64_t words);

// How one row is drawn, see SamplingParams; `high` and `low` are the halves of its key, see sampling/noise.py.
struct Drawing {
    float temperature;  // above 0
    int64_t top_k;      // 0: all
    double top_p;
    double min_p;
    uint32_t high;
    uint32_t low;
};

// The token whose score plus Gumbel noise is largest among those that top_k, top_p within these, and min_p leave; -1 as
// above. `floats` has room for `draw_floats(count)`, `ids` for `count`.
int64_t draw(Element element, const void* logits, int64_t count, const Drawing& d, float* floats, int32_t* ids);
int64_t draw_floats(int64_t count);

// Natural logarithms of the chances of the `most` likeliest tokens, the likeliest first, and the entropy: [most + 1] to `told`,
// all NaN where there is no distribution. `floats` and `ids` as above.
void forecast(Element element, const void* logits, int64_t count, int64_t most, float* floats, int32_t* ids, float* told);

}  // namespace headgate
