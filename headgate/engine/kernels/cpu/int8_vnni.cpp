// The int8 product for AVX-512 VNNI and for AMX. Both give the same integers, so the choice changes no bit of a result.
#include "int8_ways.h"

#include <cstring>

#include "choice.h"

#define INLINE inline __attribute__((always_inline))
#define HEADGATE_SHUFFLES 0

#if defined(HEADGATE_INT8)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
// GCC 12's own header leaves the lanes that a full mask never shows uninitialised, and warns of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "avx512.inc"

namespace headgate {
namespace {

#define LANES 16
#include "vector.inc"
#undef LANES

constexpr int64_t kLeastForAmx = 8;     // rows
constexpr float kLeastScale = 0x1p-100f, kMostScale = 0x1p100f;  // beyond which corrections may be no normal numbers

// The largest magnitude among n numbers as its bits, which are in the numbers' own order; beyond infinity's if one is a NaN.
uint32_t largest(const float* p, int64_t n) {
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 16)
        most = _mm512_max_epu32(
            most, _mm512_and_si512(_mm512_maskz_loadu_epi32(first(n - i), p + i), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_reduce_max_epu32(most);
}

uint32_t largest(const uint16_t* p, int64_t n) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i most[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        ALL for (int64_t j = 0; j < 2; ++j)
            most[j] = _mm512_max_epu16(most[j], _mm512_and_si512(_mm512_loadu_si512(p + i + 32 * j), magnitude));
    for (; i < n; i += 32) {
        const __mmask32 kept = n - i >= 32 ? ~0u : (1u << (n - i)) - 1;
        most[0] = _mm512_max_epu16(most[0], _mm512_and_si512(_mm512_maskz_loadu_epi16(kept, p + i), magnitude));
    }
    const __m512i all = _mm512_max_epu16(most[0], most[1]);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_slli_epi32(all, 16),
                                                    _mm512_and_si512(all, _mm512_set1_epi32(static_cast<int>(0xffff0000)))));
}

// v / scale to the nearest whole number, ties to even. Where `usual`, a product with the reciprocal is corrected once by what it
// leaves of v (Markstein 1990), which is several times as fast as dividing. All bfloat16 numbers come out as divided, and so did
// 4e8 random pairs of floats.
__m512i rounded(__m512 v, __m512 scale, __m512 inverse, bool usual) {
    if (__builtin_expect(usual, 1)) {
        const __m512 y = _mm512_mul_ps(v, inverse);
        return _mm512_cvtps_epi32(_mm512_fmadd_ps(_mm512_fnmadd_ps(y, scale, v), inverse, y));
    }
    const __m512 exact = _mm512_div_ps(v, scale);
    return _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(exact, exact, _CMP_ORD_Q), exact);
}

template <typename T>
void quantize(Rows x, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q, float* scales, int64_t begin,
              int64_t end) {
    // Packing works within quarters of a vector: four of one, four of the next, and so on.
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    for (int64_t row = begin; row < end; ++row) {
        const T* in = static_cast<const T*>(x.data) + row * x.outer;
        const uint32_t bits = largest(in, inputs);
        float most;
        __builtin_memcpy(&most, &bits, 4);
        // A NaN must not come out as a number: the row's scale carries it into every result.
        const float scale = bits == 0 ? 1 : most / 127;
        scales[row] = scale;
        const __m512 by = _mm512_set1_ps(scale), inverse = _mm512_set1_ps(1 / scale);
        const bool usual = scale >= kLeastScale && scale <= kMostScale;
        uint8_t* out = q + layout.place(row);
        for (int64_t i = 0; i < depth; i += kDepth, out += layout.step()) {
            // Of the next row, whose lines are mostly in the other cores' caches: whoever made them made columns of all rows.
            ALL for (int64_t line = 0; line < kDepth * static_cast<int64_t>(sizeof(T)); line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(in + x.outer + i) + line, _MM_HINT_T0);
            __m512i v[4];
            if (inputs - i >= kDepth)
                ALL for (int64_t j = 0; j < 4; ++j) v[j] = rounded(widen(in + i + 16 * j, 0xffff), by, inverse, usual);
            else
                ALL for (int64_t j = 0; j < 4; ++j)
                    v[j] = rounded(widen(in + i + 16 * j, first(inputs - i - 16 * j)), by, inverse, usual);
            const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
            _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_permutexvar_epi32(order, bytes), _mm512_set1_epi8(-128)));
        }
    }
}

}  // namespace
}  // namespace headgate

#include "int8_vectors.inc"

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8")
#include "amx.inc"

namespace headgate {
namespace {

constexpr int64_t kFar = 4;              // steps of 64 inputs between asking for rows and taking them
constexpr int64_t kFarWeights = 8192;    // bytes, where every step reads weights from memory
constexpr int64_t kOwnCache = 24 * 1024;    // bytes of rows that stay in the first-level cache while weights go by
constexpr int64_t kRowBytes = 768 * 1024;   // bytes of rows that stay in the second beside some panels

// What comes next, and how much of it each step asks for.
struct Next {
    const uint8_t* rows;    // of the next two blocks, or null where all rows are in the first-level cache
    const int8_t* weights;  // of the next panel
    int64_t lines;          // of it per step; 0 where the weights of this very panel come from memory
};

// Two blocks of rows, `block` bytes each, times a panel: sums [rows of both][kPanel].
template <bool TWO>
void tiles(const uint8_t* rows, int64_t block, int64_t step, const int8_t* weights, int64_t depth, Next next,
           int32_t* sums) {
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) {
        _tile_zero(2);
        _tile_zero(3);
    }
    const auto run = [&](int64_t begin, int64_t end, const uint8_t* ahead) {
        for (int64_t k = begin; k < end; k += kDepth) {
            // Loads first: where another hardware thread has tiles too, each change between the two kinds costs time.
            _tile_loadd(4, rows, kDepth);
            if (TWO) _tile_loadd(5, rows + block, kDepth);
            _tile_loadd(6, weights, kStep);
            _tile_loadd(7, weights + 64, kStep);
            _tile_dpbusd(0, 4, 6);
            _tile_dpbusd(1, 4, 7);
            if (TWO) {
                _tile_dpbusd(2, 5, 6);
                _tile_dpbusd(3, 5, 7);
            }
            if (ahead != nullptr) {
                ALL for (int64_t i = 0; i < kTileBytes; i += 64) {
                    _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
                    if (TWO) _mm_prefetch(reinterpret_cast<const char*>(ahead + block + i), _MM_HINT_T0);
                }
                ahead += step;
            }
            if (next.lines == 0) {
                ALL for (int64_t i = 0; i < 2 * kTileBytes; i += 64)
                    _mm_prefetch(reinterpret_cast<const char*>(weights + kFarWeights + i), _MM_HINT_T0);
            } else {
                for (int64_t i = 0; i < next.lines; ++i, next.weights += 64)
                    _mm_prefetch(reinterpret_cast<const char*>(next.weights), _MM_HINT_T1);
            }
            rows += step;
            weights += 2 * kTileBytes;
        }
    };
    const int64_t turn = depth > kFar * kDepth ? depth - kFar * kDepth : 0;
    run(0, turn, next.rows == nullptr ? nullptr : rows + kFar * step);
    run(turn, depth, next.rows);
    _tile_stored(0, sums, kPanel * 4);
    _tile_stored(1, sums + 16, kPanel * 4);
    if (TWO) {
        _tile_stored(2, sums + kTileRows * kPanel, kPanel * 4);
        _tile_stored(3, sums + kTileRows * kPanel + 16, kPanel * 4);
    }
}

template <typename T>
void by_tiles(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, int64_t begin, int64_t end,
              T* out) {
    const Int8Layout layout(rows, w.depth);
    const int64_t height = layout.height(), blocks = (rows + height - 1) / height, block = height * w.depth;
    load_shapes(height);
    alignas(64) int32_t sums[2 * kTileRows * kPanel];
    const auto store = [&](int64_t index, int64_t panel, const int32_t* from) {
        const int64_t row = index * height;
        finish_rows(from, rows - row < height ? rows - row : height, scales + row, w, panel, out + row * w.outputs);
    };
    const int64_t fitting = 2 * (kRowBytes / (2 * block) > 1 ? kRowBytes / (2 * block) : 1);
    for (int64_t top = 0; top < blocks; top += fitting) {
        const int64_t bottom = top + fitting < blocks ? top + fitting : blocks, turns = (bottom - top + 1) / 2;
        for (int64_t panel = begin; panel < end; ++panel) {
            const int8_t* weights = w.packed + panel * kPanel * w.depth;
            Next next{nullptr, weights + kPanel * w.depth, turns == 1 ? 0 : (2 * kTileBytes / 64 + turns - 1) / turns};
            for (int64_t i = top; i < bottom; i += 2) {
                if ((bottom - top) * block > kOwnCache) next.rows = q + (i + 2 < bottom ? i + 2 : top) * block;
                if (i + 1 == bottom) {
                    tiles<false>(q + i * block, block, layout.step(), weights, w.depth, next, sums);
                } else {
                    tiles<true>(q + i * block, block, layout.step(), weights, w.depth, next, sums);
                    store(i + 1, panel, sums + kTileRows * kPanel);
                }
                store(i, panel, sums);
                next.weights += next.lines * w.depth;
            }
        }
    }
    _tile_release();
}

}  // namespace
}  // namespace headgate
#pragma GCC pop_options

namespace headgate {
namespace {

template <typename T>
void product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, T* out, int64_t begin,
             int64_t end) {
    if (rows >= kLeastForAmx && allowed(Instructions::amx_int8)) return by_tiles(q, scales, rows, w, begin, end, out);
    by_vectors<false>(q, scales, rows, w, begin, end, out);
}

void quantize_any(Rows x, Element element, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q, float* scales,
                  int64_t begin, int64_t end) {
    if (element == Element::f32)
        quantize<float>(x, inputs, depth, layout, q, scales, begin, end);
    else
        quantize<uint16_t>(x, inputs, depth, layout, q, scales, begin, end);
}

void product_any(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                 int64_t begin, int64_t end) {
    if (element == Element::f32)
        product(q, scales, rows, w, static_cast<float*>(out), begin, end);
    else
        product(q, scales, rows, w, static_cast<uint16_t*>(out), begin, end);
}

void gated_product_any(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                       int64_t begin, int64_t end) {
    if (element == Element::f32)
        by_vectors<true>(q, scales, rows, w, begin, end, static_cast<float*>(out));
    else
        by_vectors<true>(q, scales, rows, w, begin, end, static_cast<uint16_t*>(out));
}

int64_t height(int64_t rows) {
    if (rows < kLeastForAmx || !allowed(Instructions::amx_int8)) return 1;
    // Blocks of equal height, so that one shape of tiles does for all.
    const int64_t blocks = (rows + kTileRows - 1) / kTileRows;
    return (rows + blocks - 1) / blocks;
}

}  // namespace
}  // namespace headgate
#pragma GCC pop_options

namespace headgate {
const Int8Way int8_vnni = {quantize_any, product_any, gated_product_any, height};
}  // namespace headgate
#endif
