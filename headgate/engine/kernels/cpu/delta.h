// What a layer of the gated delta rule does between its projections, free of torch. See GatedDelta in models/delta.py.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

struct DeltaLayer {
    int64_t key_heads;
    int64_t each;  // value heads of a key head
    int64_t key_dim;
    int64_t value_dim;            // a multiple of kMaxLanes, as key_dim is
    int64_t taps;                 // tokens that the convolution sees
    const float* convolution;     // [taps][channels]: queries, keys and values
    const float* decay;           // [value heads], below 0
    const float* decay_bias;      // [value heads]
    const float* norm;            // [value_dim]
    float eps;

    int64_t channels() const { return key_heads * (2 * key_dim + each * value_dim); }
    int64_t values() const { return key_heads * each * value_dim; }
};

// Rows of a step, and states by slot.
struct DeltaRows {
    const void* mixed;  // [rows][channels + values], the latter gates of what is read out
    const void* gates;  // [rows][2 * value heads]: strengths, then decays
    void* out;          // [rows][values]
    float* inputs;      // [slots][taps - 1][channels], the last that the convolution has seen
    float* states;      // [slots][value heads][key_dim][value_dim]
};

// Tokens of one sequence that follow each other, perhaps none: from the state at `source`, or from none where that is -1, to
// the one at `target`.
struct DeltaSpan {
    int64_t row;
    int64_t count;
    int64_t source;
    int64_t target;
};

constexpr int64_t kDeltaTokens = 32;  // that pass through a head's state before the next head's turn
constexpr int64_t kDeltaPart = 64;   // of a state's columns that change at a time, at most
constexpr int64_t kMaxTaps = 8;

constexpr int64_t delta_floats(const DeltaLayer& l) {
    return kDeltaTokens * (2 * l.key_dim + (l.each + 1) * l.value_dim + 2) + (kDeltaTokens + kMaxTaps) * kMaxLanes +
           l.key_dim * kDeltaPart;
}

// Does a sequence's spans, one after the other, for one key head and its value heads; a token gets the same bits whatever
// spans it comes in. `scratch`: delta_floats, aligned like a vector.
using DeltaLoop = void (*)(const DeltaLayer& layer, const DeltaRows& rows, const DeltaSpan* begin, const DeltaSpan* end,
                           int64_t key_head, float* scratch);

// For the best instruction set that this processor has.
DeltaLoop delta_loop(Element element);

}  // namespace headgate
