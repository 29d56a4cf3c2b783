// Which way attention goes on this processor, free of torch.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

// One way to do the tasks of a plan. `attend` takes scratch aligned to 64 bytes, for each of the run's tasks
// `scratch_floats(queries, dim)` floats, with the task's rows times its group as queries.
struct AttentionWay {
    void (*attend)(const Attention& a, const AttentionRun& run, float* scratch);
    int64_t (*scratch_floats)(int64_t queries, int64_t dim);
    int64_t queries_per_task;
};

// By the processor and the model's shape alone, never by the number of rows: the ways round differently.
AttentionWay attention_way(Element element, int64_t group);

}  // namespace headgate
