// Products of rows in bfloat16 with packed weights, a panel of 32 outputs at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "exponential.h"

#if defined(HEADGATE_VECTORS)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

#define ALL _Pragma("GCC unroll 16")
// As an instruction and not as an intrinsic: GCC 12 keeps the sums of a large tile in memory otherwise.
#define MULTIPLY_ADD(sum, x, w) asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

namespace headgate {

constexpr int64_t kPanel = 32;  // outputs that lie together
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTallest = 8;  // rows of a tile by vectors: 8 * 2 sums, 2 weights and one x

// Rows in blocks of equal height, so that one shape of tiles does for all. Rows past the last one are computed and ignored.
struct Blocks {
    explicit Blocks(int64_t rows)
        : count((rows + kTileRows - 1) / kTileRows), height((rows + count - 1) / count), padded(count * height) {}

    int64_t count;
    int64_t height;
    int64_t padded;
};

struct Tiles {
    uint8_t palette = 1;
    uint8_t start = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
};

template <bool TWO>
void multiply_tiles(const uint16_t* upper, const uint16_t* lower, const uint16_t* weights, int64_t depth, const char* ask,
                    float* sums) {
    const int64_t stride = depth * 2;
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += 32) {
        if (ask != nullptr)
            for (int64_t i = 0; i < 2 * kTileBytes; i += 64, ask += 64) _mm_prefetch(ask, _MM_HINT_T1);
        _tile_loadd(6, weights, 128);
        _tile_loadd(4, upper + k, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, weights + 32, 128);
        _tile_dpbf16ps(1, 4, 7);
        if (TWO) {
            _tile_loadd(5, lower + k, stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        weights += kTileBytes;
    }
    _tile_stored(0, sums, kPanel * 4);
    _tile_stored(1, sums + 16, kPanel * 4);
    if (TWO) {
        _tile_stored(2, sums + kTileRows * kPanel, kPanel * 4);
        _tile_stored(3, sums + kTileRows * kPanel + 16, kPanel * 4);
    }
}

// All rows with the panel `packed`. finish(row, column, left, right) gets the sums of 32 outputs from `column` on; what lies at
// `ask` is fetched meanwhile, as much as the panel is long.
template <typename F>
void by_tiles(const uint16_t* x, const Blocks& rows, const uint16_t* packed, int64_t depth, int64_t column, const char* ask,
              const F& finish) {
    alignas(64) float sums[2 * kTileRows * kPanel];
    const auto take = [&](int64_t block, const float* from) {
        for (int64_t r = 0; r < rows.height; ++r, from += kPanel)
            finish(block * rows.height + r, column, _mm512_load_ps(from), _mm512_load_ps(from + 16));
    };
    for (int64_t block = 0; block < rows.count; block += 2, ask = nullptr) {
        const uint16_t* upper = x + block * rows.height * depth;
        if (block + 1 == rows.count) {
            multiply_tiles<false>(upper, nullptr, packed, depth, ask, sums);
        } else {
            multiply_tiles<true>(upper, upper + rows.height * depth, packed, depth, ask, sums);
            take(block + 1, sums + kTileRows * kPanel);
        }
        take(block, sums);
    }
}

template <int64_t ROWS, typename F>
void multiply_vectors(const uint16_t* x, const uint16_t* weights, int64_t depth, int64_t row, int64_t column,
                      const char* ask, const F& finish) {
    __m512 sums[ROWS][2];
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j) sums[r][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += 2, weights += 2 * kPanel, ask += 128) {
        _mm_prefetch(ask, _MM_HINT_T1);
        _mm_prefetch(ask + 64, _MM_HINT_T1);
        const __m512i left = _mm512_loadu_si512(weights), right = _mm512_loadu_si512(weights + 32);
        ALL for (int64_t r = 0; r < ROWS; ++r) {
            int32_t two;
            std::memcpy(&two, x + r * depth + k, 4);
            const __m512i both = _mm512_set1_epi32(two);
            MULTIPLY_ADD(sums[r][0], both, left);
            MULTIPLY_ADD(sums[r][1], both, right);
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) finish(row + r, column, sums[r][0], sums[r][1]);
}

template <typename F>
void by_vectors(const uint16_t* x, const Blocks& rows, const uint16_t* packed, int64_t depth, int64_t column, const char* ask,
                const F& finish) {
    int64_t row = 0;
    for (; row + kTallest <= rows.padded; row += kTallest)
        multiply_vectors<kTallest>(x + row * depth, packed, depth, row, column, ask, finish);
    for (; row < rows.padded; ++row) multiply_vectors<1>(x + row * depth, packed, depth, row, column, ask, finish);
}

}  // namespace headgate

#pragma GCC pop_options
#endif
