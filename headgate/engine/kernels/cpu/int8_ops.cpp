// The operators torch.ops.headgate.int8_*: they check their arguments and divide the work among torch's own threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "int8.h"

namespace headgate {
namespace {

using at::Tensor;

// Below about this many multiplications waking a second thread costs more than it saves.
constexpr int64_t kProductsPerThread = 256 * 1024;
constexpr int64_t kElementsPerThread = 16 * 1024;

// [outputs, inputs] in floating point, rounded and packed: the packed form, scales and shift of Int8Weights.
std::tuple<Tensor, Tensor, Tensor> int8_pack(const Tensor& weight) {
    TORCH_CHECK(int8_usable(), "this processor lacks AVX-512 VNNI, or HEADGATE_VECTORS is set");
    TORCH_CHECK(weight.dim() == 2 && (weight.size(1) <= 1 || weight.stride(1) == 1) &&
                    (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16),
                "weight must be float32 or bfloat16 [outputs, inputs] with dense rows, got ", weight.scalar_type(), " ",
                weight.sizes());
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = round_up(outputs, kPanel) / kPanel, depth = round_up(inputs, kDepth);
    Tensor packed = at::empty({panels, depth / 4, kPanel, 4}, weight.options().dtype(at::kChar));
    Tensor scales = at::zeros({panels * kPanel}, weight.options().dtype(at::kFloat));
    Tensor shift = at::zeros({panels * kPanel}, weight.options().dtype(at::kInt));
    const Element element = weight.scalar_type() == at::kFloat ? Element::f32 : Element::bf16;
    const Rows rows{weight.const_data_ptr(), weight.stride(0), 0, 1};
    int8_t* to = packed.mutable_data_ptr<int8_t>();
    float* of = scales.mutable_data_ptr<float>();
    int32_t* sums = shift.mutable_data_ptr<int32_t>();
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        // A panel's rows, rounded as activations are: with 128 added, which is also what missing rows hold.
        std::vector<uint8_t> room(kPanel * depth, 128);
        for (int64_t panel = begin; panel < end; ++panel) {
            const int64_t first = panel * kPanel, count = std::min(kPanel, outputs - first);
            if (count < kPanel) std::fill(room.begin(), room.end(), static_cast<uint8_t>(128));
            // Its rows count from the first of the matrix.
            int8_quantize(rows, element, inputs, depth, room.data() - first * depth, of, first, first + count);
            int8_pack_panel(room.data(), depth, to + first * depth, sums + first);
        }
    });
    return {packed, scales, shift};
}

Tensor int8_linear(const Tensor& x, const Tensor& packed, const Tensor& scales, const Tensor& shift,
                   const std::optional<Tensor>& bias, int64_t outputs) {
    TORCH_CHECK(int8_usable(), "this processor lacks AVX-512 VNNI, or HEADGATE_VECTORS is set");
    TORCH_CHECK(x.dim() == 2 && (x.size(1) <= 1 || x.stride(1) == 1) &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
                "x must be float32 or bfloat16 [rows, inputs] with dense rows, got ", x.scalar_type(), " ", x.sizes());
    TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kChar && packed.is_contiguous() &&
                    packed.size(2) == kPanel && packed.size(3) == 4,
                "packed must come from int8_pack, got ", packed.sizes());
    const int64_t rows = x.size(0), inputs = x.size(1), panels = packed.size(0), depth = packed.size(1) * 4;
    TORCH_CHECK(round_up(inputs, kDepth) == depth && round_up(outputs, kPanel) == panels * kPanel,
                "x has ", inputs, " inputs and ", outputs, " outputs are wanted; the weights are for ", depth, " and ",
                panels * kPanel, ", each rounded up");
    TORCH_CHECK(scales.scalar_type() == at::kFloat && scales.is_contiguous() && scales.numel() == panels * kPanel,
                "scales must be float32 [", panels * kPanel, "]");
    TORCH_CHECK(shift.scalar_type() == at::kInt && shift.is_contiguous() && shift.numel() == panels * kPanel,
                "shift must be int32 [", panels * kPanel, "]");
    if (bias.has_value())
        TORCH_CHECK(bias->scalar_type() == x.scalar_type() && bias->is_contiguous() && bias->numel() == outputs,
                    "bias must be ", x.scalar_type(), " [", outputs, "]");
    Tensor out = at::empty({rows, outputs}, x.options());
    if (out.numel() == 0) return out;
    const Element element = x.scalar_type() == at::kFloat ? Element::f32 : Element::bf16;
    Tensor q = at::empty({rows, depth}, x.options().dtype(at::kByte));
    Tensor row_scales = at::empty({rows}, x.options().dtype(at::kFloat));
    const Rows from{x.const_data_ptr(), x.stride(0), 0, 1};
    at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / depth), [&](int64_t begin, int64_t end) {
        int8_quantize(from, element, inputs, depth, q.mutable_data_ptr<uint8_t>(), row_scales.mutable_data_ptr<float>(),
                      begin, end);
    });
    const Int8Weights w{packed.const_data_ptr<int8_t>(), scales.const_data_ptr<float>(), shift.const_data_ptr<int32_t>(),
                        bias.has_value() ? bias->const_data_ptr() : nullptr, outputs, depth};
    const int64_t per_panel = rows * depth * kPanel;
    at::parallel_for(0, panels, std::max<int64_t>(1, kProductsPerThread / per_panel), [&](int64_t begin, int64_t end) {
        int8_product(q.const_data_ptr<uint8_t>(), row_scales.const_data_ptr<float>(), rows, w, element,
                     out.mutable_data_ptr(), begin, end);
    });
    return out;
}

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("int8_usable() -> bool", &headgate::int8_usable);
    m.def("int8_pack(Tensor weight) -> (Tensor packed, Tensor scales, Tensor shift)");
    m.def("int8_linear(Tensor x, Tensor packed, Tensor scales, Tensor shift, Tensor? bias, int outputs) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("int8_pack", TORCH_FN(headgate::int8_pack));
    m.impl("int8_linear", TORCH_FN(headgate::int8_linear));
}
