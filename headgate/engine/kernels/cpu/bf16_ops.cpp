// The operators torch.ops.headgate.bf16_*: they check their arguments and divide the work among torch's own threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "bf16.h"
#include "product.h"

namespace headgate {
namespace {

using at::Tensor;

// Below about this many multiplications waking a second thread costs more than it saves.
constexpr int64_t kProductsPerThread = 128 * 1024;

// bfloat16 [outputs, inputs] to the packed form.
Tensor bf16_pack(const Tensor& weight) {
    TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kBFloat16 && weight.is_contiguous(),
                "weight must be a contiguous bfloat16 matrix, got ", weight.scalar_type(), " ", weight.sizes());
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = round_up(outputs, kPanel) / kPanel, depth = round_up(inputs, kBf16Depth);
    Tensor packed = at::zeros({panels, depth / 2, kPanel, 2}, weight.options());
    const auto* from = static_cast<const uint16_t*>(weight.const_data_ptr());
    auto* to = static_cast<uint16_t*>(packed.mutable_data_ptr());
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin * kPanel; o < std::min(end * kPanel, outputs); ++o) {
            uint16_t* column = to + o / kPanel * kPanel * depth + o % kPanel * 2;
            for (int64_t i = 0; i < inputs; ++i) column[i / 2 * kPanel * 2 + i % 2] = from[o * inputs + i];
        }
    });
    return packed;
}

Tensor bf16_linear(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias, int64_t outputs) {
    TORCH_CHECK(x.dim() == 2 && (x.size(1) <= 1 || x.stride(1) == 1) && x.scalar_type() == at::kBFloat16,
                "x must be bfloat16 [rows, inputs] with dense rows, got ", x.scalar_type(), " ", x.sizes());
    TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kBFloat16 && packed.is_contiguous() &&
                    packed.size(2) == kPanel && packed.size(3) == 2,
                "packed must come from bf16_pack, got ", packed.sizes());
    const int64_t rows = x.size(0), inputs = x.size(1), panels = packed.size(0), depth = packed.size(1) * 2;
    TORCH_CHECK(round_up(inputs, kBf16Depth) == depth && round_up(outputs, kPanel) == panels * kPanel, "x has ", inputs,
                " inputs and ", outputs, " outputs are wanted; the weights are for ", depth, " and ", panels * kPanel,
                ", each rounded up");
    if (bias.has_value())
        TORCH_CHECK(bias->scalar_type() == at::kBFloat16 && bias->is_contiguous() && bias->numel() == outputs,
                    "bias must be bfloat16 [", outputs, "]");
    Tensor out = at::empty({rows, outputs}, x.options());
    if (out.numel() == 0) return out;
    const Bf16Product product(
        inputs, {static_cast<const uint16_t*>(packed.const_data_ptr()),
                 bias.has_value() ? static_cast<const uint16_t*>(bias->const_data_ptr()) : nullptr, outputs, depth});
    Tensor prepared = at::empty({product.prepared_bytes(rows)}, x.options().dtype(at::kByte));
    product.prepare({x.const_data_ptr(), x.stride(0), 0, 1}, rows, prepared.mutable_data_ptr(), 0, rows);
    const int64_t per_panel = rows * depth * kPanel;
    at::parallel_for(0, panels, std::max<int64_t>(1, kProductsPerThread / per_panel), [&](int64_t begin, int64_t end) {
        product.multiply(prepared.const_data_ptr(), rows, out.mutable_data_ptr(), begin, end);
    });
    return out;
}

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("bf16_pack(Tensor weight) -> Tensor");
    m.def("bf16_linear(Tensor x, Tensor packed, Tensor? bias, int outputs) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("bf16_pack", TORCH_FN(headgate::bf16_pack));
    m.impl("bf16_linear", TORCH_FN(headgate::bf16_linear));
}
