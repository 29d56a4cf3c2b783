// The encoder's pass. Short texts, a few dozen rows, are the rule: then the weights, which are read once a pass and in the
// order they lie in memory, are what takes the time, so a panel is multiplied with all rows before the next is touched.
#include "pass.h"

#if defined(HEADGATE_VECTORS)
#include <algorithm>
#include <cmath>

#include "team.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

namespace headgate {
namespace {

__mmask16 first(int64_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }

__m256i rounded(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }

void to_bf16(const float* x, int64_t count, uint16_t* out) {
    for (int64_t i = 0; i < count; i += 16)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), rounded(_mm512_loadu_ps(x + i)));
}

// x * Phi(x), with the error function of Abramowitz and Stegun 7.1.26 and a quick reciprocal: off by less than 1e-4, which the
// bfloat16 that follows rounds away.
__m512 gelu(__m512 x) {
    const __m512 size = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
    const __m512 t = _mm512_rcp14_ps(_mm512_fmadd_ps(size, _mm512_set1_ps(0.3275911f), _mm512_set1_ps(1.0f)));
    __m512 p = _mm512_set1_ps(1.061405429f);
    for (const float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
        p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(c));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), exponential(_mm512_fnmadd_ps(size, size, _mm512_setzero_ps())));
    // Half of the tail on the negative side; all but it on the positive one.
    const __m512 half = _mm512_mul_ps(_mm512_set1_ps(0.5f), tail);
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
    return _mm512_mul_ps(x, _mm512_mask_sub_ps(half, positive, _mm512_set1_ps(1.0f), half));
}

__m512 half(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

}  // namespace

Pass::Pass(const HeadgateEncoder& encoder, bool tiles, const int32_t* ids, const int64_t* starts, int64_t texts, float* vectors,
     float* states, Workspace& space)
    : e_(encoder), tiles_(tiles), ids_(ids), starts_(starts), texts_(texts), vectors_(vectors), states_(states),
      rows_(starts[texts] - starts[0]), blocks_(rows_), dim_(encoder.hidden / encoder.heads) {
    int64_t longest = 0;
    for (int64_t t = 0; t < texts; ++t) longest = std::max(longest, starts[t + 1] - starts[t]);
    stride_ = (longest + 15) / 16 * 16;
    const int64_t n = blocks_.padded, h = e_.hidden;
    space.reserve(Workspace::bytes<float>(n * h) + Workspace::bytes<float>(n * 3 * h) + Workspace::bytes<uint16_t>(n * h) +
                  Workspace::bytes<uint16_t>(n * e_.wide) +
                  2 * (Workspace::bytes<float>(stride_ * dim_) + Workspace::bytes<float>(stride_)));
    x_ = space.take<float>(n * h);
    made_ = space.take<float>(n * 3 * h);
    narrow_ = space.take<uint16_t>(n * h);
    wide_ = space.take<uint16_t>(n * e_.wide);
    for (int who = 0; who < 2; ++who) {
        keys_[who] = space.take<float>(stride_ * dim_);
        shares_[who] = space.take<float>(stride_);
    }
}

void Pass::run(Team* team) {
    begin();
    embed();
    for (int64_t at = 0; at < e_.count; ++at) {
        const HeadgateEncoderLayer& layer = e_.layers[at];
        do_all(team, 5 * at);
        do_all(team, 5 * at + 1);
        do_all(team, 5 * at + 2);
        add_norm(layer.out_norm, nullptr);
        do_all(team, 5 * at + 3);
        do_all(team, 5 * at + 4);
        const bool last = at + 1 == e_.count;
        add_norm(layer.narrow_norm, last ? states_ + e_.hidden : at + 1 == e_.middle ? states_ : nullptr);
    }
    end();
    pool();
}

void Pass::do_all(Team* team, int64_t step) {
    const int64_t count = parts(step);
    if (team != nullptr) return team->do_all(*this, step, count);
    for (int64_t at = 0; at < count; ++at) part(step, at, 0, at + 1 == count);
}

void Pass::begin() const {
    if (!tiles_) return;
    Tiles shapes;
    for (int i = 0; i < 6; ++i) shapes.rows[i] = static_cast<uint8_t>(blocks_.height);
    shapes.rows[6] = shapes.rows[7] = kTileRows;
    // GCC 12's intrinsic says that it reads eight bytes: the others would not be stored without this.
    asm volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}

void Pass::end() const {
    if (tiles_) _tile_release();
}

void Pass::part(int64_t step, int64_t at, int who, bool last) {
    const HeadgateEncoderLayer& layer = e_.layers[step / 5];
    const auto next = [&](const uint16_t* packed, int64_t depth, const uint16_t* after, int64_t size) {
        const int64_t panel = kPanel * depth;
        if (!last) return reinterpret_cast<const char*>(who == 0 ? packed + panel : packed - panel);
        return reinterpret_cast<const char*>(who == 0 ? after : after + size - panel);
    };
    const int64_t h = e_.hidden;
    if (step % 5 == 0) {
        const uint16_t* packed = layer.qkv + at * kPanel * h;
        linear(narrow_, packed, layer.qkv_bias, h, 3 * h, at * kPanel, next(packed, h, layer.out, h * h));
    } else if (step % 5 == 1) {
        const int64_t t = at / e_.heads, head = at % e_.heads;
        const int64_t from = starts_[t] - starts_[0], length = starts_[t + 1] - starts_[t];
        switch (dim_) {
            case 16: attend<1>(from, length, head, who); break;
            case 32: attend<2>(from, length, head, who); break;
            case 48: attend<3>(from, length, head, who); break;
            default: attend<4>(from, length, head, who);
        }
    } else if (step % 5 == 2) {
        const uint16_t* packed = layer.out + at * kPanel * h;
        linear(narrow_, packed, layer.out_bias, h, h, at * kPanel, next(packed, h, layer.wide, h * e_.wide));
    } else if (step % 5 == 3) {
        const uint16_t* packed = layer.wide + at * kPanel * h;
        widen(packed, layer.wide_bias, at * kPanel, next(packed, h, layer.narrow, h * e_.wide));
    } else {
        const uint16_t* packed = layer.narrow + at * kPanel * e_.wide;
        const uint16_t* after = step / 5 + 1 < e_.count ? e_.layers[step / 5 + 1].qkv : e_.layers[0].qkv;
        linear(wide_, packed, layer.narrow_bias, e_.wide, h, at * kPanel, next(packed, e_.wide, after, 3 * h * h));
    }
}

int64_t Pass::parts(int64_t step) const {
    switch (step % 5) {
        case 0: return 3 * e_.hidden / kPanel;
        case 1: return texts_ * e_.heads;
        case 3: return e_.wide / kPanel;
        default: return e_.hidden / kPanel;
    }
}

template <typename F>
void Pass::multiply(const uint16_t* x, const uint16_t* packed, int64_t depth, int64_t column, const char* ask, const F& finish) {
    if (tiles_)
        by_tiles(x, blocks_, packed, depth, column, ask, finish);
    else
        by_vectors(x, blocks_, packed, depth, column, ask, finish);
}

void Pass::linear(const uint16_t* x, const uint16_t* packed, const float* bias, int64_t depth, int64_t outputs, int64_t first,
            const char* ask) {
    multiply(x, packed, depth, first, ask, [&](int64_t row, int64_t column, __m512 left, __m512 right) {
        float* to = made_ + row * outputs + column;
        _mm512_storeu_ps(to, _mm512_add_ps(left, _mm512_loadu_ps(bias + column)));
        _mm512_storeu_ps(to + 16, _mm512_add_ps(right, _mm512_loadu_ps(bias + column + 16)));
    });
}

void Pass::widen(const uint16_t* packed, const float* bias, int64_t first, const char* ask) {
    multiply(narrow_, packed, e_.hidden, first, ask, [&](int64_t row, int64_t column, __m512 left, __m512 right) {
        left = gelu(_mm512_add_ps(left, _mm512_loadu_ps(bias + column)));
        right = gelu(_mm512_add_ps(right, _mm512_loadu_ps(bias + column + 16)));
        _mm512_storeu_si512(wide_ + row * e_.wide + column, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    });
}

void Pass::embed() {
    for (int64_t t = 0; t < texts_; ++t)
        for (int64_t i = starts_[t]; i < starts_[t + 1]; ++i) {
            const int64_t row = i - starts_[0];
            const uint16_t* word = e_.words + ids_[i] * e_.hidden;
            const uint16_t* position = e_.positions + (i - starts_[t]) * e_.hidden;
            for (int64_t c = 0; c < e_.hidden; c += 16)
                _mm512_storeu_ps(x_ + row * e_.hidden + c, _mm512_add_ps(half(word + c), half(position + c)));
            norm(row, e_.norm, nullptr);
        }
}

void Pass::add_norm(const float* norms, float* states) {
    for (int64_t row = 0; row < rows_; ++row) {
        float* x = x_ + row * e_.hidden;
        const float* made = made_ + row * e_.hidden;
        for (int64_t c = 0; c < e_.hidden; c += 16)
            _mm512_storeu_ps(x + c, _mm512_add_ps(_mm512_loadu_ps(x + c), _mm512_loadu_ps(made + c)));
        norm(row, norms, states);
    }
}

void Pass::norm(int64_t row, const float* weights, float* states) {
    const int64_t h = e_.hidden;
    float* x = x_ + row * h;
    __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    for (int64_t c = 0; c < h; c += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + c));
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / static_cast<float>(h));
    for (int64_t c = 0; c < h; c += 16) {
        const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(x + c), mean);
        squares = _mm512_fmadd_ps(off, off, squares);
    }
    const float variance = _mm512_reduce_add_ps(squares) / static_cast<float>(h);
    const __m512 by = _mm512_set1_ps(1.0f / std::sqrt(variance + e_.epsilon));
    for (int64_t c = 0; c < h; c += 16) {
        const __m512 off = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + c), mean), by);
        const __m512 y = _mm512_fmadd_ps(off, _mm512_loadu_ps(weights + c), _mm512_loadu_ps(weights + h + c));
        _mm512_storeu_ps(x + c, y);
        if (states != nullptr) _mm512_storeu_ps(states + 2 * row * h + c, y);
    }
    to_bf16(x, h, narrow_ + row * h);
}

template <int PARTS>
void Pass::attend(int64_t from, int64_t length, int64_t head, int who) {
    float *const keys = keys_[who], *const shares = shares_[who];
    const int64_t h = e_.hidden, dim = 16 * PARTS, filled = (length + 15) / 16 * 16;
    const float* query = made_ + from * 3 * h + head * dim;
    const float* value = query + 2 * h;
    for (int64_t d = 0; d < dim; ++d) {
        float* row = keys + d * filled;
        for (int64_t j = 0; j < length; ++j) row[j] = query[j * 3 * h + h + d];
        for (int64_t j = length; j < filled; ++j) row[j] = 0;
    }
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(dim)));
    for (int64_t i = 0; i < length; ++i, query += 3 * h) {
        __m512 most = _mm512_set1_ps(-INFINITY);
        for (int64_t j = 0; j < filled; j += 16) {
            __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
            for (int64_t d = 0; d < dim; d += 2) {
                even = _mm512_fmadd_ps(_mm512_set1_ps(query[d]), _mm512_load_ps(keys + d * filled + j), even);
                odd = _mm512_fmadd_ps(_mm512_set1_ps(query[d + 1]), _mm512_load_ps(keys + (d + 1) * filled + j), odd);
            }
            const __m512 scores = _mm512_mul_ps(_mm512_add_ps(even, odd), scale);
            _mm512_store_ps(shares + j, scores);
            most = _mm512_mask_max_ps(most, first(length - j), most, scores);
        }
        const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < filled; j += 16) {
            const __m512 part = exponential(_mm512_sub_ps(_mm512_load_ps(shares + j), top));
            _mm512_store_ps(shares + j, part);
            sum = _mm512_mask_add_ps(sum, first(length - j), sum, part);
        }
        __m512 even[PARTS], odd[PARTS];
        ALL for (int p = 0; p < PARTS; ++p) even[p] = odd[p] = _mm512_setzero_ps();
        const float* v = value;
        for (int64_t j = 0; j < filled; j += 2, v += 6 * h) {
            const __m512 one = _mm512_set1_ps(shares[j]), other = _mm512_set1_ps(shares[j + 1]);
            if (j < length) ALL for (int p = 0; p < PARTS; ++p)
                    even[p] = _mm512_fmadd_ps(one, _mm512_loadu_ps(v + 16 * p), even[p]);
            if (j + 1 < length) ALL for (int p = 0; p < PARTS; ++p)
                    odd[p] = _mm512_fmadd_ps(other, _mm512_loadu_ps(v + 3 * h + 16 * p), odd[p]);
        }
        const __m512 by = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(sum));
        ALL for (int p = 0; p < PARTS; ++p)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(narrow_ + (from + i) * h + head * dim + 16 * p),
                                rounded(_mm512_mul_ps(_mm512_add_ps(even[p], odd[p]), by)));
    }
}

void Pass::pool() {
    const int64_t h = e_.hidden;
    for (int64_t t = 0; t < texts_; ++t) {
        float* vector = vectors_ + t * h;
        __m512 squares = _mm512_setzero_ps();
        for (int64_t c = 0; c < h; c += 16) {
            __m512 sum = _mm512_setzero_ps();
            for (int64_t i = starts_[t]; i < starts_[t + 1]; ++i)
                sum = _mm512_add_ps(sum, _mm512_loadu_ps(x_ + (i - starts_[0]) * h + c));
            _mm512_storeu_ps(vector + c, sum);
            squares = _mm512_fmadd_ps(sum, sum, squares);
        }
        // Of unit norm, so that sum and mean are one.
        const __m512 by = _mm512_set1_ps(1.0f / std::max(std::sqrt(_mm512_reduce_add_ps(squares)), 1e-12f));
        for (int64_t c = 0; c < h; c += 16) _mm512_storeu_ps(vector + c, _mm512_mul_ps(_mm512_loadu_ps(vector + c), by));
    }
}

}  // namespace headgate

#pragma GCC pop_options
#endif
