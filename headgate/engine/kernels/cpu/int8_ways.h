// The ways to compute what `int8.h` declares, one for each set of instructions.
#pragma once

#include <cstdint>

#include "int8.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_INT8 1
#endif

namespace headgate {

// See `int8_quantize` and `int8_product`.
struct Int8Way {
    void (*quantize)(Rows x, Element element, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q,
                     float* scales, int64_t begin, int64_t end);
    void (*product)(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                    int64_t begin, int64_t end);
    // Null where gates and ups are not multiplied together.
    void (*gated_product)(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                          int64_t begin, int64_t end);
    // Of the blocks in which so many rows lie.
    int64_t (*height)(int64_t rows);
};

extern const Int8Way int8_vnni;
extern const Int8Way int8_avx2;

}  // namespace headgate
