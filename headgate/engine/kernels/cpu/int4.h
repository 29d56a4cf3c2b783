// Linear layers of 4-bit weights and activations quantised to int8 row by row, free of torch.
#pragma once

#include <cstdint>

#include "int8.h"

namespace headgate {

// An output's weights are thinned int8: in each group of kInt4Group inputs only sixteen evenly spaced int8 values occur,
//     weight = scale * (step * (code - 8) + centre),  code 0..15, step 1..17, centre such that all fit in int8.
// Every sum is therefore the exact int32 sum of an int8 layer, however it is computed.
//
// Packed for reading once from end to end: [panels][groups][kInt4Block]. A block is kPanel pairs of bytes (step, centre)
// and then kPanel / 16 times 4 x 64 bytes: byte 4 o + i of the t-th 64 holds the codes of output o for the inputs 8 t + i
// (low four bits) and 8 t + 4 + i. Missing outputs and inputs have code 8 and centre 0, which is zero.
struct Int4Weights {
    const uint8_t* packed;
    const float* scales;   // [panels * kPanel], of each output
    const int32_t* shift;  // [panels * kPanel]: 128 times the sum of an output's int8 weights, as for Int8Weights
    const void* bias;      // null, or [outputs] in the element type of the result
    int64_t outputs;
    int64_t depth;  // inputs, rounded up to kDepth, which is whole groups
};

constexpr int64_t kInt4Group = 32;
constexpr int64_t kInt4Block = kPanel * 2 + kPanel * kInt4Group / 2;

// What one group of one row's activations sum to, as the products want it.
struct GroupSum {
    int32_t minus_eight;  // -8 sum
    int32_t upper;        // the sum in the upper 16 bits
};

// The loops for one instruction set. Ranges [begin, end) are of rows or panels.
struct Int4Loops {
    const char* name;
    // Rows of x to q [rows][depth] and scales [rows], rounded as int8_quantize does, and the sums [rows][depth / group].
    void (*quantize)(Rows x, Element element, int64_t inputs, int64_t depth, int8_t* q, float* scales, GroupSum* sums,
                     int64_t begin, int64_t end);
    // out [rows][outputs] = q w^T, scaled, plus bias; codes are unpacked in registers.
    void (*product)(const int8_t* q, const float* scales, const GroupSum* sums, int64_t rows, const Int4Weights& w,
                    Element element, void* out, int64_t begin, int64_t end);
    // Panels [begin, end) as the int8 product reads them. Null where there is no such product.
    void (*expand)(const Int4Weights& w, int64_t begin, int64_t end, int8_t* out);
    // Panels [begin, end) of w to the packed form, scales and shift of Int4Weights, all of them zeros before. The search
    // for steps and centres counts the squared error at an input `weigh` [inputs, rounded up to groups] times.
    void (*thin)(Rows w, Element element, int64_t outputs, int64_t inputs, int64_t depth, const float* weigh,
                 uint8_t* packed, float* scales, int32_t* shift, int64_t begin, int64_t end);
};

// From so many rows on it pays to write panels out as int8 first: that costs as much as multiplying some rows, and saves
// every row the steps and centres. AMX tiles multiply faster, so that it takes fewer.
constexpr int64_t kExpandRows = 24;
constexpr int64_t kExpandRowsForAmx = 9;
// Panels are written out until they fill so much, which stays in the second cache.
constexpr int64_t kExpandedBytes = 256 * 1024;

// For the best instruction set that this processor has; null if it has none of them.
const Int4Loops* int4_loops();

}  // namespace headgate
