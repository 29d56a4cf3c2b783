// The int8 product for AVX2. Its own instruction for bytes adds pairs of products in 16 bits, which two large ones overflow:
// here both are widened to 16 bits first, whose products it adds in 32.
#include "int8_ways.h"

#include <cstring>
#include <utility>

#define INLINE inline __attribute__((always_inline))
#define HEADGATE_SHUFFLES 0

#if defined(HEADGATE_INT8)
#define ALL _Pragma("GCC unroll 8")
// Outside the target region: its functions name their own targets.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace headgate {
namespace {

#define LANES 8
#include "vector.inc"
#include "rows.inc"

constexpr int64_t kStep = kPanel * 4;   // bytes of a panel per four inputs
constexpr int64_t kAhead = 24 * kStep;  // how far ahead weights are asked for
constexpr int64_t kTallest = 3;         // rows of a tile: 3 * 4 sums, a weight, an x and a product fit the 16 registers

template <typename T>
void quantize(Rows x, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q, float* scales, int64_t begin,
              int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
        const T* in = static_cast<const T*>(x.data) + row * x.outer;
        const float scale = scales[row] = row_scale(in, inputs);
        uint8_t* out = q + layout.place(row);
        for (int64_t i = 0; i < depth; i += LANES) {
            const Vec v = i < inputs ? load(in + i, inputs - i) : Vec{};
            const Byte bytes = __builtin_convertvector(whole(v, scale) + 128, Byte);
            std::memcpy(out + i, &bytes, sizeof bytes);
        }
    }
}

// Four bytes of a row, four times, as sixteen words.
INLINE __m256i four_inputs(const uint8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
}

// The sums of eight outputs, of which either vector holds two parts for each of four.
INLINE __m256i outputs(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
}

// ROWS rows times PARTS / 8 of a panel, 4 outputs a part, to sums that begin kPanel apart.
template <int64_t ROWS, int64_t PARTS>
INLINE void tile(const uint8_t* q, const int8_t* weights, int64_t depth, int32_t* out) {
    __m256i sums[ROWS][PARTS];
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t p = 0; p < PARTS; ++p) sums[r][p] = _mm256_setzero_si256();
    for (int64_t k = 0; k < depth; k += 4, weights += kStep) {
        ALL for (int64_t line = 0; line < 16 * PARTS; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(weights + kAhead + line), _MM_HINT_T0);
        __m256i x[ROWS];
        ALL for (int64_t r = 0; r < ROWS; ++r) x[r] = four_inputs(q + r * depth + k);
        ALL for (int64_t p = 0; p < PARTS; ++p) {
            const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights) + p));
            ALL for (int64_t r = 0; r < ROWS; ++r)
                sums[r][p] = _mm256_add_epi32(sums[r][p], _mm256_madd_epi16(x[r], w));
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t p = 0; p < PARTS; p += 2)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * kPanel + 4 * p), outputs(sums[r][p], sums[r][p + 1]));
}

template <typename T>
void product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, T* out, int64_t begin, int64_t end) {
    alignas(32) int32_t exact[kTallest * kPanel];
    const int64_t tiles = (rows + kTallest - 1) / kTallest;
    for (int64_t panel = begin; panel < end; ++panel) {
        const int8_t* weights = w.packed + panel * kPanel * w.depth;
        for (int64_t i = 0, row = 0; i < tiles; ++i) {
            const int64_t height = (rows - row) / (tiles - i);
            const uint8_t* x = q + row * w.depth;
            if (height == 1) {
                // A single row waits for memory: its weights are read in one go.
                tile<1, 8>(x, weights, w.depth, exact);
            } else {
                for (int64_t half = 0; half < 2; ++half) {
                    const int8_t* own = weights + half * kStep / 2;
                    if (height == 2)
                        tile<2, 4>(x, own, w.depth, exact + half * kPanel / 2);
                    else
                        tile<kTallest, 4>(x, own, w.depth, exact + half * kPanel / 2);
                }
            }
            for (int64_t r = 0; r < height; ++r)
                for (int64_t o = 0; o < kPanel; ++o) exact[r * kPanel + o] -= w.shift[panel * kPanel + o];
            finish_rows(exact, height, scales + row, w, panel, out + row * w.outputs);
            row += height;
        }
    }
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

#undef LANES
}  // namespace
}  // namespace headgate
#pragma GCC pop_options

namespace headgate {
const Int8Way int8_avx2 = {quantize_any, product_any, nullptr, [](int64_t) -> int64_t { return 1; }};
}  // namespace headgate
#endif
