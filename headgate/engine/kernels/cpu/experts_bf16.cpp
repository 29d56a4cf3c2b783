// The bfloat16 product with the instructions made for it: AMX tiles, or AVX-512 BF16 with one instruction per 32 pairs.
#include "choice.h"
#include "experts.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_BF16 1
#endif

#if defined(HEADGATE_BF16)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma")
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace headgate {
namespace {

#define ALL _Pragma("GCC unroll 16")

constexpr int64_t kPairs = kFloatPanel * 2;  // elements of a panel per two inputs

// As an instruction and not as an intrinsic, for the reason int8.cpp gives.
#define MULTIPLY_ADD(sum, x, w) asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

// PANELS panels that follow each other: where rows are few, more sums are on their way. Each adds up as it would alone.
template <int64_t ROWS, int64_t PANELS = 1>
void vector_tile(const uint16_t* x, int64_t apart, const uint16_t* w, int64_t depth, float* out, const FloatSums& of) {
    __m512 sums[PANELS][ROWS][2];
    ALL for (int64_t p = 0; p < PANELS; ++p) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j)
        sums[p][r][j] = of.more ? _mm512_loadu_ps(out + p * kFloatPanel + r * of.stride + 16 * j) : _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += 2, w += kPairs)
        ALL for (int64_t p = 0; p < PANELS; ++p) {
            const uint16_t* from = w + p * kFloatPanel * depth;
            const __m512i left = _mm512_loadu_si512(from), right = _mm512_loadu_si512(from + kPairs / 2);
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                int32_t pair;
                __builtin_memcpy(&pair, x + r * apart + k, 4);
                const __m512i both = _mm512_set1_epi32(pair);
                MULTIPLY_ADD(sums[p][r][0], both, left);
                MULTIPLY_ADD(sums[p][r][1], both, right);
            }
        }
    ALL for (int64_t p = 0; p < PANELS; ++p) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j)
        _mm512_storeu_ps(out + p * kFloatPanel + r * of.stride + 16 * j, sums[p][r][j]);
}

void by_vectors(FloatRows x, const void* packed, int64_t depth, int64_t begin, int64_t end, FloatSums out) {
    constexpr int64_t kTallest = 12;
    const auto* rows = static_cast<const uint16_t*>(x.rows);
    const auto panel = [&](int64_t p) { return static_cast<const uint16_t*>(packed) + p * kFloatPanel * depth; };
    const auto place = [&](int64_t p) { return out.rows + (p - begin) * kFloatPanel; };
    int64_t p = begin;
    if (x.count == 1)
        for (; p + 1 < end; p += 2) vector_tile<1, 2>(rows, x.stride, panel(p), depth, place(p), out);
    for (; p < end; ++p) {
        int64_t r = 0;
        const auto run = [&](auto tile, int64_t height) {
            for (; r + height <= x.count; r += height)
                tile(rows + r * x.stride, x.stride, panel(p), depth, place(p) + r * out.stride, out);
        };
        run(vector_tile<kTallest>, kTallest);
        run(vector_tile<4>, 4);
        run(vector_tile<1>, 1);
    }
}

// Tiles 0 to 3 hold the sums of two blocks of rows times the two halves of a panel; 4 and 5 the rows, 6 and 7 the weights.
struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t start = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
};

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileInputs = 32;

template <bool TWO>
void tiles(const uint16_t* upper, const uint16_t* lower, int64_t x_stride, const uint16_t* w, int64_t depth,
           float* upper_out, float* lower_out, const FloatSums& of) {
    const int64_t apart = x_stride * 2, panel_bytes = kFloatPanel * depth * 2, stride = of.stride;
    if (of.more) {
        _tile_loadd(0, upper_out, stride * 4);
        _tile_loadd(1, upper_out + 16, stride * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    if (TWO) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += kTileInputs, w += kTileInputs * kFloatPanel) {
        _tile_loadd(4, upper + k, apart);
        _tile_loadd(6, w, kPairs * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, w + kPairs / 2, kPairs * 2);
        _tile_dpbf16ps(1, 4, 7);
        if (TWO) {
            _tile_loadd(5, lower + k, apart);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        // The panel that follows is on its way while this one is multiplied.
        for (int64_t i = 0; i < kTileInputs * kFloatPanel * 2; i += 64)
            _mm_prefetch(reinterpret_cast<const char*>(w) + panel_bytes + i, _MM_HINT_T1);
    }
    _tile_stored(0, upper_out, stride * 4);
    _tile_stored(1, upper_out + 16, stride * 4);
    if (TWO) {
        _tile_stored(2, lower_out, stride * 4);
        _tile_stored(3, lower_out + 16, stride * 4);
    }
}

void by_tiles(FloatRows x, const void* packed, int64_t depth, int64_t begin, int64_t end, FloatSums out) {
    if (x.count == 0) return;
    // Blocks of equal height, so that one shape does for all; the last one may overlap the one before.
    const int64_t rows = x.count, blocks = (rows + kTileRows - 1) / kTileRows, height = (rows + blocks - 1) / blocks;
    TileShapes shapes;
    for (int i = 0; i < 6; ++i) shapes.rows[i] = static_cast<uint8_t>(height);
    shapes.rows[6] = shapes.rows[7] = kTileRows;
    _tile_loadconfig(&shapes);
    const int64_t stride = out.stride;
    const auto top = [&](int64_t block) { return block * height < rows - height ? block * height : rows - height; };
    const uint16_t* from = static_cast<const uint16_t*>(x.rows);
    for (int64_t p = begin; p < end; ++p) {
        const uint16_t* w = static_cast<const uint16_t*>(packed) + p * kFloatPanel * depth;
        float* to = out.rows + (p - begin) * kFloatPanel;
        for (int64_t block = 0; block < blocks; block += 2) {
            const int64_t upper = top(block), lower = top(block + 1);
            if (block + 1 == blocks)
                tiles<false>(from + upper * x.stride, nullptr, x.stride, w, depth, to + upper * stride, nullptr, out);
            else
                tiles<true>(from + upper * x.stride, from + lower * x.stride, x.stride, w, depth, to + upper * stride,
                            to + lower * stride, out);
        }
    }
    _tile_release();
}

}  // namespace
}  // namespace headgate
#pragma GCC pop_options

namespace headgate {

FloatProduct bf16_product() {
    if (allowed(Instructions::amx_bf16)) return by_tiles;
    return allowed(Instructions::avx512_bf16) ? by_vectors : nullptr;
}

}  // namespace headgate

#else

namespace headgate {

FloatProduct bf16_product() { return nullptr; }

}  // namespace headgate
#endif
