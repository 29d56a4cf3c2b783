// The 4-bit products for AVX-512 VNNI and for AVX2. No header of the standard library inside a target region.
#include "int4.h"

#include <cstring>
#include <utility>

#include "choice.h"

#define INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_SHUFFLES 0
#define ALL _Pragma("GCC unroll 8")

// GCC 12's own header leaves the lanes that a full mask never shows uninitialised, and warns of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// Outside the target regions: its functions name their own targets, and each region may use those it has.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")

namespace headgate::int4_avx512 {
namespace {

#define LANES 16
#include "vector.inc"

constexpr int64_t kTallest = 8;              // rows of a tile: 8 * 2 sums, 8 unpacked weights and what is under way
constexpr int64_t kAhead = 12 * kInt4Block;  // how far ahead weights are asked for
constexpr int64_t kVectors = kPanel / 16;

typedef int32_t Four __attribute__((may_alias));  // four bytes of a row

// As an instruction with its broadcast: GCC 12 spends a register and an instruction on each otherwise, and keeps the
// sums of a large tile in memory. Unsigned weights times signed activations.
#define MULTIPLY_ADD(sum, w, x) asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Four*>(x)))

// ROWS rows times one panel, to out [ROWS][kPanel]. Per group and 16 outputs: the sum of (code - 8) x, which fits in 16 bits, beside the sum of
// x in one register, then both times (step, centre) in one instruction.
template <int64_t ROWS>
void tile(const int8_t* q, const GroupSum* sums, const Int4Weights& w, int64_t panel, int32_t* out) {
    const int64_t groups = w.depth / kInt4Group;
    const uint8_t* block = w.packed + panel * groups * kInt4Block;
    const __m512i low = _mm512_set1_epi8(0x0f);
    __m512i total[ROWS][kVectors];
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < kVectors; ++j) total[r][j] = _mm512_setzero_si512();
    for (int64_t g = 0; g < groups; ++g, block += kInt4Block) {
        ALL for (int64_t line = 0; line < kInt4Block; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(block + kAhead + line), _MM_HINT_T0);
        const int8_t* x = q + g * kInt4Group;
        ALL for (int64_t j = 0; j < kVectors; ++j) {
            const uint8_t* codes = block + 2 * kPanel + 256 * j;
            const __m512i pairs =
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * j)));
            __m512i v[4], u[4];
            ALL for (int64_t t = 0; t < 4; ++t) {
                const __m512i both = _mm512_loadu_si512(codes + 64 * t);
                v[t] = _mm512_and_si512(both, low);
                u[t] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
            }
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                const GroupSum& of = sums[r * groups + g];
                const int8_t* row = x + r * w.depth;
                __m512i sum = _mm512_set1_epi32(of.minus_eight);
                ALL for (int64_t t = 0; t < 4; ++t) {
                    MULTIPLY_ADD(sum, v[t], row + 8 * t);
                    MULTIPLY_ADD(sum, u[t], row + 8 * t + 4);
                }
                sum = _mm512_mask_mov_epi16(sum, 0xaaaaaaaa, _mm512_set1_epi32(of.upper));
                total[r][j] = _mm512_dpwssd_epi32(total[r][j], sum, pairs);
            }
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < kVectors; ++j)
        _mm512_store_si512(out + r * kPanel + 16 * j, total[r][j]);
}

#include "int4_rows.inc"
#include "int4_thin.inc"

void expand(const Int4Weights& w, int64_t begin, int64_t end, int8_t* out) {
    const int64_t groups = w.depth / kInt4Group;
    const uint8_t* block = w.packed + begin * groups * kInt4Block;
    const __m512i low = _mm512_set1_epi8(0x0f), odd = _mm512_set1_epi16(static_cast<int16_t>(0xff00));
    // Of 32 bits that hold a pair: the step in both halves, the step in all bytes, the centre in all bytes.
    const __m512i halves = _mm512_set1_epi32(static_cast<int32_t>(0x80008000));
    const __m512i in_order = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    const __m512i each = in_order, upper = _mm512_add_epi8(in_order, _mm512_set1_epi8(1));
    const __m512i words = _mm512_or_si512(in_order, halves);
    for (int64_t g = begin * groups; g < end * groups; ++g, block += kInt4Block, out += kInt4Group * kPanel) {
        ALL for (int64_t line = 0; line < kInt4Block; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(block + kAhead + line), _MM_HINT_T0);
        ALL for (int64_t j = 0; j < kVectors; ++j) {
            const __m512i pairs =
                _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * j)));
            const __m512i step = _mm512_shuffle_epi8(pairs, words);
            const __m512i one = _mm512_shuffle_epi8(pairs, each), two = _mm512_add_epi8(one, one);
            const __m512i four = _mm512_add_epi8(two, two), eight = _mm512_add_epi8(four, four);
            const __m512i base = _mm512_sub_epi8(_mm512_shuffle_epi8(pairs, upper), eight);
            const uint8_t* codes = block + 2 * kPanel + 256 * j;
            ALL for (int64_t t = 0; t < 4; ++t) {
                const __m512i both = _mm512_loadu_si512(codes + 64 * t);
                const __m512i part[2] = {_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16(both, 4), low)};
                ALL for (int64_t p = 0; p < 2; ++p) {
                    // A byte's product with the step, modulo 256: as the lower half of a word, then as the upper one.
                    const __m512i even = _mm512_mullo_epi16(part[p], step);
                    const __m512i other = _mm512_mullo_epi16(_mm512_and_si512(part[p], odd), step);
                    const __m512i bytes = _mm512_mask_mov_epi8(even, 0xaaaaaaaaaaaaaaaa, other);
                    _mm512_storeu_si512(out + (2 * t + p) * 4 * kPanel + 64 * j, _mm512_add_epi8(bytes, base));
                }
            }
        }
    }
}

#undef LANES
const Int4Loops table = {"AVX-512 VNNI", quantize, product, expand, thin};

}  // namespace
}  // namespace headgate::int4_avx512
#undef MULTIPLY_ADD
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace headgate::int4_avx2 {
namespace {

#define LANES 8
#include "vector.inc"

constexpr int64_t kTallest = 8;

typedef int32_t Four __attribute__((may_alias));

// ROWS rows times one panel, to out [ROWS][kPanel], eight outputs at a time. The sum of code * x over a group fits in pairs of 16 bits: each
// half takes 16 of the products, at most 16 * 15 * 127.
template <int64_t ROWS>
void tile(const int8_t* q, const GroupSum* sums, const Int4Weights& w, int64_t panel, int32_t* out) {
    const int64_t groups = w.depth / kInt4Group;
    const __m256i low = _mm256_set1_epi8(0x0f);
    for (int64_t eight = 0; eight < kPanel / 8; ++eight) {
        const uint8_t* block = w.packed + panel * groups * kInt4Block;
        __m256i total[ROWS];
        ALL for (int64_t r = 0; r < ROWS; ++r) total[r] = _mm256_setzero_si256();
        for (int64_t g = 0; g < groups; ++g, block += kInt4Block) {
            const uint8_t* codes = block + 2 * kPanel + 256 * (eight / 2) + 32 * (eight % 2);
            const __m256i pairs =
                _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * eight)));
            const __m256i steps = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs, 0xa0), 0xa0);
            __m256i v[4], u[4];
            ALL for (int64_t t = 0; t < 4; ++t) {
                const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64 * t));
                v[t] = _mm256_and_si256(both, low);
                u[t] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            }
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                const Four* x = reinterpret_cast<const Four*>(q + r * w.depth + g * kInt4Group);
                const GroupSum& of = sums[r * groups + g];
                __m256i sum = _mm256_setzero_si256();
                ALL for (int64_t t = 0; t < 4; ++t) {
                    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(v[t], _mm256_set1_epi32(x[2 * t])));
                    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(u[t], _mm256_set1_epi32(x[2 * t + 1])));
                }
                // (-8 sum, sum) times (step, centre): both fit in 16 bits.
                const __m256i rest = _mm256_set1_epi32(of.upper | (of.minus_eight & 0xffff));
                total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(sum, steps));
                total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(rest, pairs));
            }
        }
        ALL for (int64_t r = 0; r < ROWS; ++r)
            _mm256_store_si256(reinterpret_cast<__m256i*>(out + r * kPanel + 8 * eight), total[r]);
    }
}

#include "int4_rows.inc"
#include "int4_thin.inc"

#undef LANES
const Int4Loops table = {"AVX2", quantize, product, nullptr, thin};

}  // namespace
}  // namespace headgate::int4_avx2
#pragma GCC pop_options

namespace headgate {
namespace {

const Int4Loops* choose() {
    if (allowed(Instructions::avx512_vnni)) return &int4_avx512::table;
    return allowed(Instructions::avx2) ? &int4_avx2::table : nullptr;
}

}  // namespace

const Int4Loops* int4_loops() {
    static const Int4Loops* const chosen = choose();
    return chosen;
}

}  // namespace headgate

#else

namespace headgate {

const Int4Loops* int4_loops() { return nullptr; }

}  // namespace headgate
#endif
