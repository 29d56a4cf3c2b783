// Linear layers of bfloat16 weights, free of torch.
#pragma once

#include <cstdint>

#include "int8.h"

namespace headgate {

// Weights as the product reads them: panels of kPanel outputs, in each the inputs two by two, the outputs next to each
// other: [panels][depth / 2][kPanel][2]. Missing outputs and inputs are zeros.
struct Bf16Weights {
    const uint16_t* packed;
    const uint16_t* bias;  // null, or [outputs]
    int64_t outputs;
    int64_t depth;  // inputs, rounded up to kBf16Depth
};

constexpr int64_t kBf16Depth = 32;

// Panels [begin, end) of out [rows][outputs] = x w^T plus bias, with x [rows][depth]. Sums are float32. How a row's sums are
// added up does not depend on how many rows there are.
void bf16_multiply(const uint16_t* x, int64_t rows, const Bf16Weights& w, uint16_t* out, int64_t begin, int64_t end);

}  // namespace headgate
