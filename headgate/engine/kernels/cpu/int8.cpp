// The int8 product for AVX-512 VNNI. One instruction multiplies 64 pairs of bytes and adds them by fours to 16 sums.
#include "int8.h"

#include <cstdlib>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_INT8 1
#endif

#if defined(HEADGATE_INT8)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
// GCC 12's own header leaves the lanes that a full mask never shows uninitialised, and warns of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace headgate {
namespace {

#define ALL _Pragma("GCC unroll 8")

// As an instruction and not as an intrinsic: GCC 12 keeps the sums of a large tile in memory otherwise, at a third of
// the speed.
#define MULTIPLY_ADD(sum, x, w) asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

constexpr int64_t kStep = kPanel * 4;     // bytes of a panel per four inputs
constexpr int64_t kAhead = 16 * kStep;    // how far ahead a thin product asks for weights
constexpr int64_t kTallest = 6;           // rows of a tile: 6 * 4 sums, 4 weights and one x fill the 32 registers

__m512 widen(const float* p, __mmask16 kept) { return _mm512_maskz_loadu_ps(kept, p); }

__m512 widen(const uint16_t* p, __mmask16 kept) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kept, p)), 16));
}

void narrow(float* p, __m512 v, __mmask16 kept) { _mm512_mask_storeu_ps(p, kept, v); }

// To the nearest bfloat16, ties to even; a NaN stays one.
void narrow(uint16_t* p, __m512 v, __mmask16 kept) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
    _mm256_mask_storeu_epi16(p, kept, _mm512_cvtepi32_epi16(rounded));
}

__mmask16 first(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1); }

template <typename T>
void quantize(Rows x, int64_t inputs, int64_t depth, uint8_t* q, float* scales, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
        const T* in = static_cast<const T*>(x.data) + row * x.outer;
        __m512 most = _mm512_setzero_ps();
        __mmask16 strange = 0;
        for (int64_t i = 0; i < inputs; i += 16) {
            const __m512 v = _mm512_abs_ps(widen(in + i, first(inputs - i)));
            strange |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
            most = _mm512_max_ps(v, most);
        }
        // A NaN must not come out as a number: the row's scale carries it into every result.
        const float largest = strange != 0 ? __builtin_nanf("") : _mm512_reduce_max_ps(most);
        const float scale = largest == 0 ? 1 : largest / 127;
        scales[row] = scale;
        const __m512 by = _mm512_set1_ps(scale);
        uint8_t* out = q + row * depth;
        for (int64_t i = 0; i < depth; i += 16) {
            const __m512i v = _mm512_cvtps_epi32(_mm512_div_ps(widen(in + i, first(inputs - i)), by));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                             _mm512_cvtepi32_epi8(_mm512_add_epi32(v, _mm512_set1_epi32(128))));
        }
    }
}

template <typename T>
void finish(__m512i sum, float scale, const Int8Weights& w, int64_t column, T* out) {
    const __mmask16 kept = first(w.outputs - column);
    const __m512i exact = _mm512_sub_epi32(sum, _mm512_loadu_si512(w.shift + column));
    __m512 y = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(exact), _mm512_set1_ps(scale)),
                             _mm512_loadu_ps(w.scales + column));
    if (w.bias != nullptr) y = _mm512_add_ps(y, widen(static_cast<const T*>(w.bias) + column, kept));
    narrow(out + column, y, kept);
}

// ROWS rows times one panel; AHEAD also asks for the weights to come, UNROLL independent sums hide the latency where
// there are few rows.
template <int64_t ROWS, int64_t UNROLL, bool AHEAD, typename T>
void tile(const uint8_t* q, const float* scales, const Int8Weights& w, int64_t panel, T* out) {
    const int8_t* weights = w.packed + panel * kPanel * w.depth;
    __m512i sums[UNROLL][ROWS][4];
    ALL for (int64_t u = 0; u < UNROLL; ++u) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 4; ++j)
        sums[u][r][j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < w.depth; k += 4 * UNROLL) {
        ALL for (int64_t u = 0; u < UNROLL; ++u) {
            __m512i v[4];
            ALL for (int64_t j = 0; j < 4; ++j) {
                if (AHEAD) _mm_prefetch(reinterpret_cast<const char*>(weights + kAhead + 64 * j), _MM_HINT_T0);
                v[j] = _mm512_loadu_si512(weights + 64 * j);
            }
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                int32_t four;
                __builtin_memcpy(&four, q + r * w.depth + k + 4 * u, 4);
                const __m512i x = _mm512_set1_epi32(four);
                ALL for (int64_t j = 0; j < 4; ++j) MULTIPLY_ADD(sums[u][r][j], x, v[j]);
            }
            weights += kStep;
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 4; ++j) {
        __m512i sum = sums[0][r][j];
        ALL for (int64_t u = 1; u < UNROLL; ++u) sum = _mm512_add_epi32(sum, sums[u][r][j]);
        finish(sum, scales[r], w, panel * kPanel + 16 * j, out + r * w.outputs);
    }
}

template <typename T>
void rows_by_panel(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, int64_t panel, T* out) {
    // Tiles of nearly equal height: a last tile of one row costs almost as much as one of six.
    const int64_t tiles = (rows + kTallest - 1) / kTallest;
    int64_t row = 0;
    for (int64_t i = 0; i < tiles; ++i) {
        const int64_t height = (rows - row) / (tiles - i);
        const uint8_t* x = q + row * w.depth;
        T* y = out + row * w.outputs;
        switch (height) {
            case 1: tile<1, 4, true>(x, scales + row, w, panel, y); break;
            case 2: tile<2, 2, true>(x, scales + row, w, panel, y); break;
            case 3: tile<3, 1, true>(x, scales + row, w, panel, y); break;
            case 4: tile<4, 1, true>(x, scales + row, w, panel, y); break;
            case 5: tile<5, 1, false>(x, scales + row, w, panel, y); break;
            default: tile<6, 1, false>(x, scales + row, w, panel, y);
        }
        row += height;
    }
}

}  // namespace

void int8_quantize(Rows x, Element element, int64_t inputs, int64_t depth, uint8_t* q, float* scales, int64_t begin,
                   int64_t end) {
    if (element == Element::f32)
        quantize<float>(x, inputs, depth, q, scales, begin, end);
    else
        quantize<uint16_t>(x, inputs, depth, q, scales, begin, end);
}

void int8_product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                  int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
        if (element == Element::f32)
            rows_by_panel(q, scales, rows, w, panel, static_cast<float*>(out));
        else
            rows_by_panel(q, scales, rows, w, panel, static_cast<uint16_t*>(out));
    }
}

}  // namespace headgate
#pragma GCC pop_options

namespace headgate {

bool int8_usable() {
    // HEADGATE_VECTORS holds the choice back, as it does for the other loops.
    static const bool usable = std::getenv("HEADGATE_VECTORS") == nullptr && __builtin_cpu_supports("avx512f") &&
                               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return usable;
}

}  // namespace headgate

#else

namespace headgate {

bool int8_usable() { return false; }
void int8_quantize(Rows, Element, int64_t, int64_t, uint8_t*, float*, int64_t, int64_t) { std::abort(); }
void int8_product(const uint8_t*, const float*, int64_t, const Int8Weights&, Element, void*, int64_t, int64_t) {
    std::abort();
}

}  // namespace headgate
#endif
