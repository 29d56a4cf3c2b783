#include "outline.h"

#include <algorithm>
#include <cstring>

namespace headgate {
namespace {

float one(float value) { return value; }

float one(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

template <typename T>
void add(const T* values, int64_t width, float* last, float* sum) {
    for (int64_t i = 0; i < width; ++i) {
        last[i] = one(values[i]);
        sum[i] += last[i];
    }
}

void add(const int8_t* values, const float* scales, int64_t heads, int64_t dim, float* last, float* sum) {
    for (int64_t head = 0; head < heads; ++head)
        for (int64_t i = head * dim; i < (head + 1) * dim; ++i) {
            last[i] = static_cast<float>(values[i]) * scales[head];
            sum[i] += last[i];
        }
}

}  // namespace

void outline(const Outlined& sequence, float* told) {
    const Cache& cache = sequence.cache;
    const int64_t width = cache.kv_heads * cache.dim, size = cache.block_size;
    float *last = told, *sum = told + width;
    std::fill(sum, sum + width, 0.0f);
    for (int64_t i = 0; i < sequence.tokens; ++i) {
        const int64_t slot = sequence.table[i / size] * size + i % size;
        if (cache.value_scales != nullptr)
            add(static_cast<const int8_t*>(cache.values) + slot * width, cache.value_scales + slot * cache.kv_heads,
                cache.kv_heads, cache.dim, last, sum);
        else if (sequence.element == Element::f32)
            add(static_cast<const float*>(cache.values) + slot * width, width, last, sum);
        else
            add(static_cast<const uint16_t*>(cache.values) + slot * width, width, last, sum);
    }
    for (int64_t i = 0; i < width; ++i) sum[i] /= static_cast<float>(sequence.tokens);
}

}  // namespace headgate
