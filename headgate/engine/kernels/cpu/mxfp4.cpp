// The product of a few bfloat16 rows with MXFP4 weights where AMX multiplies many: what its tiles give, bit for bit, without
// writing the weights out for them. No header of the standard library inside the target region.
#include "mxfp4.h"

#include "choice.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// See int4.cpp.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define ALL _Pragma("GCC unroll 16")

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")

namespace headgate {
namespace {

constexpr int64_t kHalves = kFloatPanel / 16;

// As FewAsTiles of attention_few.inc adds up: of 32 inputs, a group, the first of all pairs one after the other, the second apart
// from them, then both to the sum. A scale is a power of two: it makes no difference that it comes last.
template <int64_t ROWS>
void tile(const float* x, int64_t apart, const uint8_t* block, int64_t groups, float* out, int64_t stride) {
    const __m512 numbers = _mm512_set_ps(-6, -4, -3, -2, -1.5f, -1, -0.5f, -0.0f, 6, 4, 3, 2, 1.5f, 1, 0.5f, 0);
    __m512 total[ROWS][kHalves];
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t h = 0; h < kHalves; ++h) total[r][h] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g, block += kMxfp4Block, x += kMxfp4Group) {
        ALL for (int64_t line = 0; line < kMxfp4Block; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(block + kMxfp4Ahead + line), _MM_HINT_T0);
        __m512 first[ROWS][kHalves], second[ROWS][kHalves];
        ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t h = 0; h < kHalves; ++h)
            first[r][h] = second[r][h] = _mm512_setzero_ps();
        for (int64_t t = 0; t < kMxfp4Words; ++t) {
            __m512i words[kHalves];
            ALL for (int64_t h = 0; h < kHalves; ++h)
                words[h] = _mm512_loadu_si512(block + kFloatPanel + (t * kFloatPanel + 16 * h) * 4);
            ALL for (int64_t j = 0; j < 4; ++j) ALL for (int64_t h = 0; h < kHalves; ++h) {
                const __m512 a = _mm512_permutexvar_ps(_mm512_srli_epi32(words[h], 4 * j), numbers);
                const __m512 b = _mm512_permutexvar_ps(_mm512_srli_epi32(words[h], 4 * j + 16), numbers);
                ALL for (int64_t r = 0; r < ROWS; ++r) {
                    const float* by = x + r * apart + 8 * t + 2 * j;
                    first[r][h] = _mm512_fmadd_ps(a, _mm512_set1_ps(by[0]), first[r][h]);
                    second[r][h] = _mm512_fmadd_ps(b, _mm512_set1_ps(by[1]), second[r][h]);
                }
            }
        }
        ALL for (int64_t h = 0; h < kHalves; ++h) {
            const __m128i exponents = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * h));
            const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(exponents), 23));
            ALL for (int64_t r = 0; r < ROWS; ++r)
                total[r][h] = _mm512_fmadd_ps(_mm512_add_ps(first[r][h], second[r][h]), scale, total[r][h]);
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t h = 0; h < kHalves; ++h)
        _mm512_storeu_ps(out + r * stride + 16 * h, total[r][h]);
}

void product(FloatRows x, const uint8_t* packed, int64_t groups, int64_t panels, float* room, float* out) {
    const int64_t depth = groups * kMxfp4Group, stride = panels * kFloatPanel;
    for (int64_t r = 0; r < x.count; ++r)
        for (int64_t i = 0; i < depth; i += 16) {
            const auto* from = static_cast<const uint16_t*>(x.rows) + r * x.stride + i;
            const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
            _mm512_storeu_ps(room + r * depth + i, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
        }
    // Numbers below the normal ones count as zero, as they do for tiles.
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    for (int64_t p = 0; p < panels; ++p, packed += groups * kMxfp4Block, out += kFloatPanel) switch (x.count) {
            case 1: tile<1>(room, depth, packed, groups, out, stride); break;
            case 2: tile<2>(room, depth, packed, groups, out, stride); break;
            case 3: tile<3>(room, depth, packed, groups, out, stride); break;
            default: tile<4>(room, depth, packed, groups, out, stride);
        }
    _mm_setcsr(before);
}

}  // namespace
}  // namespace headgate
#pragma GCC pop_options

namespace headgate {

FewMxfp4 few_mxfp4(Element element) {
    return element == Element::bf16 && allowed(Instructions::amx_bf16) ? product : nullptr;
}

}  // namespace headgate

#else

namespace headgate {

FewMxfp4 few_mxfp4(Element) { return nullptr; }

}  // namespace headgate
#endif
