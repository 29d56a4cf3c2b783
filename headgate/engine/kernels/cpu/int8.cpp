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

// The largest magnitude among n numbers as its bits, which are in the numbers' own order; beyond infinity's if one is a NaN.
uint32_t largest(const float* p, int64_t n) {
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 16)
        most = _mm512_max_epu32(
            most, _mm512_and_si512(_mm512_maskz_loadu_epi32(first(n - i), p + i), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_reduce_max_epu32(most);
}

uint32_t largest(const uint16_t* p, int64_t n) {
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 32) {
        const __mmask32 kept = n - i >= 32 ? ~0u : (1u << (n - i)) - 1;
        most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_maskz_loadu_epi16(kept, p + i), _mm512_set1_epi16(0x7fff)));
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_slli_epi32(most, 16),
                                                    _mm512_and_si512(most, _mm512_set1_epi32(static_cast<int>(0xffff0000)))));
}

// v / scale to the nearest whole number, ties to even. Multiplying is several times as fast as dividing, and may come out
// differently only next to a tie; there, and where something is not finite, it is divided.
__m512i rounded(__m512 v, __m512 scale, __m512 inverse) {
    constexpr float kSure = 0.4999f;  // the product is off by less than 127 * 2^-22
    const __m512 y = _mm512_mul_ps(v, inverse);
    const __m512 off = _mm512_abs_ps(_mm512_sub_ps(y, _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
    if (__builtin_expect(_mm512_cmp_ps_mask(off, _mm512_set1_ps(kSure), _CMP_LE_OQ) == 0xffff, 1)) return _mm512_cvtps_epi32(y);
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
        uint8_t* out = q + layout.place(row);
        for (int64_t i = 0; i < depth; i += kDepth, out += layout.step()) {
            __m512i v[4];
            ALL for (int64_t j = 0; j < 4; ++j)
                v[j] = rounded(widen(in + i + 16 * j, first(inputs - i - 16 * j)), by, inverse);
            const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
            _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_permutexvar_epi32(order, bytes), _mm512_set1_epi8(-128)));
        }
    }
}

// `rows` rows of exact sums [kPanel] of a panel, scaled.
template <typename T>
void finish_rows(const int32_t* sums, int64_t rows, const float* scales, const Int8Weights& w, int64_t panel, T* out) {
    const int64_t column = panel * kPanel;
    __mmask16 kept[2];
    __m512i shift[2];
    __m512 by[2], bias[2];
    ALL for (int64_t j = 0; j < 2; ++j) {
        const int64_t at = column + 16 * j;
        kept[j] = first(w.outputs - at);
        shift[j] = _mm512_loadu_si512(w.shift + at);
        by[j] = _mm512_loadu_ps(w.scales + at);
        // Adding minus zero changes nothing.
        bias[j] = w.bias != nullptr ? widen(static_cast<const T*>(w.bias) + at, kept[j]) : _mm512_set1_ps(-0.0f);
    }
    for (int64_t r = 0; r < rows; ++r) {
        const __m512 scale = _mm512_set1_ps(scales[r]);
        __m512 y[2];
        ALL for (int64_t j = 0; j < 2; ++j) {
            const __m512i exact = _mm512_sub_epi32(_mm512_load_si512(sums + r * kPanel + 16 * j), shift[j]);
            y[j] = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(exact), scale), by[j]);
            // In this form the compiler does not fuse it with the product, which would round otherwise than int4's few rows.
            y[j] = _mm512_add_round_ps(y[j], bias[j], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        }
        narrow(out + r * w.outputs + column, y[0], y[1], kept[0], kept[1]);
    }
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
    for (int64_t panel = begin; panel < end; ++panel) by_vectors(q, scales, rows, w, panel, out);
}

}  // namespace

Int8Layout::Int8Layout(int64_t rows, int64_t depth) : Int8Layout(depth) {
    if (rows < kLeastForAmx || !allowed(Instructions::amx_int8)) return;
    // Blocks of equal height, so that one shape of tiles does for all.
    const int64_t blocks = (rows + kTileRows - 1) / kTileRows;
    height_ = (rows + blocks - 1) / blocks;
}

void int8_quantize(Rows x, Element element, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q,
                   float* scales, int64_t begin, int64_t end) {
    if (element == Element::f32)
        quantize<float>(x, inputs, depth, layout, q, scales, begin, end);
    else
        quantize<uint16_t>(x, inputs, depth, layout, q, scales, begin, end);
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
Int8Layout::Int8Layout(int64_t, int64_t depth) : Int8Layout(depth) {}
void int8_quantize(Rows, Element, int64_t, int64_t, const Int8Layout&, uint8_t*, float*, int64_t, int64_t) { std::abort(); }
void int8_pack_panel(const uint8_t*, int64_t, int8_t*, int32_t*) { std::abort(); }
void int8_product(const uint8_t*, const float*, int64_t, const Int8Weights&, Element, void*, int64_t, int64_t) {
    std::abort();
}

}  // namespace headgate
#endif
