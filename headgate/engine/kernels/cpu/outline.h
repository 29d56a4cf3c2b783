// What a layer's cache holds of a sequence, in short; free of torch.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

// Where `tokens` > 0 values of a sequence lie: in the blocks of `table`, [slots, kv_heads, dim] of `element`, or int8 with scales.
struct Outlined {
    const Cache& cache;
    Element element;
    const int32_t* table;
    int64_t tokens;
};

// The last token's values, then the mean of all: [2 * kv_heads * dim] to `told`.
void outline(const Outlined& sequence, float* told);

}  // namespace headgate
