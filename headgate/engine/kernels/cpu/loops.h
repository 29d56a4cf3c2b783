// The inner loops, free of torch, and the table that offers them compiled for the instruction set of this machine.
#pragma once

#include <cstdint>

namespace headgate {

struct Bf16Weights;

// Rows of `width` elements that follow each other densely: row (i, j) starts at i * outer + j * inner elements.
struct Rows {
    const void* data;
    int64_t outer;
    int64_t inner;
    int64_t per_outer;  // how many j there are
};

// Keys and values [slots, kv_heads, dim] of the element type of the queries, or int8 with scales [slots, kv_heads].
struct Cache {
    const void* keys;
    const void* values;
    const float* key_scales;  // null unless int8; value_scales too
    const float* value_scales;
    int64_t kv_heads;
    int64_t dim;
    int64_t block_size;
};

// Queries that share keys: `rows` consecutive tokens of one sequence times the `group` heads of one key head.
struct AttentionTask {
    const int32_t* table;
    int64_t row;       // of q, the first one
    int64_t rows;
    int64_t position;  // of that first row in its sequence
    int64_t kv_head;
    int64_t begin;     // positions of the keys that this task looks at
    int64_t end;
    float* partial;    // null, or where the unfinished result goes: see partial_floats
};

// Tasks that are done together: one, or those of some neighbouring heads with the same tokens and keys.
struct AttentionRun {
    const AttentionTask* tasks;
    int64_t count;
    const AttentionTask* next;  // of the run that probably follows, or null
};

struct Attention {
    const void* q;  // [tokens, heads, dim]
    void* out;
    Cache cache;
    int64_t heads;
    int64_t window;  // positions back, itself included
    const float* sinks;  // [heads], of each the score of one more key, which has no value; or null
    // [tokens], ascending within a sequence: of each the position behind the last key that it sees; null where that is its own.
    const int32_t* limits = nullptr;
};

// Where the heads of a fused projection go: queries, normalised and rotated, to `q`; keys likewise, and values, to the cache.
struct Placement {
    const void* qkv;     // [tokens][heads + 2 * kv_heads][dim]
    const void* q_norm;  // [dim], or null for none; k_norm too
    const void* k_norm;
    float eps;
    const float* cos;  // [positions][dim / 2]; sin too
    const float* sin;
    const int64_t* positions;  // [tokens]
    const int64_t* slots;      // [tokens]
    int64_t heads;
    int64_t kv_heads;
    int64_t dim;  // at most kMaxHeadDim
    void* q;      // [tokens][heads][dim]
    void* keys;   // [slots][kv_heads][dim]; values too
    void* values;
    float* key_scales;  // [slots][kv_heads] where keys and values are int8, else null; value_scales too
    float* value_scales;
};

constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kTile = 64;      // keys scored at a time; a multiple of every vector width
constexpr int64_t kMaxLanes = 16;
// Keys whose softmax is taken separately before all are joined, in sections and tiles that begin at multiples of their length:
// so a query gets the same bits whatever rows it is computed with, and whether or not its sections are computed side by side.
constexpr int64_t kSection = 512;

constexpr int64_t padded(int64_t dim) { return (dim + kMaxLanes - 1) / kMaxLanes * kMaxLanes; }

// Floats of one query's unfinished result: weighted values, then their weight, then the maximal score.
constexpr int64_t partial_floats(int64_t dim) { return padded(dim) + kMaxLanes; }

// Floats of working memory for a task of `queries` = rows * group.
constexpr int64_t scratch_floats(int64_t queries, int64_t dim) {
    return queries * (padded(dim) + 2 * partial_floats(dim) + kTile);
}

// The loops for one element type. Ranges [begin, end) are of rows.
struct Loops {
    void (*rms_norm)(Rows x, const void* weight, float eps, int64_t width, void* out, int64_t begin, int64_t end);
    void (*add_rms_norm)(void* x, void* residual, const void* weight, float eps, int64_t width, int64_t begin,
                         int64_t end);
    void (*rope)(Rows x, const float* cos, const float* sin, int64_t dim, void* out, int64_t begin, int64_t end);
    void (*swiglu)(Rows x, int64_t width, void* out, int64_t begin, int64_t end);
    void (*geglu)(Rows x, int64_t width, void* out, int64_t begin, int64_t end);
    void (*scale)(void* x, float factor, int64_t width);  // one row, in place
    // Items [begin, end) of tokens * (heads + kv_heads): a head of the queries, or one of the keys with its values.
    void (*place)(const Placement& p, int64_t begin, int64_t end);
    // A row of `width` elements to int8 and its scale: x ~ q * scale with scale = max|x| / 127, or 1 for a row of zeros.
    void (*to_int8)(const void* x, int64_t width, int8_t* q, float* scale);
    void (*attend)(const Attention& a, const AttentionRun& run, float* scratch);
    // Joins the unfinished result of a later section to that of all before it.
    void (*fold)(float* all, const float* section, int64_t dim);
    // Joins the sections of one row's queries, [splits][queries][partial_floats], to [queries][dim]; overwrites them. `sinks`
    // [queries], or null.
    void (*merge)(float* partials, int64_t splits, int64_t queries, int64_t dim, const float* sinks, void* out);
    // See bf16.h; the same for every element type.
    void (*bf16_panels)(const uint16_t* x, int64_t rows, const Bf16Weights& w, uint16_t* out, int64_t begin, int64_t end);
};

enum class Element { f32, bf16 };

// For the best instruction set that this processor has.
const Loops& loops(Element element);

}  // namespace headgate
