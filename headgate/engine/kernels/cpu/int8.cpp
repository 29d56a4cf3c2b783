// The int8 product for AVX-512 VNNI and for AMX. Both give the same integers, so the choice changes no bit of a result.
#include "int8.h"

#include <cstdlib>

#include "choice.h"

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

#include "avx512.inc"

namespace headgate {
namespace {

// As an instruction and not as an intrinsic: GCC 12 keeps the sums of a large tile in memory otherwise, at a third of
// the speed.
#define MULTIPLY_ADD(sum, x, w) asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

constexpr int64_t kStep = kPanel * 4;   // bytes of a panel per four inputs
constexpr int64_t kAhead = 32 * kStep;  // how far ahead a single tile asks for weights
constexpr int64_t kTallest = 13;        // rows of a tile: 13 * 2 sums, 2 weights and one x fit the 32 registers
constexpr int64_t kLeastForAmx = 8;     // rows

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

template <typename T>
void finish_rows(const int32_t* sums, int64_t rows, const float* scales, const Int8Weights& w, int64_t panel, T* out) {
    for (int64_t r = 0; r < rows; ++r)
        ALL for (int64_t j = 0; j < 2; ++j)
            finish(_mm512_load_si512(sums + r * kPanel + 16 * j), scales[r], w, panel * kPanel + 16 * j,
                   out + r * w.outputs);
}

// How weights come into the cache: the first tile of a panel asks for what it needs next, the last of several for the panel
// that follows, which would otherwise wait for memory while nothing is computed.
enum class Ask { nothing, ahead, next };

// ROWS rows times one panel, to sums [ROWS][kPanel]; UNROLL independent sums hide the latency where there are few rows.
template <int64_t ROWS, int64_t UNROLL>
void tile(const uint8_t* q, const int8_t* weights, int64_t depth, Ask ask, int32_t* out) {
    __m512i sums[UNROLL][ROWS][2];
    ALL for (int64_t u = 0; u < UNROLL; ++u) ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j)
        sums[u][r][j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += 4 * UNROLL) {
        if (ask == Ask::ahead)
            ALL for (int64_t line = 0; line < UNROLL * kStep; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights + kAhead + line), _MM_HINT_T0);
        else if (ask == Ask::next)
            ALL for (int64_t line = 0; line < UNROLL * kStep; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights + kPanel * depth + line), _MM_HINT_T1);
        ALL for (int64_t u = 0; u < UNROLL; ++u) {
            const __m512i left = _mm512_loadu_si512(weights), right = _mm512_loadu_si512(weights + 64);
            ALL for (int64_t r = 0; r < ROWS; ++r) {
                int32_t four;
                __builtin_memcpy(&four, q + r * depth + k + 4 * u, 4);
                const __m512i x = _mm512_set1_epi32(four);
                MULTIPLY_ADD(sums[u][r][0], x, left);
                MULTIPLY_ADD(sums[u][r][1], x, right);
            }
            weights += kStep;
        }
    }
    ALL for (int64_t r = 0; r < ROWS; ++r) ALL for (int64_t j = 0; j < 2; ++j) {
        __m512i sum = sums[0][r][j];
        ALL for (int64_t u = 1; u < UNROLL; ++u) sum = _mm512_add_epi32(sum, sums[u][r][j]);
        _mm512_store_si512(out + r * kPanel + 16 * j, sum);
    }
}

void tile_of(int64_t rows, const uint8_t* q, const int8_t* weights, int64_t depth, Ask ask, int32_t* out) {
    switch (rows) {
        case 1: return tile<1, 4>(q, weights, depth, ask, out);
        case 2: return tile<2, 4>(q, weights, depth, ask, out);
        case 3: return tile<3, 2>(q, weights, depth, ask, out);
        case 4: return tile<4, 2>(q, weights, depth, ask, out);
        case 5: return tile<5, 2>(q, weights, depth, ask, out);
        case 6: return tile<6, 2>(q, weights, depth, ask, out);
        case 7: return tile<7, 1>(q, weights, depth, ask, out);
        case 8: return tile<8, 1>(q, weights, depth, ask, out);
        case 9: return tile<9, 1>(q, weights, depth, ask, out);
        case 10: return tile<10, 1>(q, weights, depth, ask, out);
        case 11: return tile<11, 1>(q, weights, depth, ask, out);
        case 12: return tile<12, 1>(q, weights, depth, ask, out);
        default: return tile<13, 1>(q, weights, depth, ask, out);
    }
}

template <typename T>
void by_vectors(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, int64_t panel, T* out) {
    alignas(64) int32_t sums[kTallest * kPanel];
    const int8_t* weights = w.packed + panel * kPanel * w.depth;
    // Tiles of nearly equal height: a last tile of one row costs almost as much as one of six.
    const int64_t tiles = (rows + kTallest - 1) / kTallest;
    for (int64_t i = 0, row = 0; i < tiles; ++i) {
        const int64_t height = (rows - row) / (tiles - i);
        tile_of(height, q + row * w.depth, weights, w.depth, i == 0 ? Ask::ahead : i < tiles - 1 ? Ask::nothing : Ask::next,
                sums);
        finish_rows(sums, height, scales + row, w, panel, out + row * w.outputs);
        row += height;
    }
}

}  // namespace
}  // namespace headgate

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8")
#include "amx.inc"

namespace headgate {
namespace {

template <bool TWO>
void tiles(const uint8_t* upper, const uint8_t* lower, const Int8Weights& w, int64_t panel, bool last,
           int32_t* sums) {
    const int8_t* weights = w.packed + panel * kPanel * w.depth;
    const int64_t panel_bytes = kPanel * w.depth;
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < w.depth; k += 64) {
        _tile_loadd(4, upper + k, w.depth);
        _tile_loadd(6, weights, kStep);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, weights + 64, kStep);
        _tile_dpbusd(1, 4, 7);
        if (TWO) {
            _tile_loadd(5, lower + k, w.depth);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        }
        if (last)
            for (int64_t i = 0; i < 2 * kTileBytes; i += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights + panel_bytes + i), _MM_HINT_T1);
        weights += 2 * kTileBytes;
    }
    // [rows of both blocks][kPanel]
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
    const Blocks rows_of(rows);
    load_shapes(rows_of.height);
    alignas(64) int32_t sums[2 * kTileRows * kPanel];
    const auto store = [&](int64_t row, int64_t panel, const int32_t* from) {
        finish_rows(from, rows_of.height, scales + row, w, panel, out + row * w.outputs);
    };
    for (int64_t panel = begin; panel < end; ++panel) {
        for (int64_t block = 0; block < rows_of.blocks; block += 2) {
            const uint8_t* upper = q + rows_of.top(block) * w.depth;
            if (block + 1 == rows_of.blocks) {
                tiles<false>(upper, nullptr, w, panel, true, sums);
            } else {
                tiles<true>(upper, q + rows_of.top(block + 1) * w.depth, w, panel, block + 2 == rows_of.blocks, sums);
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

namespace headgate {
namespace {

template <typename T>
void product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, T* out, int64_t begin,
             int64_t end) {
    if (rows >= kLeastForAmx && allowed(Instructions::amx_int8)) return by_tiles(q, scales, rows, w, begin, end, out);
    for (int64_t panel = begin; panel < end; ++panel) by_vectors(q, scales, rows, w, panel, out);
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
    if (element == Element::f32)
        product(q, scales, rows, w, static_cast<float*>(out), begin, end);
    else
        product(q, scales, rows, w, static_cast<uint16_t*>(out), begin, end);
}

void int8_pack_panel(const uint8_t* q, int64_t depth, int8_t* packed, int32_t* shift) {
    for (int64_t o = 0; o < kPanel; ++o) {
        int32_t sum = 0;
        for (int64_t i = 0; i < depth; ++i) sum += q[o * depth + i];
        shift[o] = 128 * (sum - static_cast<int32_t>(128 * depth));
    }
    for (int64_t i = 0; i < depth; i += 4)
        for (int64_t o = 0; o < kPanel; ++o, packed += 4) {
            uint32_t four;
            __builtin_memcpy(&four, q + o * depth + i, 4);
            four ^= 0x80808080;  // takes 128 from each byte
            __builtin_memcpy(packed, &four, 4);
        }
}

bool int8_usable() { return allowed(Instructions::avx512_vnni); }

}  // namespace headgate
#pragma GCC pop_options

#else

namespace headgate {

bool int8_usable() { return false; }
void int8_quantize(Rows, Element, int64_t, int64_t, uint8_t*, float*, int64_t, int64_t) { std::abort(); }
void int8_pack_panel(const uint8_t*, int64_t, int8_t*, int32_t*) { std::abort(); }
void int8_product(const uint8_t*, const float*, int64_t, const Int8Weights&, Element, void*, int64_t, int64_t) {
    std::abort();
}

}  // namespace headgate
#endif
