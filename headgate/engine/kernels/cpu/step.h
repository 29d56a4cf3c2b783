// One step of a decoder as a single parallel region, free of torch: from token ids to logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "attention.h"
#include "attention_plan.h"
#include "experts.h"
#include "loops.h"
#include "product.h"
#include "team.h"

namespace headgate {

// Weights of norms are of the model's element type. `window`: positions back, itself included, that a token sees.
struct StepLayer {
    const void* input_norm;
    const void* mlp_norm;
    const void* attended_norm;  // of what attention gives before it is added, or null
    const void* fed_norm;       // of what the MLP gives, or null
    const void* q_norm;  // [dim], or null for none; k_norm too
    const void* k_norm;
    std::shared_ptr<const Product> qkv;
    std::shared_ptr<const Product> output;
    std::shared_ptr<const Product> gate_up;  // null where there are experts; down too
    std::shared_ptr<const Product> down;
    std::shared_ptr<const ExpertLayer> experts;  // or null
    int64_t window;
    const float* sinks;  // see Attention
    size_t rotation;  // which of the model's angles turn its heads
    void* keys;  // [slots][kv_heads][dim] of the model's element type, or int8; values too
    void* values;
    float* key_scales;  // [slots][kv_heads] where keys and values are int8, else null; value_scales too
    float* value_scales;
    bool paged;  // its slots are those of pages, which windows are kept in
};

// By position, [positions][dim / 2] each.
struct Angles {
    const float* cos;
    const float* sin;
};

struct StepModel {
    Element element;
    int64_t hidden;
    int64_t heads;
    int64_t kv_heads;
    int64_t dim;
    int64_t block_size;
    float eps;
    bool gelu;              // MLPs are gated by gelu, not by silu
    float embedding_scale;  // of the rows of the embedding
    const void* embedding;  // [vocabulary][hidden]
    const void* norm;
    std::shared_ptr<const Product> head;
    std::vector<Angles> angles;
    std::vector<StepLayer> layers;

    int64_t element_bytes() const { return element == Element::f32 ? 4 : 2; }
};

struct StepInput {
    const int64_t* tokens;     // [count]
    const int64_t* positions;  // [count]
    const int64_t* slots;      // [count]
    const int64_t* page_slots;  // [count], of layers that are paged; or null
    const int64_t* rows;       // [samples]: of the tokens, those whose logits are wanted
    int64_t count;
    int64_t samples;
    bool single;                                  // every row is a sequence's only one
    std::vector<const AttentionPlan*> attention;  // one per layer; the last one's is of the sampled rows at least
    void* logits;                                 // [samples][vocabulary], or null
    void* hidden;                                 // [samples][hidden], what the logits come from, or null
    // f(begin, end, place) once the logits of rows [begin, end) are there, by the thread of that place; or empty.
    std::function<void(int64_t, int64_t, int64_t)> choose;
};

// Where the phases of a step leave their results, in one piece of memory.
class Workspace {
  public:
    Workspace(const StepModel& model, const StepInput& input, int64_t threads);

    int64_t bytes() const { return bytes_; }

    // Offsets into the memory. Those that are `chosen` take the rows that are sampled.
    int64_t residual, x, qkv, q, attended, gate_up, gated, experts, prepared, chosen, chosen_attended, chosen_residual, scratch;
    int64_t scratch_bytes;  // of one thread

  private:
    int64_t take(int64_t bytes);

    int64_t bytes_ = 0;
};

// One thread's part. `memory` is aligned to 64 bytes and has the workspace's size.
void walk(Member& member, const StepModel& model, const StepInput& input, const Workspace& workspace, char* memory);

}  // namespace headgate
