#include "attention_plan.h"

#include <algorithm>

namespace headgate {
namespace {

// Large tasks share more, but each thread should get some: what is aimed at is kTasks in all, of kQueries at least.
constexpr int64_t kTasks = 32;
constexpr int64_t kQueries = 64;
// Likewise for single tokens, whose heads share no keys but have them next to each other in the cache: together they are read
// faster than one after the other.
constexpr int64_t kRuns = 16;

// The first key that the query at `position` sees, or one of the same tile before it.
int64_t first_key(int64_t position, int64_t window) {
    return position < window ? 0 : (position - window + 1) / kTile * kTile;
}

}  // namespace

std::vector<Span> sampled_spans(const Span* spans, int64_t sequences, const int64_t* rows, int64_t samples) {
    std::vector<Span> sampled;
    for (const Span* span = spans; span < spans + sequences; ++span) {
        const int64_t end = span->row + span->count;
        int64_t first = end;
        for (const int64_t* row = rows; row < rows + samples; ++row)
            if (span->row <= *row && *row < first) first = *row;
        if (first < end) sampled.push_back({first, end - first, span->context, span->table});
    }
    return sampled;
}

AttentionPlan plan_attention(const Span* spans, int64_t sequences, const int32_t* tables, int64_t kv_heads, int64_t group,
                             int64_t dim, int64_t window, const AttentionWay& way, const int32_t* limits) {
    const auto splits_of = [&](const Span& s) -> int64_t {
        return s.count > 1 ? 1 : (s.context - 1) / kSection - first_key(s.context - 1, window) / kSection + 1;
    };
    AttentionPlan plan;
    int64_t partials = 0, singles = 0;
    for (int64_t i = 0; i < sequences; ++i) {
        partials += splits_of(spans[i]) > 1 ? splits_of(spans[i]) * kv_heads : 0;
        singles += spans[i].count == 1 ? splits_of(spans[i]) * kv_heads : 0;
    }
    const int64_t together = std::clamp<int64_t>(singles / kRuns, 1, kv_heads);
    plan.unfinished.resize(partials * group * partial_floats(dim));
    float* place = plan.unfinished.data();
    int64_t queries = 0;
    for (int64_t i = 0; i < sequences; ++i) queries += spans[i].count * group * kv_heads;
    const int64_t each = std::clamp(queries / kTasks, std::min(kQueries, way.queries_per_task), way.queries_per_task);
    const int64_t rows_per_task = std::max<int64_t>(1, each / group);
    for (int64_t i = 0; i < sequences; ++i) {
        const Span& s = spans[i];
        const auto add = [&](int64_t done, int64_t head, int64_t from, int64_t until, float* partial) {
            const int64_t rows = std::min(rows_per_task, s.count - done);
            plan.products += rows * group * (until - from) * dim;
            plan.tasks.push_back({tables + s.table, s.row + done, rows, s.context - s.count + done, head, from, until, partial});
        };
        const int64_t heads = s.count == 1 ? together : 1;
        plan.scratch_floats =
            std::max(plan.scratch_floats, heads * way.scratch_floats(std::min(rows_per_task, s.count) * group, dim));
        if (s.count > 1) {
            // Head by head, whose keys and values may still be in a cache, what takes longest first, so that threads end together.
            const int64_t last = (s.count - 1) / rows_per_task * rows_per_task;
            for (int64_t head = 0; head < kv_heads; ++head)
                for (int64_t done = last; done >= 0; done -= rows_per_task) {
                    const int64_t position = s.context - s.count + done, behind = std::min(done + rows_per_task, s.count);
                    const int64_t until = limits == nullptr ? s.context - s.count + behind : limits[s.row + behind - 1];
                    plan.begins.push_back(static_cast<int64_t>(plan.tasks.size()));
                    add(done, head, first_key(position, window), until, nullptr);
                }
            continue;
        }
        const int64_t splits = splits_of(s), begin = first_key(s.context - 1, window);
        for (int64_t split = 0; split < splits; ++split) {
            const int64_t section = (begin / kSection + split) * kSection;
            for (int64_t head = 0; head < kv_heads; ++head) {
                if (head % heads == 0) plan.begins.push_back(static_cast<int64_t>(plan.tasks.size()));
                float* partial = splits == 1 ? nullptr : place + (head * splits + split) * group * partial_floats(dim);
                add(0, head, std::max(begin, section), std::min(section + kSection, s.context), partial);
            }
        }
        for (int64_t head = 0; splits > 1 && head < kv_heads; ++head, place += splits * group * partial_floats(dim))
            plan.merges.push_back({place, splits, s.row, head});
    }
    return plan;
}

}  // namespace headgate
