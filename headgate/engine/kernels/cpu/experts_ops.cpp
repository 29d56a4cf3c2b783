// The operator torch.ops.headgate.experts: it checks its arguments and describes the layer.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "experts.h"
#include "int4.h"
#include "int8.h"

namespace headgate {
namespace {

using at::Tensor;

// The matrix of all experts that maps `inputs` to `outputs`.
ExpertMatrix matrix_of(const Tensor& packed, const std::optional<Tensor>& scales, const std::optional<Tensor>& shift,
                       ExpertFormat format, at::ScalarType type, int64_t experts, int64_t inputs, int64_t outputs,
                       const char* name) {
    const bool quantized = format != ExpertFormat::floating;
    const int64_t panel = panel_of(format), panels = round_up(outputs, panel) / panel;
    const int64_t depth = round_up(inputs, quantized ? kDepth : kFloatDepth);
    const bool fits =
        format == ExpertFormat::int4
            ? packed.dim() == 4 && packed.scalar_type() == at::kByte && packed.size(2) * kInt4Group == depth &&
                  packed.size(3) == kInt4Block
            : packed.dim() == 5 && packed.scalar_type() == (quantized ? at::kChar : type) &&
                  packed.size(2) * packed.size(4) == depth && packed.size(3) == panel &&
                  packed.size(4) == (quantized ? 4 : type == at::kFloat ? 1 : 2);
    TORCH_CHECK(fits && packed.is_contiguous() && packed.size(0) == experts && packed.size(1) == panels,
                name, " must be ", experts, " matrices of ", panels, " panels of ", panel, " outputs and depth ", depth,
                ", got ", packed.scalar_type(), " ", packed.sizes());
    if (quantized)
        for (const auto& [of, wanted] : {std::pair{&scales, at::kFloat}, std::pair{&shift, at::kInt}})
            TORCH_CHECK(of->has_value() && (*of)->is_contiguous() && (*of)->scalar_type() == wanted &&
                            (*of)->numel() == experts * panels * panel,
                        name, " needs scales (float32) and shifts (int32) of ", experts * panels * panel, " outputs");
    return {packed.const_data_ptr(), quantized ? scales->const_data_ptr<float>() : nullptr,
            quantized ? shift->const_data_ptr<int32_t>() : nullptr, panels, depth};
}

Tensor experts(const Tensor& x, const Tensor& router, const Tensor& gate_up, const std::optional<Tensor>& gate_up_scales,
               const std::optional<Tensor>& gate_up_shift, const Tensor& down, const std::optional<Tensor>& down_scales,
               const std::optional<Tensor>& down_shift, int64_t count, int64_t shared, int64_t width, int64_t per_token,
               bool normalize) {
    const at::ScalarType type = x.scalar_type();
    TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && (type == at::kFloat || type == at::kBFloat16),
                "x must be contiguous float32 or bfloat16 [tokens, hidden], got ", type, " ", x.sizes());
    TORCH_CHECK(0 < per_token && per_token <= count && shared >= 0, "per_token must be 1 to ", count, ", got ", per_token);
    const ExpertFormat format = gate_up.scalar_type() == at::kChar   ? ExpertFormat::int8
                                : gate_up.scalar_type() == at::kByte ? ExpertFormat::int4
                                                                     : ExpertFormat::floating;
    TORCH_CHECK(format != ExpertFormat::int4 || int4_loops() != nullptr,
                "this processor lacks AVX2, or HEADGATE_VECTORS is set");
    TORCH_CHECK(format != ExpertFormat::int8 || int8_usable(),
                "this processor lacks AVX-512 VNNI, or HEADGATE_VECTORS is set");
    const int64_t hidden = x.size(1), panel = panel_of(format), halves = round_up(width, panel / 2);
    const ExpertMatrix routes = matrix_of(router, std::nullopt, std::nullopt, ExpertFormat::floating, type, 1, hidden,
                                          count + (shared > 0 ? 1 : 0), "router");
    const ExpertLayer layer{format,
                            type == at::kFloat ? Element::f32 : Element::bf16,
                            count,
                            shared,
                            per_token,
                            normalize,
                            hidden,
                            width,
                            routes.packed,
                            matrix_of(gate_up, gate_up_scales, gate_up_shift, format, type, count + shared, hidden,
                                      2 * halves, "gate_up"),
                            matrix_of(down, down_scales, down_shift, format, type, count + shared, width, hidden, "down")};
    Tensor out = at::empty(x.sizes(), x.options());
    if (out.numel() > 0) run_experts(layer, x.const_data_ptr(), x.size(0), out.mutable_data_ptr());
    return out;
}

int64_t int8_panel() { return kPanel; }
int64_t float_panel() { return kFloatPanel; }

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("int8_panel() -> int", &headgate::int8_panel);
    m.def("float_panel() -> int", &headgate::float_panel);
    m.def(
        "experts(Tensor x, Tensor router, Tensor gate_up, Tensor? gate_up_scales, Tensor? gate_up_shift, Tensor down, "
        "Tensor? down_scales, Tensor? down_shift, int count, int shared, int width, int per_token, bool normalize) -> "
        "Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) { m.impl("experts", TORCH_FN(headgate::experts)); }
