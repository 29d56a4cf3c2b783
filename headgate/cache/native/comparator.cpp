// What is small enough for the first cache and asked for thousands of times a second: everything stays on the stack.
#include "comparator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "exponential.h"

#if defined(HEADGATE_VECTORS)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

#define ALL _Pragma("GCC unroll 16")

namespace {

constexpr int64_t kTokens = 40;
constexpr int64_t kFilled = 48;  // the same in whole vectors
constexpr int64_t kParts = kFilled / 16;
constexpr int64_t kWidest = 64;
constexpr int64_t kHidden = 48;
constexpr int64_t kHiddenParts = kHidden / 16;
constexpr int64_t kPooled = 2 * kHidden;
constexpr int64_t kTogether = 8;  // rows by 3 sums, 3 weights
constexpr float kScale = 1.0f / 127.0f;

__mmask16 first(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1); }

// x / (1 + e^-2u) is half of x (1 + tanh u).
__m512 gelu(__m512 x) {
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    const __m512 u = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), x);
    const __m512 e = exponential(_mm512_mul_ps(u, _mm512_set1_ps(-2.0f * 0.7978845608f)));
    return _mm512_div_ps(x, _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
}

// gelu(x w + bias) for ROWS rows.
template <int64_t ROWS>
void layer(const float* x, int64_t stride, int64_t inputs, const float* w, const float* bias, float* out) {
    __m512 sums[ROWS][kHiddenParts];
    ALL for (int64_t r = 0; r < ROWS; ++r)
        ALL for (int64_t p = 0; p < kHiddenParts; ++p) sums[r][p] = _mm512_loadu_ps(bias + 16 * p);
    for (int64_t i = 0; i < inputs; ++i, w += kHidden) {
        __m512 weights[kHiddenParts];
        ALL for (int64_t p = 0; p < kHiddenParts; ++p) weights[p] = _mm512_loadu_ps(w + 16 * p);
        ALL for (int64_t r = 0; r < ROWS; ++r) {
            const __m512 one = _mm512_set1_ps(x[r * stride + i]);
            ALL for (int64_t p = 0; p < kHiddenParts; ++p) sums[r][p] = _mm512_fmadd_ps(one, weights[p], sums[r][p]);
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r)
        ALL for (int64_t p = 0; p < kHiddenParts; ++p) _mm512_store_ps(out + r * kHidden + 16 * p, gelu(sums[r][p]));
}

void layers(const float* x, int64_t stride, int64_t inputs, int64_t rows, const float* w, const float* bias, float* out) {
    int64_t r = 0;
    for (; r + kTogether <= rows; r += kTogether) layer<kTogether>(x + r * stride, stride, inputs, w, bias, out + r * kHidden);
    for (; r + 2 <= rows; r += 2) layer<2>(x + r * stride, stride, inputs, w, bias, out + r * kHidden);
    for (; r < rows; ++r) layer<1>(x + r * stride, stride, inputs, w, bias, out + r * kHidden);
}

// A sketch as floats, by rows and by columns.
struct alignas(64) Text {
    float rows[kTokens * kWidest];
    float columns[kWidest * kFilled];
    int32_t ids[kFilled];
    int64_t tokens;

    void read(const uint16_t* its_ids, const int8_t* sketch, int64_t count, int64_t width) {
        tokens = count;
        for (int64_t i = 0; i < kFilled; ++i) ids[i] = i < count ? its_ids[i] : -1;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t d = 0; d < width; d += 16) {
                const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sketch + i * width + d));
                const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(packed)), _mm512_set1_ps(kScale));
                _mm512_store_ps(rows + i * width + d, x);
                for (int64_t j = 0; j < 16; ++j) columns[(d + j) * kFilled + i] = rows[i * width + d + j];
            }
        for (int64_t d = 0; d < width; ++d)
            for (int64_t i = count; i < (count + 15) / 16 * 16; ++i) columns[d * kFilled + i] = 0;
    }
};

// What the wordpieces of `a` find in `b`, added to `pooled`: sums / 4, then the largest or 0.
void side(const HeadgateComparator& c, const Text& a, const Text& b, float* pooled) {
    alignas(64) float seen[kTokens * (4 * kWidest + 16)], wide[kTokens * kHidden], hidden[kTokens * kHidden], shares[kFilled];
    const int64_t width = c.width, stride = 4 * width + 16, parts = (b.tokens + 15) / 16;
    for (int64_t i = 0; i < a.tokens; ++i) {
        const float* own = a.rows + i * width;
        float* row = seen + i * stride;
        __m512 cosine[kParts], closest = _mm512_set1_ps(-1.0f), most = _mm512_set1_ps(-1e4f);
        __mmask16 equal = 0;
        for (int64_t p = 0; p < parts; ++p) {
            __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
            for (int64_t d = 0; d < width; d += 2) {
                even = _mm512_fmadd_ps(_mm512_set1_ps(own[d]), _mm512_load_ps(b.columns + d * kFilled + 16 * p), even);
                odd = _mm512_fmadd_ps(_mm512_set1_ps(own[d + 1]), _mm512_load_ps(b.columns + (d + 1) * kFilled + 16 * p), odd);
            }
            const __mmask16 there = first(b.tokens - 16 * p);
            const __m512 found = _mm512_add_ps(even, odd);
            const __mmask16 alike = _mm512_mask_cmpeq_epi32_mask(
                there, _mm512_set1_epi32(a.ids[i]), _mm512_load_si512(reinterpret_cast<const void*>(b.ids + 16 * p)));
            equal |= alike;
            closest = _mm512_mask_max_ps(closest, there, closest, found);
            const __m512 pull = _mm512_mul_ps(found, _mm512_set1_ps(c.pull));
            cosine[p] = _mm512_mask_add_ps(pull, alike, pull, _mm512_set1_ps(c.same));
            most = _mm512_mask_max_ps(most, there, most, cosine[p]);
        }
        const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        __m512 sum = _mm512_setzero_ps();
        for (int64_t p = 0; p < parts; ++p) {
            const __m512 share = _mm512_maskz_mov_ps(first(b.tokens - 16 * p), exponential(_mm512_sub_ps(cosine[p], top)));
            sum = _mm512_add_ps(sum, share);
            _mm512_store_ps(shares + 16 * p, share);
        }
        const __m512 by = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(sum));
        for (int64_t d = 0; d < width; d += 16) {
            __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
            int64_t j = 0;
            for (; j + 1 < b.tokens; j += 2) {
                even = _mm512_fmadd_ps(_mm512_set1_ps(shares[j]), _mm512_load_ps(b.rows + j * width + d), even);
                odd = _mm512_fmadd_ps(_mm512_set1_ps(shares[j + 1]), _mm512_load_ps(b.rows + (j + 1) * width + d), odd);
            }
            if (j < b.tokens) even = _mm512_fmadd_ps(_mm512_set1_ps(shares[j]), _mm512_load_ps(b.rows + j * width + d), even);
            const __m512 x = _mm512_load_ps(own + d), found = _mm512_mul_ps(_mm512_add_ps(even, odd), by);
            _mm512_store_ps(row + d, x);
            _mm512_store_ps(row + width + d, found);
            _mm512_store_ps(row + 2 * width + d, _mm512_abs_ps(_mm512_sub_ps(x, found)));
            _mm512_store_ps(row + 3 * width + d, _mm512_mul_ps(x, found));
        }
        const float near = _mm512_reduce_max_ps(closest), rare = c.rarity[a.ids[i]];
        row[4 * width] = near;
        row[4 * width + 1] = equal != 0 ? 1.0f : 0.0f;
        row[4 * width + 2] = rare;
        row[4 * width + 3] = near * rare;
    }
    layers(seen, stride, 4 * width + 4, a.tokens, c.f1, c.f1_bias, wide);
    layers(wide, kHidden, kHidden, a.tokens, c.f2, c.f2_bias, hidden);
    for (int64_t p = 0; p < kHidden; p += 16) {
        __m512 sum = _mm512_setzero_ps(), most = sum;
        for (int64_t i = 0; i < a.tokens; ++i) {
            const __m512 x = _mm512_load_ps(hidden + i * kHidden + p);
            sum = _mm512_add_ps(sum, x);
            most = _mm512_max_ps(most, x);
        }
        _mm512_store_ps(pooled + p, _mm512_fmadd_ps(sum, _mm512_set1_ps(0.25f), _mm512_load_ps(pooled + p)));
        _mm512_store_ps(pooled + kHidden + p, _mm512_add_ps(most, _mm512_load_ps(pooled + kHidden + p)));
    }
}

// Some rows at a time, for the weights are read from the second cache.
template <int64_t ROWS, int64_t PARTS>
void project(const HeadgateComparator& c, const float* x, int64_t stride, int8_t* sketch) {
    __m512 sums[ROWS][PARTS];
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t p = 0; p < PARTS; ++p) sums[r][p] = _mm512_setzero_ps();
    const float* w = c.project;
    for (int64_t i = 0; i < c.states; ++i, w += 16 * PARTS)
        ALL for (int64_t r = 0; r < ROWS; ++r) {
            const __m512 one = _mm512_set1_ps(x[r * stride + i]);
            ALL for (int64_t p = 0; p < PARTS; ++p) sums[r][p] = _mm512_fmadd_ps(one, _mm512_loadu_ps(w + 16 * p), sums[r][p]);
        }
    for (int64_t r = 0; r < ROWS; ++r, sketch += 16 * PARTS) {
        __m512 squares = _mm512_setzero_ps();
        ALL for (int64_t p = 0; p < PARTS; ++p) squares = _mm512_fmadd_ps(sums[r][p], sums[r][p], squares);
        const __m512 norm = _mm512_set1_ps(std::sqrt(_mm512_reduce_add_ps(squares)) + 1e-9f);
        ALL for (int64_t p = 0; p < PARTS; ++p) {
            // To the nearest, ties to even.
            const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_div_ps(sums[r][p], norm), _mm512_set1_ps(127.0f)));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(sketch + 16 * p), _mm512_cvtsepi32_epi8(whole));
        }
    }
}

template <int64_t PARTS>
void projects(const HeadgateComparator& c, const float* x, int64_t stride, int64_t tokens, int8_t* sketch) {
    constexpr int64_t kRows = 6;
    int64_t t = 0;
    for (; t + kRows <= tokens; t += kRows) project<kRows, PARTS>(c, x + t * stride, stride, sketch + t * 16 * PARTS);
    for (; t < tokens; ++t) project<1, PARTS>(c, x + t * stride, stride, sketch + t * 16 * PARTS);
}

}  // namespace

void headgate_comparator_sketches(const HeadgateComparator* comparator, const HeadgateStates* given, int64_t texts,
                                  int8_t* sketches) {
    for (const HeadgateStates* at = given; at != given + texts; sketches += at->tokens * comparator->width, ++at) {
        switch (comparator->width) {
            case 16: projects<1>(*comparator, at->rows, at->stride, at->tokens, sketches); break;
            case 32: projects<2>(*comparator, at->rows, at->stride, at->tokens, sketches); break;
            case 48: projects<3>(*comparator, at->rows, at->stride, at->tokens, sketches); break;
            default: projects<4>(*comparator, at->rows, at->stride, at->tokens, sketches);
        }
    }
}

void headgate_comparator_run(const HeadgateComparator* comparator, const uint16_t* ids, const int8_t* sketches,
                             const int64_t* starts, int64_t stored, const float* cosines, float* odds) {
    const HeadgateComparator& c = *comparator;
    Text asked, other;
    asked.read(ids, sketches, starts[1], c.width);
    for (int64_t s = 1; s <= stored; ++s) {
        alignas(64) float pooled[kPooled + 16] = {};
        alignas(64) float hidden[kHidden];
        const int64_t length = starts[s + 1] - starts[s];
        other.read(ids + starts[s], sketches + starts[s] * c.width, length, c.width);
        side(c, asked, other, pooled);
        side(c, other, asked, pooled);
        pooled[kPooled] = cosines[s - 1];
        pooled[kPooled + 1] =
            static_cast<float>(std::abs(asked.tokens - length)) / static_cast<float>(asked.tokens + length);
        layers(pooled, kPooled + 16, kPooled + 2, 1, c.o1, c.o1_bias, hidden);
        __m512 sum = _mm512_setzero_ps();
        for (int64_t p = 0; p < kHidden; p += 16)
            sum = _mm512_fmadd_ps(_mm512_load_ps(hidden + p), _mm512_loadu_ps(c.o2 + p), sum);
        odds[s - 1] = _mm512_reduce_add_ps(sum) + c.o2[kHidden];
    }
}

#pragma GCC pop_options
#else

void headgate_comparator_sketches(const HeadgateComparator*, const HeadgateStates*, int64_t, int8_t*) { std::abort(); }
void headgate_comparator_run(const HeadgateComparator*, const uint16_t*, const int8_t*, const int64_t*, int64_t, const float*,
                             float*) {
    std::abort();
}

#endif
