// torch.ops.headgate.likeliest and draw: tokens for all rows of a step in one call. forecast and outline: what a model makes of
// prompts.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "checks.h"
#include "crew.h"
#include "outline.h"
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
    divided(rows, std::max<int64_t>(1, kElementsPerThread / width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) tokens[i] = likeliest(kind, data + i * stride, width);
    });
    return out;
}

template <typename T>
const T* settings(const Tensor& x, int64_t elements, const char* name) {
    TORCH_CHECK(x.scalar_type() == c10::CppTypeToScalarType<T>::value && x.is_contiguous() && x.numel() == elements, name,
                " must be contiguous ", c10::CppTypeToScalarType<T>::value, " of ", elements, " elements, got ",
                x.scalar_type(), " ", x.sizes());
    return x.const_data_ptr<T>();
}

// Per row of logits [rows, vocabulary] a token, or -1; see sampling.h. temperature float32, top_k int64, top_p and min_p
// float64, each [rows]; keys int32 [rows, 2]. int64 [rows].
Tensor draw_rows(const Tensor& given, const Tensor& temperature, const Tensor& top_k, const Tensor& top_p,
                 const Tensor& min_p, const Tensor& keys) {
    TORCH_CHECK(given.dim() == 2 && given.size(1) > 0, "logits must be [rows, vocabulary], got ", given.sizes());
    const Tensor logits = given.contiguous();
    const int64_t rows = logits.size(0), width = logits.size(1), stride = width * logits.element_size();
    const Element kind = element(logits);
    const char* data = static_cast<const char*>(logits.const_data_ptr());
    const auto* temperatures = settings<float>(temperature, rows, "temperature");
    const auto* counts = settings<int64_t>(top_k, rows, "top_k");
    const auto* nuclei = settings<double>(top_p, rows, "top_p");
    const auto* shares = settings<double>(min_p, rows, "min_p");
    const auto* halves = settings<int32_t>(keys, 2 * rows, "keys");
    Tensor out = at::empty({rows}, at::TensorOptions(at::kLong));
    int64_t* tokens = out.mutable_data_ptr<int64_t>();
    divided(rows, std::max<int64_t>(1, kElementsPerThread / 8 / width), [&](int64_t begin, int64_t end) {
        const std::unique_ptr<float[]> floats(new float[draw_floats(width)]);
        const std::unique_ptr<int32_t[]> ids(new int32_t[width]);
        for (int64_t i = begin; i < end; ++i) {
            const Drawing d{temperatures[i], counts[i], nuclei[i], shares[i], static_cast<uint32_t>(halves[2 * i]),
                            static_cast<uint32_t>(halves[2 * i + 1])};
            tokens[i] = draw(kind, data + i * stride, width, d, floats.get(), ids.get());
        }
    });
    return out;
}

// Per row of logits [rows, vocabulary] what `forecast` in sampling.h tells: float32 [rows, most + 1].
Tensor forecast_rows(const Tensor& given, int64_t most) {
    TORCH_CHECK(given.dim() == 2 && 0 < most && most <= given.size(1), "logits must be [rows, vocabulary] of at least ", most,
                " tokens, got ", given.sizes());
    const Tensor logits = given.contiguous();
    const int64_t rows = logits.size(0), width = logits.size(1), stride = width * logits.element_size();
    const Element kind = element(logits);
    const char* data = static_cast<const char*>(logits.const_data_ptr());
    Tensor out = at::empty({rows, most + 1}, at::TensorOptions(at::kFloat));
    float* told = out.mutable_data_ptr<float>();
    divided(rows, std::max<int64_t>(1, kElementsPerThread / 8 / width), [&](int64_t begin, int64_t end) {
        const std::unique_ptr<float[]> floats(new float[draw_floats(width)]);
        const std::unique_ptr<int32_t[]> ids(new int32_t[width]);
        for (int64_t i = begin; i < end; ++i)
            forecast(kind, data + i * stride, width, most, floats.get(), ids.get(), told + i * (most + 1));
    });
    return out;
}

// What `outline` in outline.h tells of each sequence: float32 [sequences, 2 * kv_heads * dim]. `values` [slots, kv_heads, dim],
// int8 with scales [slots, kv_heads]; of each sequence its tokens and where its blocks begin in `tables`: `sequences` int64 [n, 2].
Tensor outline_rows(const Tensor& values, const std::optional<Tensor>& scales, const Tensor& sequences, const Tensor& tables,
                    int64_t block_size) {
    const bool scaled = scales.has_value();
    TORCH_CHECK(values.dim() == 3 && values.is_contiguous() && block_size > 0 && scaled == (values.scalar_type() == at::kChar),
                "values must be contiguous [slots, kv_heads, dim], with scales just where they are int8");
    const int64_t heads = values.size(1), dim = values.size(2), blocks = values.size(0) / block_size;
    const auto* of = scaled ? settings<float>(*scales, values.size(0) * heads, "scales") : nullptr;
    const int64_t count = sequences.numel() / 2;
    const auto* spans = settings<int64_t>(sequences, 2 * count, "sequences");
    const auto* table = settings<int32_t>(tables, tables.numel(), "tables");
    for (int64_t i = 0; i < tables.numel(); ++i)
        TORCH_CHECK_INDEX(table[i] >= 0 && table[i] < blocks, "block ", table[i], " of ", blocks);
    for (int64_t i = 0; i < count; ++i)
        TORCH_CHECK_INDEX(spans[2 * i] > 0 && spans[2 * i + 1] >= 0 &&
                              spans[2 * i + 1] + (spans[2 * i] - 1) / block_size < tables.numel(),
                          "sequence ", i, " has ", spans[2 * i], " tokens in blocks from place ", spans[2 * i + 1]);
    const Element kind = scaled ? Element::f32 : element(values);
    const Cache cache{nullptr, values.const_data_ptr(), nullptr, of, heads, dim, block_size};
    Tensor out = at::empty({count, 2 * heads * dim}, at::TensorOptions(at::kFloat));
    float* told = out.mutable_data_ptr<float>();
    divided(count, 8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            outline({cache, kind, table + spans[2 * i + 1], spans[2 * i]}, told + i * 2 * heads * dim);
    });
    return out;
}

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("likeliest(Tensor logits) -> Tensor");
    m.def("draw(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor keys) -> Tensor");
    m.def("forecast(Tensor logits, int most) -> Tensor");
    m.def("outline(Tensor values, Tensor? scales, Tensor sequences, Tensor tables, int block_size) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("likeliest", TORCH_FN(headgate::likeliest_rows));
    m.impl("draw", TORCH_FN(headgate::draw_rows));
    m.impl("forecast", TORCH_FN(headgate::forecast_rows));
    m.impl("outline", TORCH_FN(headgate::outline_rows));
}
