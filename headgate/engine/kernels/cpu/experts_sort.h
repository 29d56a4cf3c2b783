// The choices of a step's tokens, brought in order of their experts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "int8.h"

namespace headgate {

// Rows that are all for the same expert.
struct ExpertSpan {
    int64_t expert;
    int64_t begin;
    int64_t end;
    int64_t place;  // of its first row among quantised ones, in rows
    bool expand;    // its 4-bit weights are written out as int8 first, because there are many rows
};

// What the sorted choices come to: an expert's rows are cut into pieces that fit the cache, for each of the two products.
struct Sorted {
    int64_t pieces;
    int64_t down_pieces;
};

// Each token's experts and their weights, token after token.
struct Choices {
    const int32_t* ids;
    const float* weights;
    int64_t count;
    int64_t per_token;
};

// Where they go: pieces of the first product and of the second, and of each row its token and weight.
struct InOrder {
    ExpertSpan* pieces;
    ExpertSpan* down_pieces;
    int32_t* tokens;
    float* weights;
};

// A counting sort; within an expert tokens stay in order. Pieces of the first product have up to `longest` rows, of the second
// `down_rows`; `expanded(rows)` says whether an expert with so many has its weights written out. `next` has room for
// `experts` + 1.
template <typename F>
Sorted sort_by_expert(const Choices& choices, int64_t experts, int64_t longest, int64_t down_rows, const F& expanded,
                      int64_t* next, const InOrder& to) {
    Sorted sorted{};
    std::fill_n(next, experts + 1, 0);
    for (int64_t i = 0; i < choices.count; ++i) ++next[choices.ids[i] + 1];
    int64_t place = 0;
    for (int64_t e = 1; e <= experts; ++e) {
        const int64_t begin = next[e - 1], end = begin + next[e];
        const bool expand = expanded(end - begin);
        next[e] = end;
        for (int64_t row = begin; row < end; row += longest)
            to.pieces[sorted.pieces++] = {e - 1, row, std::min(row + longest, end), 0, expand};
        for (int64_t row = begin; row < end; row += down_rows) {
            const int64_t rows = std::min(down_rows, end - row);
            to.down_pieces[sorted.down_pieces++] = {e - 1, row, row + rows, place, expand};
            place += Int8Layout::bytes(rows, 1);
        }
    }
    for (int64_t i = 0; i < choices.count; ++i) {
        const int64_t row = next[choices.ids[i]]++;
        to.tokens[row] = static_cast<int32_t>(i / choices.per_token);
        to.weights[row] = choices.weights[i];
    }
    return sorted;
}

}  // namespace headgate
