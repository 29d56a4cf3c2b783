// A mixture-of-experts layer as phases of a step: routing, the chosen experts' SwiGLU and their weighted sum. Free of torch.
#pragma once

#include <cstdint>
#include <functional>

#include "loops.h"
#include "team.h"

namespace headgate {

// Weights in floating point as the products read them: panels of kFloatPanel outputs, in each the inputs one after the
// other (float32: [depth][kFloatPanel]) or in pairs (bfloat16: [depth / 2][kFloatPanel][2]). Missing outputs and inputs
// are zeros.
constexpr int64_t kFloatPanel = 32;
constexpr int64_t kFloatDepth = 32;  // depth is a multiple of this

enum class ExpertFormat { floating, int8, int4, mxfp4 };  // the last one's packed form is that of mxfp4.h

// The same matrix of all experts, one expert after the other, each in panels.
struct ExpertMatrix {
    const void* packed;
    const float* scales;   // null, or [experts][panels * kPanel]
    const int32_t* shift;  // null, or [experts][panels * kPanel]: see int8.h and int4.h
    const float* bias;     // null, or [experts][panels * panel]
    int64_t panels;        // per expert
    int64_t depth;
};

// One layer. Ids below `count` are the experts the router chooses from; the `shared` ids that follow are parts of the
// expert that every token passes, weighed by the sigmoid of the router's last output.
struct ExpertLayer {
    ExpertFormat format;
    Element element;  // of x, the router and the result, and of the weights if they are in floating point
    int64_t count;
    int64_t shared;
    int64_t per_token;
    bool normalize;  // the chosen experts' weights are made to sum to one
    int64_t hidden;
    int64_t width;
    const void* router;    // panels in floating point, count (and one more if shared > 0) outputs
    const float* router_bias;  // null, or of the outputs, filled up to whole panels
    float limit;           // of clamped gates, see ExpertLoops; 0 if they are not
    ExpertMatrix gate_up;  // in each panel half the outputs are gates, the other half the ups that belong to them
    ExpertMatrix down;
};

// Outputs of a panel of `format`.
int64_t panel_of(ExpertFormat format);

// out [tokens][hidden] from x [tokens][hidden], both dense, in three parts: `choose_experts`, inside a phase, for every row; once
// all have chosen, by one thread, `sort_experts`; in later phases `add_experts`, whose `out` may be where x was, and at whose end
// one thread calls `then`. `memory`, aligned to 64 bytes, has `expert_bytes` and takes what lies between them. Reads only the
// weights of experts that some token chose. A token's result does not depend on what other tokens there are: each product sums in
// one order whatever the number of rows, and a token's experts are added in order of their ids.
void choose_experts(const Member& member, const ExpertLayer& layer, const void* x, int64_t tokens, char* memory,
                    int64_t begin, int64_t end);
void sort_experts(const Member& member, const ExpertLayer& layer, int64_t tokens, char* memory);
void add_experts(Member& member, const ExpertLayer& layer, int64_t tokens, char* memory, void* out,
                 const std::function<void()>& then);

// For a team of so many places.
int64_t expert_bytes(const ExpertLayer& layer, int64_t tokens, int64_t places);

// --- The loops behind it, compiled once per instruction set. ---

// Rows of activations, `stride` elements apart.
struct FloatRows {
    const void* rows;
    int64_t count;
    int64_t stride;
};

// Where their products go, `stride` floats apart: in place of what is there or, of up to kMoreRows rows, `more` of it.
struct FloatSums {
    float* rows;
    int64_t stride;
    bool more;
};

constexpr int64_t kMoreRows = 16;

struct ExpertLoops {
    // logits [padded to 16] of one token become its choice: per_token ids by falling weight (the lower id first among
    // equals), then the shared ids.
    void (*route)(float* logits, int64_t count, int64_t per_token, int64_t shared, bool normalize, int32_t* ids,
                  float* weights);
    // in [rows][panels * panel], gates and ups side by side, to silu(gate) * up: out [rows], `stride` elements apart.
    void (*activate)(const float* in, int64_t rows, int64_t panels, int64_t panel, void* out, int64_t stride);
    // The same for gates that are clamped to `limit`, and ups to it on both sides: gate * sigmoid(1.702 gate) * (up + 1).
    void (*activate_clamped)(const float* in, int64_t rows, int64_t panels, int64_t panel, float limit, void* out,
                             int64_t stride);
    // Adds `bias` [width], a multiple of 16, to rows.
    void (*shift)(float* rows, int64_t count, int64_t width, const float* bias);
    // sums[tokens[r]] += weights[r] * in[r], rows of `width` floats (a multiple of 16).
    void (*add)(const float* in, const int32_t* tokens, const float* weights, int64_t rows, int64_t width, float* sums);
    // Rows of `width` floats to the element type, `stride` elements apart, the first `kept` of each.
    void (*round)(const float* in, int64_t rows, int64_t width, int64_t kept, void* out, int64_t stride);
    // Panels [begin, end) of x w^T, side by side; `depth` inputs. Inputs that come in parts add up to the same bits.
    void (*product)(FloatRows x, const void* packed, int64_t depth, int64_t begin, int64_t end, FloatSums out);
    // So many groups of a panel's MXFP4 weights, or of panels that follow each other, as `product` reads them.
    void (*expand)(const uint8_t* packed, int64_t groups, void* out);
};

// For the best instruction set that this processor has.
const ExpertLoops& expert_loops(Element element);

// The bfloat16 product with instructions of its own (AMX, or AVX-512 BF16); null where there are none.
using FloatProduct = decltype(ExpertLoops::product);
FloatProduct bf16_product();

}  // namespace headgate
