// The operators torch.ops.headgate.*: they check their arguments and divide the work among the crew.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attention.h"
#include "attention_plan.h"
#include "checks.h"
#include "choice.h"
#include "crew.h"
#include "loops.h"

namespace headgate {
namespace {

using at::Tensor;

// Below about this many elements (or multiplications) waking a second thread costs more than it saves.
constexpr int64_t kElementsPerThread = 16 * 1024;
constexpr int64_t kProductsPerThread = 64 * 1024;

void check_like(const Tensor& x, const Tensor& other, const char* name) {
    TORCH_CHECK(other.scalar_type() == x.scalar_type() && other.is_contiguous(), name, " must be contiguous and ",
                x.scalar_type(), " like the other arguments, got ", other.scalar_type());
}

// [n, width] or [n, heads, width]; a view of some columns of a wider tensor is taken as it is.
Rows rows_of(const Tensor& x) {
    TORCH_CHECK((x.dim() == 2 || x.dim() == 3) && (x.size(-1) == 1 || x.stride(-1) == 1),
                "x must have 2 or 3 dimensions and dense rows, got shape ", x.sizes(), ", strides ", x.strides());
    if (x.dim() == 2) return {x.const_data_ptr(), x.stride(0), 0, 1};
    return {x.const_data_ptr(), x.stride(0), x.stride(1), x.size(1)};
}

template <typename F>
void over_rows(int64_t rows, int64_t width, const F& f) {
    divided(rows, std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, width)), f);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    check_like(x, weight, "weight");
    const int64_t width = x.size(-1);
    TORCH_CHECK(weight.numel() == width, "weight must have ", width, " elements, got ", weight.numel());
    const Loops& table = loops(element(x));
    const Rows rows = rows_of(x);
    Tensor out = at::empty(x.sizes(), x.options());
    if (out.numel() == 0) return out;
    over_rows(x.numel() / width, width, [&](int64_t begin, int64_t end) {
        table.rms_norm(rows, weight.const_data_ptr(), static_cast<float>(eps), width, out.mutable_data_ptr(), begin, end);
    });
    return out;
}

void add_rms_norm_(Tensor& x, Tensor& residual, const Tensor& weight, double eps) {
    check_like(x, x, "x");
    check_like(x, residual, "residual");
    check_like(x, weight, "weight");
    const int64_t width = x.size(-1);
    TORCH_CHECK(weight.numel() == width && residual.sizes() == x.sizes(), "residual must be ", x.sizes(), " and weight [",
                width, "], got ", residual.sizes(), " and ", weight.sizes());
    const Loops& table = loops(element(x));
    if (x.numel() == 0) return;
    over_rows(x.numel() / width, width, [&](int64_t begin, int64_t end) {
        table.add_rms_norm(x.mutable_data_ptr(), residual.mutable_data_ptr(), weight.const_data_ptr(),
                           static_cast<float>(eps), width, begin, end);
    });
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
    TORCH_CHECK(x.dim() == 3 && x.size(2) % 2 == 0, "x must be [tokens, heads, even head_dim], got ", x.sizes());
    const int64_t dim = x.size(2);
    for (const Tensor& angle : {cos, sin})
        TORCH_CHECK(angle.scalar_type() == at::kFloat && angle.is_contiguous() && angle.numel() == x.size(0) * dim / 2,
                    "cos and sin must be contiguous float32 [", x.size(0), ", ", dim / 2, "], got ", angle.sizes());
    const Loops& table = loops(element(x));
    const Rows rows = rows_of(x);
    Tensor out = at::empty(x.sizes(), x.options());
    if (out.numel() == 0) return out;
    over_rows(x.size(0) * x.size(1), dim, [&](int64_t begin, int64_t end) {
        table.rope(rows, cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), dim, out.mutable_data_ptr(), begin,
                   end);
    });
    return out;
}

// `gate`: one of the loops, a member of their table.
Tensor gated(const Tensor& x, void (*Loops::*gate)(Rows, int64_t, void*, int64_t, int64_t)) {
    TORCH_CHECK(x.dim() == 2 && x.size(1) % 2 == 0, "x must be [tokens, 2 * width], got ", x.sizes());
    const int64_t width = x.size(1) / 2;
    const Loops& table = loops(element(x));
    const Rows rows = rows_of(x);
    Tensor out = at::empty({x.size(0), width}, x.options());
    over_rows(x.size(0), width, [&](int64_t begin, int64_t end) {
        (table.*gate)(rows, width, out.mutable_data_ptr(), begin, end);
    });
    return out;
}

Tensor swiglu(const Tensor& x) { return gated(x, &Loops::swiglu); }

Tensor geglu(const Tensor& x) { return gated(x, &Loops::geglu); }

// Scales of int8 keys or values [slots, kv_heads, head_dim]: float32 [slots, kv_heads]. Null for those of another type.
float* scales_of(const Tensor& cache, const std::optional<Tensor>& scales) {
    if (cache.scalar_type() != at::kChar) {
        TORCH_CHECK(!scales.has_value(), "scales go with int8 keys and values, got some with ", cache.scalar_type());
        return nullptr;
    }
    TORCH_CHECK(scales.has_value() && scales->scalar_type() == at::kFloat && scales->is_contiguous() &&
                    scales->sizes() == cache.sizes().slice(0, 2),
                "int8 keys and values take float32 scales ", cache.sizes().slice(0, 2));
    return static_cast<float*>(const_cast<void*>(scales->const_data_ptr()));
}

void write_kv(Tensor& cache_keys, Tensor& cache_values, const std::optional<Tensor>& key_scales,
              const std::optional<Tensor>& value_scales, const Tensor& keys, const Tensor& values, const Tensor& slots) {
    TORCH_CHECK(slots.scalar_type() == at::kLong && slots.is_contiguous(), "slots must be contiguous int64");
    const int64_t tokens = slots.numel(), capacity = cache_keys.size(0);
    const int64_t* places = slots.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < tokens; ++i)
        TORCH_CHECK_INDEX(0 <= places[i] && places[i] < capacity, "slot ", places[i], " of ", capacity);
    for (const auto& [to, all_scales, from] :
         {std::tie(cache_keys, key_scales, keys), std::tie(cache_values, value_scales, values)}) {
        const Loops& table = loops(element(from));
        TORCH_CHECK(from.dim() == 3 && to.dim() == 3 && from.size(0) == tokens && from.size(1) == to.size(1) &&
                        from.size(2) == to.size(2) && from.stride(2) == 1 && from.stride(1) == from.size(2) &&
                        to.size(0) == capacity && to.is_contiguous(),
                    "keys and values must be [", tokens, ", kv_heads, head_dim] like the cache, got ", from.sizes(),
                    " for ", to.sizes());
        float* scales = scales_of(to, all_scales);
        if (scales == nullptr) check_like(from, to, "the cache");
        const int64_t heads = from.size(1), dim = from.size(2), stride = from.stride(0) * from.element_size();
        const int64_t head_bytes = dim * from.element_size(), bytes = heads * head_bytes;
        const char* s = static_cast<const char*>(from.const_data_ptr());
        char* t = static_cast<char*>(to.mutable_data_ptr());
        over_rows(tokens, heads * dim, [&, places](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                if (scales == nullptr) {
                    std::memcpy(t + places[i] * bytes, s + i * stride, bytes);
                    continue;
                }
                for (int64_t head = places[i] * heads; head < (places[i] + 1) * heads; ++head)
                    table.to_int8(s + i * stride + head % heads * head_bytes, dim,
                                  reinterpret_cast<int8_t*>(t) + head * dim, scales + head);
            }
        });
    }
}

void run(const Attention& a, const AttentionWay& way, const AttentionPlan& plan) {
    const int64_t count = plan.runs(), floats = plan.scratch_floats + kMaxLanes;
    // At least so many of its runs are worth another thread.
    const int64_t least = count * kProductsPerThread / std::max<int64_t>(1, plan.products);
    divided(count, std::clamp<int64_t>(least, 1, std::max<int64_t>(1, count)), [&](int64_t begin, int64_t end) {
        const std::unique_ptr<float[]> memory(new float[floats]);
        void* aligned = memory.get();
        size_t space = static_cast<size_t>(floats) * sizeof(float);
        float* scratch = static_cast<float*>(std::align(kMaxLanes * sizeof(float), sizeof(float), aligned, space));
        for (int64_t i = begin; i < end; ++i) way.attend(a, plan.run(i), scratch);
    });
}

// Of rows that see later keys, none sees more than there are, nor fewer than those before it.
void check_limits(const int32_t* limits, const Span* spans, int64_t sequences) {
    for (const Span* s = spans; limits != nullptr && s < spans + sequences; ++s)
        for (int64_t i = 0; i < s->count; ++i) {
            const int64_t limit = limits[s->row + i], least = i == 0 ? 0 : limits[s->row + i - 1];
            TORCH_CHECK_INDEX(s->context - s->count + i < limit && least <= limit && limit <= s->context, "row ", s->row + i,
                              " of a sequence of ", s->context, " tokens sees keys up to ", limit);
        }
}

Tensor paged_attention(const Tensor& given, const Tensor& keys, const Tensor& values, const std::optional<Tensor>& key_scales,
                       const std::optional<Tensor>& value_scales, const Tensor& geometry, const Tensor& tables,
                       int64_t block_size, std::optional<int64_t> window, const std::optional<Tensor>& sinks,
                       const std::optional<Tensor>& limits) {
    const Tensor q = given.contiguous();
    const float *of_keys = scales_of(keys, key_scales), *of_values = scales_of(values, value_scales);
    const Tensor& like = of_keys != nullptr ? keys : q;
    check_like(like, keys, "keys");
    check_like(like, values, "values");
    TORCH_CHECK(q.dim() == 3 && keys.dim() == 3 && values.sizes() == keys.sizes() && q.size(2) == keys.size(2) &&
                    keys.size(1) > 0 && q.size(1) % keys.size(1) == 0,
                "q must be [tokens, heads, head_dim] for keys and values [slots, kv_heads, head_dim], got ", q.sizes(),
                ", ", keys.sizes(), " and ", values.sizes());
    TORCH_CHECK(!window || *window > 0, "window must be positive, got ", window.value_or(0));
    TORCH_CHECK(!sinks || (sinks->scalar_type() == at::kFloat && sinks->is_contiguous() && sinks->numel() == q.size(1)),
                "sinks must be contiguous float32 [", q.size(1), "]");
    TORCH_CHECK(!limits || (limits->scalar_type() == at::kInt && limits->is_contiguous() && limits->numel() == q.size(0)),
                "limits must be contiguous int32 [", q.size(0), "]");
    Tensor out = at::empty(q.sizes(), q.options());
    const int64_t dim = q.size(2), kv_heads = keys.size(1), group = q.size(1) / kv_heads;
    const Attention a{q.const_data_ptr(),
                      out.mutable_data_ptr(),
                      {keys.const_data_ptr(), values.const_data_ptr(), of_keys, of_values, kv_heads, dim, block_size},
                      q.size(1),
                      window.value_or(std::numeric_limits<int64_t>::max()),
                      sinks ? sinks->const_data_ptr<float>() : nullptr,
                      limits ? limits->const_data_ptr<int32_t>() : nullptr};
    TORCH_CHECK(block_size > 0, "block_size must be positive, got ", block_size);
    const Span* spans = spans_of(geometry, tables, q.size(0), keys.size(0) / block_size, block_size);
    check_limits(a.limits, spans, geometry.numel() / 4);
    const AttentionWay way = attention_way(element(q), group);
    const AttentionPlan plan = plan_attention(spans, geometry.numel() / 4, tables.const_data_ptr<int32_t>(), kv_heads, group,
                                              dim, a.window, way, a.limits);
    const Loops& table = loops(element(q));
    run(a, way, plan);
    for (const Merge& m : plan.merges)
        table.merge(m.partials, m.splits, group, dim, a.sinks == nullptr ? nullptr : a.sinks + m.kv_head * group,
                    static_cast<char*>(out.mutable_data_ptr()) +
                        (m.row * q.size(1) + m.kv_head * group) * dim * q.element_size());
    return out;
}

// What this was compiled for; another version of torch may not fit.
std::string torch_version() { return TORCH_VERSION; }

std::string vectors() { return instruction_set(); }

}  // namespace
}  // namespace headgate

TORCH_LIBRARY(headgate, m) {
    m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
    m.def("add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps) -> ()");
    m.def("rope(Tensor x, Tensor cos, Tensor sin) -> Tensor");
    m.def("swiglu(Tensor x) -> Tensor");
    m.def("geglu(Tensor x) -> Tensor");
    m.def(
        "write_kv(Tensor(a!) cache_keys, Tensor(b!) cache_values, Tensor(c!)? key_scales, Tensor(d!)? value_scales, "
        "Tensor keys, Tensor values, Tensor slots) -> ()");
    m.def(
        "paged_attention(Tensor q, Tensor keys, Tensor values, Tensor? key_scales, Tensor? value_scales, Tensor geometry, "
        "Tensor tables, int block_size, int? window, Tensor? sinks=None, Tensor? limits=None) -> Tensor");
    m.def("torch_version() -> str", &headgate::torch_version);
    m.def("vectors() -> str", &headgate::vectors);
}

TORCH_LIBRARY_IMPL(headgate, CPU, m) {
    m.impl("rms_norm", TORCH_FN(headgate::rms_norm));
    m.impl("add_rms_norm_", TORCH_FN(headgate::add_rms_norm_));
    m.impl("rope", TORCH_FN(headgate::rope));
    m.impl("swiglu", TORCH_FN(headgate::swiglu));
    m.impl("geglu", TORCH_FN(headgate::geglu));
    m.impl("write_kv", TORCH_FN(headgate::write_kv));
    m.impl("paged_attention", TORCH_FN(headgate::paged_attention));
}
