// Checks of arguments that several operators take.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "attention_plan.h"
#include "loops.h"

namespace headgate {

inline Element element(const at::Tensor& x) {
    TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
                "headgate kernels take float32 or bfloat16, got ", x.scalar_type());
    return x.scalar_type() == at::kFloat ? Element::f32 : Element::bf16;
}

// The spans of a step of `rows` rows over a cache of `blocks` blocks.
inline const Span* spans_of(const at::Tensor& geometry, const at::Tensor& tables, int64_t rows, int64_t blocks,
                            int64_t block_size) {
    TORCH_CHECK(geometry.scalar_type() == at::kLong && geometry.is_contiguous() && tables.is_contiguous() &&
                    tables.scalar_type() == at::kInt && geometry.numel() % 4 == 0 && block_size > 0,
                "geometry must be int64 [sequences, 4], tables int32, block_size positive");
    const auto* spans = reinterpret_cast<const Span*>(geometry.const_data_ptr<int64_t>());
    const int32_t* of = tables.const_data_ptr<int32_t>();
    for (int64_t i = 0; i < geometry.numel() / 4; ++i) {
        const Span& s = spans[i];
        const int64_t used = (s.context + block_size - 1) / block_size;
        TORCH_CHECK(s.row >= 0 && s.count > 0 && s.count <= s.context && s.row + s.count <= rows && s.table >= 0 &&
                        s.table + used <= tables.numel(),
                    "sequence ", i, " does not fit ", rows, " rows and tables ", tables.sizes());
        const auto outside = [&](int32_t block) { return block < 0 || block >= blocks; };
        TORCH_CHECK_INDEX(std::none_of(of + s.table, of + s.table + used, outside), "a block of sequence ", i,
                          " is not below ", blocks);
    }
    return spans;
}

// int64 numbers from 0 up to `limit`, in order.
inline const int64_t* indices(const at::Tensor& x, int64_t limit, const char* name) {
    TORCH_CHECK(x.dim() == 1 && x.scalar_type() == at::kLong && x.is_contiguous(), name, " must be contiguous int64, got ",
                x.scalar_type(), " ", x.sizes());
    const int64_t* values = x.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < x.numel(); ++i)
        TORCH_CHECK_INDEX(0 <= values[i] && values[i] < limit, name, ": ", values[i], " of ", limit);
    return values;
}

}  // namespace headgate
