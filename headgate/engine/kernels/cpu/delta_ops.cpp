// torch.ops.headgate.delta_rule: a layer of the gated delta rule between its projections, for all rows of a step.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "checks.h"
#include "crew.h"
#include "delta.h"

namespace headgate {
namespace {

using at::Tensor;

const float* floats(const Tensor& x, int64_t elements, const char* name) {
    TORCH_CHECK(x.scalar_type() == at::kFloat && x.is_contiguous() && x.numel() == elements, name,
                " must be contiguous float32 of ", elements, " elements, got ", x.scalar_type(), " ", x.sizes());
    return x.const_data_ptr<float>();
}

// The rows of every span that changes a state are within `rows`, and slots within `slots`.
const DeltaSpan* checked(const Tensor& spans, int64_t rows, int64_t slots) {
    TORCH_CHECK(spans.dim() == 2 && spans.size(1) == 4 && spans.scalar_type() == at::kLong && spans.is_contiguous(),
                "spans must be contiguous int64 [spans, 4], got ", spans.scalar_type(), " ", spans.sizes());
    const auto* all = reinterpret_cast<const DeltaSpan*>(spans.const_data_ptr<int64_t>());
    for (int64_t i = 0; i < spans.size(0); ++i) {
        const DeltaSpan& s = all[i];
        TORCH_CHECK_INDEX(s.row >= 0 && s.count >= 0 && s.row + s.count <= rows && s.source >= -1 && s.source < slots &&
                              s.target >= 0 && s.target < slots,
                          "span ", i, " of ", s.count, " tokens from row ", s.row, ", from slot ", s.source, " to ", s.target,
                          ", does not fit ", rows, " rows and ", slots, " slots");
    }
    return all;
}

// mixed [rows, channels + values] and gates [rows, 2 * value heads] of float32 or bfloat16 to [rows, values]. inputs
// [slots, taps - 1, channels] and states [slots, value heads, key_dim, value_dim] are changed where spans say: int64 [spans, 4],
// see DeltaSpan; those of sequence i are from begins[i] up to begins[i + 1]. No slot may be of two sequences.
Tensor delta_rule(const Tensor& mixed, const Tensor& gates, Tensor& inputs, Tensor& states, const Tensor& spans,
                  const Tensor& begins, const Tensor& convolution, const Tensor& decay, const Tensor& decay_bias,
                  const Tensor& norm, double eps) {
    TORCH_CHECK(states.dim() == 4 && convolution.dim() == 2 && inputs.dim() == 3, "states must be [slots, value heads, key_dim, "
                "value_dim], convolution [taps, channels], inputs [slots, taps - 1, channels]");
    const int64_t slots = states.size(0), heads = states.size(1), taps = convolution.size(0), channels = convolution.size(1);
    const int64_t rows = mixed.size(0), values = heads * states.size(3), key_heads = (channels - values) / (2 * states.size(2));
    TORCH_CHECK(key_heads > 0 && heads % key_heads == 0 && channels == values + 2 * key_heads * states.size(2) &&
                    states.size(2) % kMaxLanes == 0 && states.size(3) % kMaxLanes == 0 && taps > 1 && taps <= kMaxTaps,
                "heads must have multiples of ", kMaxLanes, " numbers and the convolution 2 to ", kMaxTaps,
                " taps, got states ", states.sizes(), " and convolution ", convolution.sizes());
    TORCH_CHECK(mixed.dim() == 2 && mixed.size(1) == channels + values && mixed.is_contiguous() && gates.is_contiguous() &&
                    gates.scalar_type() == mixed.scalar_type() && gates.numel() == rows * 2 * heads,
                "mixed must be contiguous [rows, ", channels + values, "] and gates [rows, ", 2 * heads, "] of the same type, got ",
                mixed.scalar_type(), " ", mixed.sizes(), " and ", gates.scalar_type(), " ", gates.sizes());
    floats(states, states.numel(), "states");
    floats(inputs, slots * (taps - 1) * channels, "inputs");
    const DeltaLayer layer{key_heads,
                           heads / key_heads,
                           states.size(2),
                           states.size(3),
                           taps,
                           floats(convolution, taps * channels, "convolution"),
                           floats(decay, heads, "decay"),
                           floats(decay_bias, heads, "decay_bias"),
                           floats(norm, states.size(3), "norm"),
                           static_cast<float>(eps)};
    const DeltaSpan* all = checked(spans, rows, slots);
    const int64_t* first = indices(begins, spans.size(0) + 1, "begins");
    const DeltaLoop loop = delta_loop(element(mixed));
    Tensor out = at::empty({rows, values}, mixed.options());
    const DeltaRows x{mixed.const_data_ptr(), gates.const_data_ptr(), out.mutable_data_ptr(), inputs.mutable_data_ptr<float>(),
                      states.mutable_data_ptr<float>()};
    divided((begins.numel() - 1) * key_heads, 1, [&](int64_t begin, int64_t end) {
        const int64_t size = delta_floats(layer) + kMaxLanes;
        const std::unique_ptr<float[]> memory(new float[size]);
        void* aligned = memory.get();
        size_t space = static_cast<size_t>(size) * sizeof(float);
        float* scratch = static_cast<float*>(std::align(kMaxLanes * sizeof(float), sizeof(float), aligned, space));
        for (int64_t i = begin; i < end; ++i) {
            const int64_t sequence = i / key_heads;
            loop(layer, x, all + first[sequence], all + std::max(first[sequence], first[sequence + 1]), i % key_heads, scratch);
        }
    });
    return out;
}

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def(
        "delta_rule(Tensor mixed, Tensor gates, Tensor(a!) inputs, Tensor(b!) states, Tensor spans, Tensor begins, Tensor "
        "convolution, Tensor decay, Tensor decay_bias, Tensor norm, float eps) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) { m.impl("delta_rule", TORCH_FN(headgate::delta_rule)); }
