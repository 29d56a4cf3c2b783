// The product with bfloat16 weights: by AMX tiles, by AVX-512's own instruction, or in float32.
#include "bf16.h"

#include "choice.h"
#include "loops.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_BF16 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "avx512.inc"

namespace headgate {
namespace {

// See int8.cpp.
#define MULTIPLY_ADD(sum, x, w) asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

constexpr int64_t kStep = kPanel * 2;   // elements of a panel per two inputs
constexpr int64_t kAhead = 32 * kStep;  // how far ahead weights are asked for
constexpr int64_t kTallest = 13;

void finish(__m512 sum, const Bf16Weights& w, int64_t column, uint16_t* out) {
    const __mmask16 kept = first(w.outputs - column);
    if (w.bias != nullptr) sum = _mm512_add_ps(sum, widen(w.bias + column, kept));
    narrow(out + column, sum, kept);
}

// Panels beside each other keep more sums on their way where there are few rows; each adds up as it would alone.
template <int64_t ROWS, int64_t PANELS = 1>
void tile(const uint16_t* x, const Bf16Weights& w, int64_t panel, bool ask, uint16_t* out) {
    const uint16_t* weights = w.packed + panel * kPanel * w.depth;
    __m512 sums[PANELS][ROWS][2];
    ALL for (int64_t p = 0; p < PANELS; ++p) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j)
        sums[p][r][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < w.depth; k += 2) {
        ALL for (int64_t p = 0; p < PANELS; ++p) {
            const uint16_t* from = weights + p * kPanel * w.depth;
            if (ask)
                for (int64_t line = 0; line < kStep; line += 32)
                    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead + line), _MM_HINT_T0);
            const __m512i left = _mm512_loadu_si512(from), right = _mm512_loadu_si512(from + 32);
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                int32_t two;
                __builtin_memcpy(&two, x + r * w.depth + k, 4);
                const __m512i both = _mm512_set1_epi32(two);
                MULTIPLY_ADD(sums[p][r][0], both, left);
                MULTIPLY_ADD(sums[p][r][1], both, right);
            }
        }
        weights += kStep;
    }
    ALL for (int64_t p = 0; p < PANELS; ++p) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j)
        finish(sums[p][r][j], w, (panel + p) * kPanel + 16 * j, out + r * w.outputs);
}

void by_vectors(const uint16_t* x, int64_t rows, const Bf16Weights& w, uint16_t* out, int64_t begin, int64_t end) {
    const int64_t count = (rows + kTallest - 1) / kTallest;
    for (; rows < 4 && begin + 1 < end; begin += 2) switch (rows) {
            case 1: tile<1, 2>(x, w, begin, true, out); break;
            case 2: tile<2, 2>(x, w, begin, true, out); break;
            default: tile<3, 2>(x, w, begin, true, out);
        }
    for (int64_t panel = begin; panel < end; ++panel) {
        for (int64_t i = 0, row = 0; i < count; ++i) {
            const int64_t height = (rows - row) / (count - i);
            const uint16_t* from = x + row * w.depth;
            uint16_t* to = out + row * w.outputs;
            const bool ask = i == 0;
            switch (height) {
                case 1: tile<1>(from, w, panel, ask, to); break;
                case 2: tile<2>(from, w, panel, ask, to); break;
                case 3: tile<3>(from, w, panel, ask, to); break;
                case 4: tile<4>(from, w, panel, ask, to); break;
                case 5: tile<5>(from, w, panel, ask, to); break;
                case 6: tile<6>(from, w, panel, ask, to); break;
                case 7: tile<7>(from, w, panel, ask, to); break;
                case 8: tile<8>(from, w, panel, ask, to); break;
                case 9: tile<9>(from, w, panel, ask, to); break;
                case 10: tile<10>(from, w, panel, ask, to); break;
                case 11: tile<11>(from, w, panel, ask, to); break;
                case 12: tile<12>(from, w, panel, ask, to); break;
                default: tile<13>(from, w, panel, ask, to);
            }
            row += height;
        }
    }
}

}  // namespace
}  // namespace headgate

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
#include "amx.inc"

namespace headgate {
namespace {

template <bool TWO>
void tiles(const uint16_t* upper, const uint16_t* lower, const Bf16Weights& w, int64_t panel, bool last, float* sums) {
    const uint16_t* weights = w.packed + panel * kPanel * w.depth;
    const int64_t stride = w.depth * 2;
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < w.depth; k += 32) {
        _tile_loadd(4, upper + k, stride);
        _tile_loadd(6, weights, kStep * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, weights + 32, kStep * 2);
        _tile_dpbf16ps(1, 4, 7);
        if (TWO) {
            _tile_loadd(5, lower + k, stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        if (last)
            for (int64_t i = 0; i < 2 * kTileBytes; i += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights + kPanel * w.depth) + i, _MM_HINT_T1);
        weights += kTileBytes;
    }
    _tile_stored(0, sums, kPanel * 4);
    _tile_stored(1, sums + 16, kPanel * 4);
    if (TWO) {
        _tile_stored(2, sums + kTileRows * kPanel, kPanel * 4);
        _tile_stored(3, sums + kTileRows * kPanel + 16, kPanel * 4);
    }
}

void by_tiles(const uint16_t* x, int64_t rows, const Bf16Weights& w, uint16_t* out, int64_t begin, int64_t end) {
    const Blocks rows_of(rows);
    load_shapes(rows_of.height);
    alignas(64) float sums[2 * kTileRows * kPanel];
    const auto store = [&](int64_t row, int64_t panel, const float* from) {
        for (int64_t r = 0; r < rows_of.height; ++r)
            ALL for (int64_t j = 0; j < 2; ++j)
                finish(_mm512_load_ps(from + r * kPanel + 16 * j), w, panel * kPanel + 16 * j,
                       out + (row + r) * w.outputs);
    };
    for (int64_t panel = begin; panel < end; ++panel) {
        for (int64_t block = 0; block < rows_of.blocks; block += 2) {
            const uint16_t* upper = x + rows_of.top(block) * w.depth;
            if (block + 1 == rows_of.blocks) {
                tiles<false>(upper, nullptr, w, panel, true, sums);
            } else {
                tiles<true>(upper, x + rows_of.top(block + 1) * w.depth, w, panel, block + 2 == rows_of.blocks, sums);
                store(rows_of.top(block + 1), panel, sums + kTileRows * kPanel);
            }
            store(rows_of.top(block), panel, sums);
        }
    }
    _tile_release();
}

}  // namespace
}  // namespace headgate
#pragma GCC pop_options
#pragma GCC pop_options
#endif

namespace headgate {

void bf16_multiply(const uint16_t* x, int64_t rows, const Bf16Weights& w, uint16_t* out, int64_t begin, int64_t end) {
    if (rows == 0) return;
#if defined(HEADGATE_BF16)
    // By the processor alone, never by the number of rows: the ways add up in different orders.
    if (allowed(Instructions::amx_bf16)) return by_tiles(x, rows, w, out, begin, end);
    if (allowed(Instructions::avx512_bf16)) return by_vectors(x, rows, w, out, begin, end);
#endif
    loops(Element::bf16).bf16_panels(x, rows, w, out, begin, end);
}

}  // namespace headgate
