// The operators on packed weights, torch.ops.headgate.*_pack and *_linear: they check their arguments and divide
// the work among the crew, and packing among torch's own threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "checks.h"
#include "crew.h"
#include "experts.h"
#include "mxfp4.h"
#include "product.h"

namespace headgate {
namespace {

using at::Tensor;
using Packed = std::tuple<Tensor, Tensor, Tensor>;  // the packed form, scales and shift

// Below about this many multiplications, or elements, waking a second thread costs more than it saves.
constexpr int64_t kProductsPerThread = 256 * 1024;
constexpr int64_t kElementsPerThread = 16 * 1024;

void check_int8() { TORCH_CHECK(int8_usable(), "this processor lacks AVX2, or HEADGATE_VECTORS is set"); }

const Int4Loops& checked_int4() {
    const Int4Loops* table = int4_loops();
    TORCH_CHECK(table != nullptr, "this processor lacks AVX2, or HEADGATE_VECTORS is set");
    return *table;
}

// [rows, columns] with dense rows.
Rows matrix(const Tensor& x, const char* name) {
    TORCH_CHECK(x.dim() == 2 && (x.size(1) <= 1 || x.stride(1) == 1) &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
                name, " must be float32 or bfloat16 [rows, columns] with dense rows, got ", x.scalar_type(), " ", x.sizes());
    return {x.const_data_ptr(), x.stride(0), 0, 1};
}

int64_t panels_of(int64_t outputs) { return round_up(outputs, kPanel) / kPanel; }

// [outputs, inputs] in floating point, rounded and packed: see Int8Weights.
Packed int8_pack(const Tensor& weight) {
    check_int8();
    const Rows rows = matrix(weight, "weight");
    const Element type = element(weight);
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = panels_of(outputs), depth = round_up(inputs, kDepth);
    Tensor packed = at::empty({panels, depth / 4, kPanel, 4}, weight.options().dtype(at::kChar));
    Tensor scales = at::zeros({panels * kPanel}, weight.options().dtype(at::kFloat));
    Tensor shift = at::zeros({panels * kPanel}, weight.options().dtype(at::kInt));
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
            int8_quantize(rows, type, inputs, depth, Int8Layout(depth), room.data() - first * depth, of, first, first + count);
            int8_pack_panel(room.data(), depth, to + first * depth, sums + first);
        }
    });
    return {packed, scales, shift};
}

// The same at four bits: see Int4Weights. `importance` [inputs]: how much the squared error at each input counts; all alike
// if there is none.
Packed int4_pack(const Tensor& weight, const std::optional<Tensor>& importance) {
    const Int4Loops& table = checked_int4();
    const Rows rows = matrix(weight, "weight");
    const Element type = element(weight);
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = panels_of(outputs), depth = round_up(inputs, kDepth);
    std::vector<float> weigh(depth, 1);
    if (importance.has_value()) {
        TORCH_CHECK(importance->scalar_type() == at::kFloat && importance->is_contiguous() && importance->dim() == 1 &&
                        importance->numel() == inputs,
                    "importance must be float32 [", inputs, "], got ", importance->scalar_type(), " ",
                    importance->sizes());
        std::copy_n(importance->const_data_ptr<float>(), inputs, weigh.begin());
    }
    // With step and centre 0 any code stands for zero.
    Tensor packed = at::zeros({panels, depth / kInt4Group, kInt4Block}, weight.options().dtype(at::kByte));
    Tensor scales = at::zeros({panels * kPanel}, weight.options().dtype(at::kFloat));
    Tensor shift = at::zeros({panels * kPanel}, weight.options().dtype(at::kInt));
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        table.thin(rows, type, outputs, inputs, depth, weigh.data(), packed.mutable_data_ptr<uint8_t>(),
                   scales.mutable_data_ptr<float>(), shift.mutable_data_ptr<int32_t>(), begin, end);
    });
    return {packed, scales, shift};
}

// Codes uint8 [outputs, groups, 16] and scales uint8 [outputs, groups] of a checkpoint to the packed form of mxfp4.h.
Tensor mxfp4_pack(const Tensor& blocks, const Tensor& scales) {
    TORCH_CHECK(blocks.dim() == 3 && blocks.scalar_type() == at::kByte && blocks.is_contiguous() &&
                    blocks.size(2) == kMxfp4Group / 2 && scales.scalar_type() == at::kByte && scales.is_contiguous() &&
                    scales.sizes() == blocks.sizes().slice(0, 2),
                "blocks must be contiguous uint8 [outputs, groups, ", kMxfp4Group / 2, "] and scales [outputs, groups], got ",
                blocks.sizes(), " and ", scales.sizes());
    const int64_t outputs = blocks.size(0), groups = blocks.size(1), panels = (outputs + kFloatPanel - 1) / kFloatPanel;
    Tensor packed = at::zeros({panels, groups, kMxfp4Block}, blocks.options());
    const uint8_t *codes = blocks.const_data_ptr<uint8_t>(), *given = scales.const_data_ptr<uint8_t>();
    uint8_t* to = packed.mutable_data_ptr<uint8_t>();
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin * kFloatPanel; o < std::min(end * kFloatPanel, outputs); ++o)
            for (int64_t g = 0; g < groups; ++g) {
                uint8_t* block = to + (o / kFloatPanel * groups + g) * kMxfp4Block;
                const uint8_t scale = given[o * groups + g], *from = codes + (o * groups + g) * (kMxfp4Group / 2);
                block[o % kFloatPanel] = std::clamp(scale, kLeastScale, kMostScale);
                if (scale < kLeastScale) continue;
                for (int64_t t = 0; t < kMxfp4Words; ++t, from += 4) {
                    uint32_t word = 0;
                    for (int64_t j = 0; j < 4; ++j) word |= (from[j] & 15u) << 4 * j | (from[j] >> 4u) << (4 * j + 16);
                    std::memcpy(block + kFloatPanel + (t * kFloatPanel + o % kFloatPanel) * 4, &word, sizeof word);
                }
            }
    });
    return packed;
}

// bfloat16 [outputs, inputs], see Bf16Weights.
Tensor bf16_pack(const Tensor& weight) {
    TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kBFloat16 && weight.is_contiguous(),
                "weight must be a contiguous bfloat16 matrix, got ", weight.scalar_type(), " ", weight.sizes());
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = panels_of(outputs), depth = round_up(inputs, kBf16Depth);
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

// What packed weights are for must be what x has and what is wanted.
void check_fit(const Tensor& x, const std::optional<Tensor>& bias, int64_t outputs, int64_t depth, int64_t unit,
               int64_t panels) {
    TORCH_CHECK(round_up(x.size(1), unit) == depth && panels_of(outputs) == panels, "x has ", x.size(1), " inputs and ",
                outputs, " outputs are wanted; the weights are for ", depth, " and ", panels * kPanel, ", each rounded up");
    if (bias.has_value())
        TORCH_CHECK(bias->scalar_type() == x.scalar_type() && bias->is_contiguous() && bias->numel() == outputs,
                    "bias must be ", x.scalar_type(), " [", outputs, "]");
}

void check_scales(const Tensor& scales, const Tensor& shift, int64_t panels) {
    TORCH_CHECK(scales.scalar_type() == at::kFloat && scales.is_contiguous() && scales.numel() == panels * kPanel,
                "scales must be float32 [", panels * kPanel, "]");
    TORCH_CHECK(shift.scalar_type() == at::kInt && shift.is_contiguous() && shift.numel() == panels * kPanel,
                "shift must be int32 [", panels * kPanel, "]");
}

const void* data_of(const std::optional<Tensor>& bias) { return bias.has_value() ? bias->const_data_ptr() : nullptr; }

Tensor linear(const Tensor& x, const Product& product, int64_t depth) {
    const int64_t rows = x.size(0);
    Tensor out = at::empty({rows, product.outputs}, x.options());
    if (out.numel() == 0) return out;
    Tensor prepared = at::empty({product.prepared_bytes(rows)}, x.options().dtype(at::kByte));
    const Rows from = matrix(x, "x");
    divided(rows, std::max<int64_t>(1, kElementsPerThread / depth), [&](int64_t begin, int64_t end) {
        product.prepare(from, rows, prepared.mutable_data_ptr(), begin, end);
    });
    const int64_t per_piece = rows * depth * kPanel;
    divided(product.pieces(), std::max<int64_t>(1, kProductsPerThread / per_piece), [&](int64_t begin, int64_t end) {
        product.multiply(prepared.const_data_ptr(), rows, out.mutable_data_ptr(), begin, end);
    });
    return out;
}

Tensor int8_linear(const Tensor& x, const Tensor& packed, const Tensor& scales, const Tensor& shift,
                   const std::optional<Tensor>& bias, int64_t outputs) {
    check_int8();
    matrix(x, "x");
    TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kChar && packed.is_contiguous() &&
                    packed.size(2) == kPanel && packed.size(3) == 4,
                "packed must come from int8_pack, got ", packed.sizes());
    const int64_t panels = packed.size(0), depth = packed.size(1) * 4;
    check_fit(x, bias, outputs, depth, kDepth, panels);
    check_scales(scales, shift, panels);
    const Int8Weights w{packed.const_data_ptr<int8_t>(), scales.const_data_ptr<float>(), shift.const_data_ptr<int32_t>(),
                        data_of(bias), outputs, depth};
    return linear(x, Int8Product(element(x), x.size(1), w), depth);
}

Tensor int4_linear(const Tensor& x, const Tensor& packed, const Tensor& scales, const Tensor& shift,
                   const std::optional<Tensor>& bias, int64_t outputs) {
    const Int4Loops& table = checked_int4();
    matrix(x, "x");
    TORCH_CHECK(packed.dim() == 3 && packed.scalar_type() == at::kByte && packed.is_contiguous() &&
                    packed.size(2) == kInt4Block,
                "packed must come from int4_pack, got ", packed.sizes());
    const int64_t panels = packed.size(0), depth = packed.size(1) * kInt4Group;
    check_fit(x, bias, outputs, depth, kDepth, panels);
    check_scales(scales, shift, panels);
    const Int4Weights w{packed.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(), shift.const_data_ptr<int32_t>(),
                        data_of(bias), outputs, depth};
    return linear(x, Int4Product(element(x), x.size(1), w, table), depth);
}

Tensor bf16_linear(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias, int64_t outputs) {
    matrix(x, "x");
    TORCH_CHECK(x.scalar_type() == at::kBFloat16, "x must be bfloat16, got ", x.scalar_type());
    TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kBFloat16 && packed.is_contiguous() &&
                    packed.size(2) == kPanel && packed.size(3) == 2,
                "packed must come from bf16_pack, got ", packed.sizes());
    const int64_t depth = packed.size(1) * 2;
    check_fit(x, bias, outputs, depth, kBf16Depth, packed.size(0));
    const Bf16Weights w{static_cast<const uint16_t*>(packed.const_data_ptr()),
                        static_cast<const uint16_t*>(data_of(bias)), outputs, depth};
    return linear(x, Bf16Product(x.size(1), w), depth);
}

// The instruction set of the 4-bit operators, or nothing.
std::string int4_vectors() { return int4_loops() != nullptr ? int4_loops()->name : ""; }

int64_t int8_panel() { return kPanel; }
int64_t float_panel() { return kFloatPanel; }

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("int8_usable() -> bool", &headgate::int8_usable);
    m.def("int8_pack(Tensor weight) -> (Tensor packed, Tensor scales, Tensor shift)");
    m.def("int8_linear(Tensor x, Tensor packed, Tensor scales, Tensor shift, Tensor? bias, int outputs) -> Tensor");
    m.def("int4_vectors() -> str", &headgate::int4_vectors);
    m.def("int4_pack(Tensor weight, Tensor? importance) -> (Tensor packed, Tensor scales, Tensor shift)");
    m.def("int4_linear(Tensor x, Tensor packed, Tensor scales, Tensor shift, Tensor? bias, int outputs) -> Tensor");
    m.def("mxfp4_pack(Tensor blocks, Tensor scales) -> Tensor");
    m.def("bf16_pack(Tensor weight) -> Tensor");
    m.def("bf16_linear(Tensor x, Tensor packed, Tensor? bias, int outputs) -> Tensor");
    m.def("int8_panel() -> int", &headgate::int8_panel);
    m.def("float_panel() -> int", &headgate::float_panel);
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("int8_pack", TORCH_FN(headgate::int8_pack));
    m.impl("int8_linear", TORCH_FN(headgate::int8_linear));
    m.impl("int4_pack", TORCH_FN(headgate::int4_pack));
    m.impl("int4_linear", TORCH_FN(headgate::int4_linear));
    m.impl("mxfp4_pack", TORCH_FN(headgate::mxfp4_pack));
    m.impl("bf16_pack", TORCH_FN(headgate::bf16_pack));
    m.impl("bf16_linear", TORCH_FN(headgate::bf16_linear));
}
