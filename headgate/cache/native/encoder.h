// A BERT encoder as one call, free of torch and of Python: called through ctypes, so everything here is plain C.
#pragma once

#include <cstdint>

extern "C" {

// Weights of products are bfloat16 and packed by `headgate_encoder_pack`; biases and norms are float32.
struct HeadgateEncoderLayer {
    const uint16_t* qkv;  // hidden -> 3 * hidden
    const uint16_t* out;  // hidden -> hidden
    const uint16_t* wide;  // hidden -> wide
    const uint16_t* narrow;  // wide -> hidden
    const float* qkv_bias;
    const float* out_bias;
    const float* out_norm;  // weights, then biases; narrow_norm too
    const float* wide_bias;
    const float* narrow_bias;
    const float* narrow_norm;
};

struct HeadgateEncoder {
    int64_t hidden;  // a multiple of 32
    int64_t heads;  // of 16, 32, 48 or 64 dimensions
    int64_t wide;  // a multiple of 32
    int64_t count;  // of layers
    int64_t middle;  // the layer after which states are taken, as they are after the last
    float epsilon;
    const uint16_t* words;  // half precision [words][hidden]
    const uint16_t* positions;  // half precision [positions][hidden]
    const float* norm;  // weights, then biases
    const HeadgateEncoderLayer* layers;
};

// Of what is declared here; it changes with it.
int32_t headgate_encoder_interface();

// What the processor has for it: 3 for AMX, 2 for AVX-512 with bfloat16, 1 for AVX2 with FMA and F16C, 0 for none of these.
// HEADGATE_VECTORS=avx512 keeps AMX out, avx2 AVX-512 too, and any other value all.
int32_t headgate_encoder_instructions();

// float32 [outputs][inputs] to panels of 32 outputs: [outputs / 32][inputs / 2][32][2]. Both are multiples of 32.
void headgate_encoder_pack(const float* weight, int64_t outputs, int64_t inputs, uint16_t* packed);

// Texts as they follow each other in `ids`, text t from starts[t] to starts[t + 1]; starts[0] is 0 and no text is empty. Ids
// and lengths have to be within the tables. `instructions` is at most what the processor has, and 1, 2 or 3.
//
// vectors [texts][hidden]: the mean of the last states, of unit norm. states [rows][2 * hidden]: middle, then last. What a text
// gets does not depend on the texts beside it. Working memory is kept by the calling thread.
//
// With `together`, a thread of the library's own takes part in the pass of a single text: one at a time in the process.
void headgate_encoder_run(const HeadgateEncoder* encoder, int32_t instructions, int32_t together, const int32_t* ids,
                          const int64_t* starts, int64_t texts, float* vectors, float* states);
}
