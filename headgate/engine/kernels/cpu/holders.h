// What torch.classes.headgate.Product and Experts hold: weights that a walk of the crew reads, checked once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "crew.h"
#include "mxfp4.h"
#include "step.h"

namespace headgate {

using at::Tensor;

inline const void* data_of(const Tensor& x, at::ScalarType dtype, int64_t elements, const char* name) {
    TORCH_CHECK(x.scalar_type() == dtype && x.is_contiguous() && x.numel() == elements, name, " must be contiguous ", dtype,
                " of ", elements, " elements, got ", x.scalar_type(), " ", x.sizes());
    return x.const_data_ptr();
}

// Packed weights of a linear layer. `tensors`: packed, and for int8 and int4 also scales and shift.
class ProductHolder : public torch::CustomClassHolder {
  public:
    ProductHolder(const std::string& format, std::vector<Tensor> tensors, std::optional<Tensor> bias, int64_t inputs,
                  int64_t outputs, at::ScalarType dtype)
        : tensors_(std::move(tensors)), bias_(std::move(bias)) {
        const int64_t panels = round_up(outputs, kPanel) / kPanel;
        const void* bias_data = bias_ ? data_of(*bias_, dtype, outputs, "bias") : nullptr;
        TORCH_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "dtype must be float32 or bfloat16, got ", dtype);
        if (format == "int8") {
            TORCH_CHECK(int8_usable() && tensors_.size() == 3, "int8 takes AVX2 and packed, scales and shift");
            const int64_t depth = round_up(inputs, kDepth);
            const Int8Weights w{
                static_cast<const int8_t*>(data_of(tensors_[0], at::kChar, panels * kPanel * depth, "packed")),
                static_cast<const float*>(data_of(tensors_[1], at::kFloat, panels * kPanel, "scales")),
                static_cast<const int32_t*>(data_of(tensors_[2], at::kInt, panels * kPanel, "shift")),
                bias_data, outputs, depth};
            product = std::make_shared<Int8Product>(dtype == at::kFloat ? Element::f32 : Element::bf16, inputs, w);
        } else if (format == "int4") {
            const Int4Loops* table = int4_loops();
            TORCH_CHECK(table != nullptr && tensors_.size() == 3, "int4 takes AVX2 and packed, scales and shift");
            const int64_t depth = round_up(inputs, kDepth);
            const Int4Weights w{
                static_cast<const uint8_t*>(
                    data_of(tensors_[0], at::kByte, panels * (depth / kInt4Group) * kInt4Block, "packed")),
                static_cast<const float*>(data_of(tensors_[1], at::kFloat, panels * kPanel, "scales")),
                static_cast<const int32_t*>(data_of(tensors_[2], at::kInt, panels * kPanel, "shift")),
                bias_data, outputs, depth};
            product = std::make_shared<Int4Product>(dtype == at::kFloat ? Element::f32 : Element::bf16, inputs, w, *table);
        } else if (format == "bfloat16") {
            TORCH_CHECK(dtype == at::kBFloat16 && tensors_.size() == 1, "bfloat16 takes packed and bfloat16 rows");
            const int64_t depth = round_up(inputs, kBf16Depth);
            const Bf16Weights w{
                static_cast<const uint16_t*>(data_of(tensors_[0], at::kBFloat16, panels * kPanel * depth, "packed")),
                static_cast<const uint16_t*>(bias_data), outputs, depth};
            product = std::make_shared<Bf16Product>(inputs, w);
        } else {
            TORCH_CHECK(false, "format must be bfloat16, int8 or int4, got ", format);
        }
    }

    std::shared_ptr<const Product> product;

  private:
    std::vector<Tensor> tensors_;  // that the product points into
    std::optional<Tensor> bias_;
};

// `memory` with room for `bytes` from a multiple of 64 on, which is returned.
inline char* aligned(Tensor& memory, int64_t bytes) {
    if (!memory.defined() || memory.numel() < bytes + 64) memory = at::empty({bytes + 64}, at::TensorOptions(at::kByte));
    char* start = static_cast<char*>(memory.mutable_data_ptr());
    return start + -reinterpret_cast<uintptr_t>(start) % 64;
}

// The matrix of all experts that maps `inputs` to `outputs`.
inline ExpertMatrix matrix_of(const Tensor& packed, const std::optional<Tensor>& scales, const std::optional<Tensor>& shift,
                       const std::optional<Tensor>& bias, ExpertFormat format, at::ScalarType type, int64_t experts,
                       int64_t inputs, int64_t outputs, const char* name) {
    const bool quantized = format == ExpertFormat::int8 || format == ExpertFormat::int4;
    const int64_t panel = panel_of(format), panels = round_up(outputs, panel) / panel;
    const int64_t depth = round_up(inputs, quantized ? kDepth : kFloatDepth);
    const bool fits =
        format == ExpertFormat::int4
            ? packed.dim() == 4 && packed.scalar_type() == at::kByte && packed.size(2) * kInt4Group == depth &&
                  packed.size(3) == kInt4Block
        : format == ExpertFormat::mxfp4
            ? packed.dim() == 4 && packed.scalar_type() == at::kByte && packed.size(2) * kMxfp4Group == depth &&
                  packed.size(3) == kMxfp4Block
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
            quantized ? shift->const_data_ptr<int32_t>() : nullptr,
            bias ? static_cast<const float*>(data_of(*bias, at::kFloat, experts * panels * panel, "bias")) : nullptr, panels,
            depth};
}

// A mixture of experts. Their format follows from the types of `gate_up`, see ExpertLayer; the router's type is that of
// activations, and of weights in floating point. 4-bit ones without scales are MXFP4. Biases are float32, filled up to whole
// panels: of the router, [experts, ...] of the others.
class ExpertsHolder : public torch::CustomClassHolder {
  public:
    ExpertsHolder(const Tensor& router, const Tensor& gate_up, const std::optional<Tensor>& gate_up_scales,
                  const std::optional<Tensor>& gate_up_shift, const Tensor& down, const std::optional<Tensor>& down_scales,
                  const std::optional<Tensor>& down_shift, int64_t count, int64_t shared, int64_t hidden, int64_t width,
                  int64_t per_token, bool normalize, const std::optional<Tensor>& router_bias,
                  const std::optional<Tensor>& gate_up_bias, const std::optional<Tensor>& down_bias, double limit)
        : dtype_(router.scalar_type()) {
        TORCH_CHECK(0 < per_token && per_token <= count && shared >= 0, "per_token must be 1 to ", count, ", got ",
                    per_token);
        const ExpertFormat format = gate_up.scalar_type() == at::kChar   ? ExpertFormat::int8
                                    : gate_up.scalar_type() != at::kByte ? ExpertFormat::floating
                                    : gate_up_scales.has_value()         ? ExpertFormat::int4
                                                                         : ExpertFormat::mxfp4;
        TORCH_CHECK(format != ExpertFormat::int4 || int4_loops() != nullptr, "int4 takes AVX2");
        TORCH_CHECK(format != ExpertFormat::int8 || int8_usable(), "int8 takes AVX2");
        const Element type = element(router);
        const int64_t panel = panel_of(format), halves = round_up(width, panel / 2);
        const auto matrix = [&](const Tensor& packed, const std::optional<Tensor>& scales, const std::optional<Tensor>& shift,
                                const std::optional<Tensor>& bias, int64_t inputs, int64_t outputs, const char* name) {
            return matrix_of(packed, scales, shift, bias, format, dtype_, count + shared, inputs, outputs, name);
        };
        const ExpertMatrix routes = matrix_of(router, std::nullopt, std::nullopt, router_bias, ExpertFormat::floating, dtype_,
                                              1, hidden, count + (shared > 0 ? 1 : 0), "router");
        layer = std::make_shared<ExpertLayer>(
            ExpertLayer{format, type, count, shared, per_token, normalize, hidden, width, routes.packed,
                        routes.bias, static_cast<float>(limit),
                        matrix(gate_up, gate_up_scales, gate_up_shift, gate_up_bias, hidden, 2 * halves, "gate_up"),
                        matrix(down, down_scales, down_shift, down_bias, width, hidden, "down")});
        keep_ = {router, gate_up, down};
        for (const auto* part : {&gate_up_scales, &gate_up_shift, &down_scales, &down_shift, &router_bias, &gate_up_bias,
                                 &down_bias})
            if (part->has_value()) keep_.push_back(**part);
    }

    // [tokens, hidden] to [tokens, hidden].
    Tensor forward(const Tensor& x) const {
        const int64_t tokens = x.dim() == 2 ? x.size(0) : 0;
        const void* from = data_of(x, dtype_, tokens * layer->hidden, "x");
        Tensor out = at::empty(x.sizes(), x.options()), memory;
        if (tokens == 0) return out;
        char* room = aligned(memory, expert_bytes(*layer, tokens, team_places()));
        together([&](Member& member) {
            const auto choose = [&](int64_t begin, int64_t end) {
                choose_experts(member, *layer, from, tokens, room, begin, end);
            };
            member.share(tokens, member.pieces(), choose, [&] { sort_experts(member, *layer, tokens, room); });
            add_experts(member, *layer, tokens, room, out.mutable_data_ptr(), [] {});
        });
        return out;
    }

    std::shared_ptr<const ExpertLayer> layer;

  private:
    const at::ScalarType dtype_;
    std::vector<Tensor> keep_;  // that the layer points into
};

}  // namespace headgate
