// The comparator of `headgate/cache/embedding/comparator.py` as one call, free of Python: called through ctypes.
#pragma once

#include <cstdint>

extern "C" {

// Weights are float32 and transposed, so that what goes to 48 outputs from one input lies together.
struct HeadgateComparator {
    int64_t instructions;  // as for `headgate_encoder_run`, but that AMX counts as AVX-512
    int64_t states;  // length of an encoder's state
    int64_t width;  // of a sketch, a multiple of 16 up to 64
    float pull;  // what a cosine is multiplied with
    float same;  // what an equal wordpiece adds to that
    const float* project;  // [states][width]
    const float* f1;  // [4 * width + 4][48]
    const float* f1_bias;
    const float* f2;  // [48][48]
    const float* f2_bias;
    const float* o1;  // [98][48]
    const float* o1_bias;
    const float* o2;  // [48], then its bias
    const float* rarity;  // of each of 65,536 wordpieces
};

// Of one text: rows of `states` floats that begin `stride` floats apart.
struct HeadgateStates {
    const float* rows;
    int64_t stride;
    int64_t tokens;
};

// To [tokens][width] in 8 bits, all texts one after another.
void headgate_comparator_sketches(const HeadgateComparator* comparator, const HeadgateStates* given, int64_t texts,
                                  int8_t* sketches);

// Sketches as they follow each other, the asked one first: that of `at` from starts[at] to starts[at + 1], 1 to 40 wordpieces.
// cosines and odds [stored].
void headgate_comparator_run(const HeadgateComparator* comparator, const uint16_t* ids, const int8_t* sketches,
                             const int64_t* starts, int64_t stored, const float* cosines, float* odds);
}
