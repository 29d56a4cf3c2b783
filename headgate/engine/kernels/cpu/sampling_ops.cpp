// torch.ops.headgate.likeliest and draw: tokens for all rows of a step in one call.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "checks.h"
#include "crew.h"
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

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    m.def("likeliest(Tensor logits) -> Tensor");
    m.def("draw(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor keys) -> Tensor");
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("likeliest", TORCH_FN(headgate::likeliest_rows));
    m.impl("draw", TORCH_FN(headgate::draw_rows));
}
