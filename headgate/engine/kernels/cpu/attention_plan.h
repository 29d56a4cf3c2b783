// Which parts of a step's attention are computed separately, free of torch.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"

namespace headgate {

// The rows of one sequence that are computed in this step; the columns of `geometry`.
struct Span {
    int64_t row;
    int64_t count;
    int64_t context;
    int64_t table;  // where its blocks begin in `tables`
};

// What begins with the first of `rows` [samples] that lies in each span; spans without one are left out.
std::vector<Span> sampled_spans(const Span* spans, int64_t sequences, const int64_t* rows, int64_t samples);

// A query whose keys were divided among tasks, to be joined.
struct Merge {
    float* partials;
    int64_t splits;
    int64_t row;
    int64_t kv_head;
};

struct AttentionPlan {
    int64_t runs() const { return static_cast<int64_t>(begins.size()); }
    AttentionRun run(int64_t i) const {
        const bool last = i + 1 == runs();
        const int64_t end = last ? static_cast<int64_t>(tasks.size()) : begins[i + 1];
        return {tasks.data() + begins[i], end - begins[i], last ? nullptr : tasks.data() + end};
    }

    std::vector<AttentionTask> tasks;
    std::vector<int64_t> begins;  // of runs, among the tasks
    std::vector<Merge> merges;
    std::vector<float> unfinished;
    int64_t products = 0;        // multiplications, about
    int64_t scratch_floats = 0;  // of one run, at most
};

// Tasks as `way` takes them for `sequences` spans; `tables` and the plan itself must stay where they are while it is used.
// `limits`: see Attention.
AttentionPlan plan_attention(const Span* spans, int64_t sequences, const int32_t* tables, int64_t kv_heads, int64_t group,
                             int64_t dim, int64_t window, const AttentionWay& way, const int32_t* limits = nullptr);

}  // namespace headgate
