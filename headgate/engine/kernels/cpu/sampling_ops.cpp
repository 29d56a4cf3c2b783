// torch.ops.headgate.likeliest: greedy decoding of all rows of a step in one call.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "checks.h"
#include "sampling.h"

namespace headgate {
namespace {

using at::Tensor;

constexpr int64_t kElementsPerThread = 1 << 17;  // below, waking another thread takes longer than looking

// Per row of logits [rows, vocabulary] the index of the largest, or -1; see sampling.h. int64 [rows].
Tensor likeliest_rows(const Tensor& given) {
    TORCH_CHECK(given.dim() == 2 && given.size(1) > 0, "logits must be [rows, vocabulary], got ", given.sizes());
    const Tensor logits = given.contiguous();
    const int64_t rows = logits.size(0), width = logits.size(1);
    const Element kind = element(logits);
    const char* data = static_cast<const char*>(logits.const_data_ptr());
    const int64_t stride = width * logits.element_size();
    Tensor out = at::empty({rows}, at::TensorOptions(at::kLong));
    int64_t* tokens = out.mutable_data_ptr<int64_t>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) tokens[i] = likeliest(kind, data + i * stride, width);
    });
    return out;
}

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) { m.def("likeliest(Tensor logits) -> Tensor"); }

TORCH_LIBRARY_IMPL(headgate, CPU, m) { m.impl("likeliest", TORCH_FN(headgate::likeliest_rows)); }
