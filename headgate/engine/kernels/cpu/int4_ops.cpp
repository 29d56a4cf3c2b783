// The operators torch.ops.headgate.int4_*: they check their arguments and divide the work among torch's own threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "choice.h"
#include "int4.h"

namespace headgate {
namespace {

using at::Tensor;

// Below about this many multiplications waking a second thread costs more than it saves.
constexpr int64_t kProductsPerThread = 256 * 1024;
constexpr int64_t kElementsPerThread = 16 * 1024;
const Int4Loops& usable_loops() {
    const Int4Loops* table = int4_loops();
    TORCH_CHECK(table != nullptr, "this processor lacks AVX2, or HEADGATE_VECTORS is set");
    return *table;
}

Element element(const Tensor& x, const char* name) {
    TORCH_CHECK(x.dim() == 2 && (x.size(1) <= 1 || x.stride(1) == 1) &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
                name, " must be float32 or bfloat16 [rows, inputs] with dense rows, got ", x.scalar_type(), " ", x.sizes());
    return x.scalar_type() == at::kFloat ? Element::f32 : Element::bf16;
}

// [outputs, inputs] in floating point, rounded and packed: the packed form, scales and shift of Int4Weights. `importance`
// [inputs]: how much the squared error at each input counts; all alike if there is none.
std::tuple<Tensor, Tensor, Tensor> int4_pack(const Tensor& weight, const std::optional<Tensor>& importance) {
    const Int4Loops& table = usable_loops();
    const Element type = element(weight, "weight");
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    const int64_t panels = round_up(outputs, kPanel) / kPanel, depth = round_up(inputs, kDepth);
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
    const Rows rows{weight.const_data_ptr(), weight.stride(0), 0, 1};
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        table.thin(rows, type, outputs, inputs, depth, weigh.data(), packed.mutable_data_ptr<uint8_t>(),
                   scales.mutable_data_ptr<float>(), shift.mutable_data_ptr<int32_t>(), begin, end);
    });
    return {packed, scales, shift};
}

// Rows as the products read them.
struct Quantized {
    Tensor q;
    Tensor scales;
    Tensor sums;
};

Quantized quantize(const Int4Loops& table, const Tensor& x, Element type, int64_t depth) {
    const int64_t rows = x.size(0);
    Tensor q = at::empty({rows, depth}, x.options().dtype(at::kChar));
    Tensor scales = at::empty({rows}, x.options().dtype(at::kFloat));
    Tensor sums = at::empty({rows, depth / kInt4Group, 2}, x.options().dtype(at::kInt));
    static_assert(sizeof(GroupSum) == 2 * sizeof(int32_t));
    const Rows from{x.const_data_ptr(), x.stride(0), 0, 1};
    at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / depth), [&](int64_t begin, int64_t end) {
        table.quantize(from, type, x.size(1), depth, q.mutable_data_ptr<int8_t>(), scales.mutable_data_ptr<float>(),
                       static_cast<GroupSum*>(sums.mutable_data_ptr()), begin, end);
    });
    return {q, scales, sums};
}

// Panel by panel as int8, through the int8 product.
void expanded(const Int4Loops& table, const Tensor& x, Element type, const Int4Weights& w, Tensor& out) {
    const int64_t rows = x.size(0), depth = w.depth, panels = round_up(w.outputs, kPanel) / kPanel;
    Tensor q = at::empty({rows, depth}, x.options().dtype(at::kByte));
    Tensor scales = at::empty({rows}, x.options().dtype(at::kFloat));
    const Rows from{x.const_data_ptr(), x.stride(0), 0, 1};
    at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / depth), [&](int64_t begin, int64_t end) {
        int8_quantize(from, type, x.size(1), depth, q.mutable_data_ptr<uint8_t>(), scales.mutable_data_ptr<float>(), begin,
                      end);
    });
    const int64_t together = std::max<int64_t>(1, kExpandedBytes / (kPanel * depth));
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
        Tensor room = at::empty({std::min(together, end - begin) * kPanel * depth}, q.options().dtype(at::kChar));
        int8_t* weights = room.mutable_data_ptr<int8_t>();
        for (int64_t panel = begin; panel < end; panel += together) {
            const int64_t until = std::min(panel + together, end);
            table.expand(w, panel, until, weights);
            // The product counts panels from the first of the layer.
            const Int8Weights as_int8{weights - panel * kPanel * depth, w.scales, w.shift, w.bias, w.outputs, depth};
            int8_product(q.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(), rows, as_int8, type,
                         out.mutable_data_ptr(), panel, until);
        }
    });
}

Tensor int4_linear(const Tensor& x, const Tensor& packed, const Tensor& scales, const Tensor& shift,
                   const std::optional<Tensor>& bias, int64_t outputs) {
    const Int4Loops& table = usable_loops();
    const Element type = element(x, "x");
    TORCH_CHECK(packed.dim() == 3 && packed.scalar_type() == at::kByte && packed.is_contiguous() &&
                    packed.size(2) == kInt4Block,
                "packed must come from int4_pack, got ", packed.sizes());
    const int64_t rows = x.size(0), inputs = x.size(1), panels = packed.size(0), depth = packed.size(1) * kInt4Group;
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
    const Int4Weights w{packed.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(), shift.const_data_ptr<int32_t>(),
                        bias.has_value() ? bias->const_data_ptr() : nullptr, outputs, depth};
    const int64_t many = allowed(Instructions::amx_int8) ? kExpandRowsForAmx : kExpandRows;
    if (rows >= many && table.expand != nullptr) {
        expanded(table, x, type, w, out);
        return out;
    }
    const Quantized of = quantize(table, x, type, depth);
    const int64_t per_panel = rows * depth * kPanel;
    at::parallel_for(0, panels, std::max<int64_t>(1, kProductsPerThread / per_panel), [&](int64_t begin, int64_t end) {
        table.product(of.q.const_data_ptr<int8_t>(), of.scales.const_data_ptr<float>(),
                      static_cast<const GroupSum*>(of.sums.const_data_ptr()), rows, w, type, out.mutable_data_ptr(), begin,
                      end);
    });
    return out;
}

// The instruction set of these operators, or nothing.
std::string int4_vectors() { return int4_loops() != nullptr ? int4_loops()->name : ""; }

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("int4_vectors() -> str", &headgate::int4_vectors);
    m.def("int4_pack(Tensor weight, Tensor? importance) -> (Tensor packed, Tensor scales, Tensor shift)");
    m.def("int4_linear(Tensor x, Tensor packed, Tensor scales, Tensor shift, Tensor? bias, int outputs) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("int4_pack", TORCH_FN(headgate::int4_pack));
    m.impl("int4_linear", TORCH_FN(headgate::int4_linear));
}
