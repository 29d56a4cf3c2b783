// The encoder's pass. Short texts, a few dozen rows, are the rule: then the weights, which are read once a pass and in the
// order they lie in memory, are what takes the time, so a panel is multiplied with all rows before the next is touched.
#include "encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "exponential.h"

#if defined(HEADGATE_VECTORS)
#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

#define ALL _Pragma("GCC unroll 16")
// As an instruction and not as an intrinsic: GCC 12 keeps the sums of a large tile in memory otherwise.
#define MULTIPLY_ADD(sum, x, w) asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

namespace {

constexpr int64_t kPanel = 32;  // outputs that lie together
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kMostRows = 1024;  // of one walk through the layers, unless a single text is longer
constexpr int64_t kTallest = 8;  // rows of a tile by vectors: 8 * 2 sums, 2 weights and one x

// Rows in blocks of equal height, so that one shape of tiles does for all. Rows past the last one are computed and ignored.
struct Blocks {
    explicit Blocks(int64_t rows)
        : count((rows + kTileRows - 1) / kTileRows), height((rows + count - 1) / count), padded(count * height) {}

    int64_t count;
    int64_t height;
    int64_t padded;
};

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

// Memory that grows and stays with its thread.
class Workspace {
  public:
    template <typename T>
    T* take(int64_t count) {
        T* const here = reinterpret_cast<T*>(memory_.get() + used_);
        used_ += bytes<T>(count);
        return here;
    }

    template <typename T>
    static int64_t bytes(int64_t count) {
        return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    }

    void reserve(int64_t bytes) {
        used_ = 0;
        if (bytes <= size_) return;
        memory_.reset();
        size_ = bytes;
        memory_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(bytes))));
        if (memory_ == nullptr) std::abort();
        // Rows that only fill up a block are multiplied as well: no NaN may slow that down.
        std::memset(memory_.get(), 0, static_cast<size_t>(bytes));
    }

  private:
    struct Free {
        void operator()(char* memory) const { std::free(memory); }
    };
    std::unique_ptr<char, Free> memory_;
    int64_t size_ = 0;
    int64_t used_ = 0;
};

class Pass;

// A second thread that takes parts of a pass, as many as it gets to. It is woken at the beginning and spins until the end, and
// nobody waits for it but for a part that it has begun: without a core of its own it costs next to nothing, and where it lost
// its core with a part in hand, the next passes do without it.
class Team {
  public:
    // Whether this pass may have it; `leave` follows.
    bool enter(Pass* pass);
    void leave();
    void do_all(Pass& pass, int64_t step, int64_t parts);

  private:
    static constexpr uint64_t kNothing = 0;
    static constexpr uint64_t kLate = 400'000;  // cycles, some 0.2 ms
    static constexpr int kRest = 16;  // passes

    // A step and which of its parts, from `low` to below `high`, nobody has begun.
    static uint64_t ticket(uint64_t step, uint64_t low, uint64_t high) { return step << 48 | low << 24 | high; }
    static uint64_t low(uint64_t t) { return t >> 24 & 0xffffff; }
    static uint64_t high(uint64_t t) { return t & 0xffffff; }

    void help();
    static bool leave_core(int core);

    std::mutex one_;
    std::atomic<uint32_t> called_{0};
    bool started_ = false;
    int rest_ = 0;
    Pass* pass_ = nullptr;
    alignas(64) std::atomic<uint64_t> open_{kNothing};
    alignas(64) std::atomic<int64_t> done_{0};  // parts that the other thread has finished
    int64_t taken_ = 0;  // of this step by the other thread
    std::atomic<bool> over_{true};
    std::atomic<int> core_{-1};  // that the pass began on
};

class Pass {
  public:
    Pass(const HeadgateEncoder& encoder, bool tiles, const int32_t* ids, const int64_t* starts, int64_t texts, float* vectors,
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

    // With `team`, another thread takes part.
    void run(Team* team) {
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

    // What a thread does before and after its parts of the pass.
    void begin() const {
        if (!tiles_) return;
        Tiles shapes;
        for (int i = 0; i < 6; ++i) shapes.rows[i] = static_cast<uint8_t>(blocks_.height);
        shapes.rows[6] = shapes.rows[7] = kTileRows;
        _tile_loadconfig(&shapes);
    }

    void end() const {
        if (tiles_) _tile_release();
    }

    // One of the parts of a step, which do not depend on each other. `who` is 0, which goes through them upwards, or 1, which
    // goes downwards; with `last` no part is left after this one.
    void part(int64_t step, int64_t at, int who, bool last) {
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

    int64_t height() const { return blocks_.height; }
    bool tiles() const { return tiles_; }

    int64_t parts(int64_t step) const {
        switch (step % 5) {
            case 0: return 3 * e_.hidden / kPanel;
            case 1: return texts_ * e_.heads;
            case 3: return e_.wide / kPanel;
            default: return e_.hidden / kPanel;
        }
    }

  private:
    void do_all(Team* team, int64_t step);

    template <typename F>
    void multiply(const uint16_t* x, const uint16_t* packed, int64_t depth, int64_t column, const char* ask, const F& finish) {
        if (tiles_)
            by_tiles(x, blocks_, packed, depth, column, ask, finish);
        else
            by_vectors(x, blocks_, packed, depth, column, ask, finish);
    }

    void linear(const uint16_t* x, const uint16_t* packed, const float* bias, int64_t depth, int64_t outputs, int64_t first,
                const char* ask) {
        multiply(x, packed, depth, first, ask, [&](int64_t row, int64_t column, __m512 left, __m512 right) {
            float* to = made_ + row * outputs + column;
            _mm512_storeu_ps(to, _mm512_add_ps(left, _mm512_loadu_ps(bias + column)));
            _mm512_storeu_ps(to + 16, _mm512_add_ps(right, _mm512_loadu_ps(bias + column + 16)));
        });
    }

    void widen(const uint16_t* packed, const float* bias, int64_t first, const char* ask) {
        multiply(narrow_, packed, e_.hidden, first, ask, [&](int64_t row, int64_t column, __m512 left, __m512 right) {
            left = gelu(_mm512_add_ps(left, _mm512_loadu_ps(bias + column)));
            right = gelu(_mm512_add_ps(right, _mm512_loadu_ps(bias + column + 16)));
            _mm512_storeu_si512(wide_ + row * e_.wide + column, (__m512i)_mm512_cvtne2ps_pbh(right, left));
        });
    }

    void embed() {
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

    static __m512 half(const uint16_t* from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }

    void add_norm(const float* norms, float* states) {
        for (int64_t row = 0; row < rows_; ++row) {
            float* x = x_ + row * e_.hidden;
            const float* made = made_ + row * e_.hidden;
            for (int64_t c = 0; c < e_.hidden; c += 16)
                _mm512_storeu_ps(x + c, _mm512_add_ps(_mm512_loadu_ps(x + c), _mm512_loadu_ps(made + c)));
            norm(row, norms, states);
        }
    }

    // The row of x_ in place, as bfloat16 in narrow_, and where `states` is given there.
    void norm(int64_t row, const float* weights, float* states) {
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

    // One head of one text; of queries, keys and values [rows][3][heads][dim] in made_.
    template <int PARTS>
    void attend(int64_t from, int64_t length, int64_t head, int who) {
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

    void pool() {
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

    const HeadgateEncoder& e_;
    const bool tiles_;
    const int32_t* const ids_;
    const int64_t* const starts_;
    const int64_t texts_;
    float* const vectors_;
    float* const states_;
    const int64_t rows_;
    const Blocks blocks_;
    const int64_t dim_;
    int64_t stride_;
    float* x_;  // [rows][hidden], what the layers add to
    float* made_;  // what a product gives
    uint16_t* narrow_;  // [rows][hidden], what the next product reads
    uint16_t* wide_;  // [rows][wide]
    float* keys_[2];  // of one head, transposed; for either thread
    float* shares_[2];  // of one query in them
};

void Pass::do_all(Team* team, int64_t step) {
    const int64_t count = parts(step);
    if (team != nullptr) return team->do_all(*this, step, count);
    for (int64_t at = 0; at < count; ++at) part(step, at, 0, at + 1 == count);
}

bool Team::enter(Pass* pass) {
    if (!one_.try_lock()) return false;
    if (rest_ > 0) {
        --rest_;
        one_.unlock();
        return false;
    }
    if (!started_) {
        started_ = true;
        try {
            std::thread(&Team::help, this).detach();
        } catch (const std::system_error&) {
        }
    }
    pass_ = pass;
    done_.store(0, std::memory_order_relaxed);
    taken_ = 0;
    core_.store(sched_getcpu(), std::memory_order_relaxed);
    over_.store(false, std::memory_order_release);
    called_.fetch_add(1, std::memory_order_release);
    called_.notify_one();
    return true;
}

void Team::leave() {
    over_.store(true, std::memory_order_release);
    one_.unlock();
}

void Team::do_all(Pass& pass, int64_t step, int64_t parts) {
    uint64_t now = ticket(static_cast<uint64_t>(step), 0, static_cast<uint64_t>(parts));
    open_.store(now, std::memory_order_release);
    int64_t own = 0;
    for (;;) {
        if (low(now) >= high(now)) break;
        // The other thread moves `high` down.
        if (!open_.compare_exchange_weak(now, now + (1 << 24), std::memory_order_acq_rel)) continue;
        pass.part(step, static_cast<int64_t>(low(now)), 0, low(now) + 1 >= high(now));
        ++own;
        now = open_.load(std::memory_order_acquire);
    }
    taken_ += parts - own;
    const uint64_t since = __builtin_ia32_rdtsc();
    for (int64_t spun = 0; done_.load(std::memory_order_acquire) < taken_; ++spun) {
        _mm_pause();
        if (spun % 256 == 255 && __builtin_ia32_rdtsc() - since > kLate) {
            rest_ = kRest;
            std::this_thread::yield();
        }
    }
}

// Keeps this thread off the core where the pass is: Linux likes to wake it just there. False where there is no other.
bool Team::leave_core(int core) {
    cpu_set_t cores;
    // The first thread's are the process's.
    if (core < 0 || sched_getaffinity(getpid(), sizeof(cores), &cores) != 0) return false;
    CPU_CLR(core, &cores);
    return CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

void Team::help() {
    int left = -1;
    for (uint32_t seen = 0;;) {
        called_.wait(seen, std::memory_order_acquire);
        seen = called_.load(std::memory_order_acquire);
        const int core = core_.load(std::memory_order_relaxed);
        if (core != left && leave_core(core)) left = core;
        if (core != left) continue;
        uint64_t since = __builtin_ia32_rdtsc();
        int64_t height = 0;  // that the tiles are set to
        bool set = false;
        while (!over_.load(std::memory_order_acquire)) {
            uint64_t now = open_.load(std::memory_order_acquire);
            if (low(now) >= high(now) || !open_.compare_exchange_strong(now, now - 1, std::memory_order_acq_rel)) {
                _mm_pause();
                // Whoever has the pass has lost its core, perhaps to this thread.
                if (__builtin_ia32_rdtsc() - since > kLate) break;
                continue;
            }
            // Whatever pass this is by now: it waits for the part.
            Pass& pass = *pass_;
            // Once and not for every part: a new shape of tiles takes longer than many products.
            if (pass.height() != height) {
                pass.begin();
                height = pass.height();
                set = pass.tiles();
            }
            pass.part(static_cast<int64_t>(now >> 48), static_cast<int64_t>(high(now)) - 1, 1, low(now) + 1 >= high(now));
            done_.fetch_add(1, std::memory_order_release);
            since = __builtin_ia32_rdtsc();
        }
        if (set) _tile_release();
    }
}

}  // namespace
#pragma GCC pop_options

namespace {

// Tiles are large; Linux gives a process their room in the saved state only when asked.
bool tiles_granted() {
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

int32_t find() {
    const char* most = std::getenv("HEADGATE_VECTORS");
    if (most != nullptr && std::strcmp(most, "avx512") != 0) return 0;
    for (const bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bw") != 0,
                           __builtin_cpu_supports("avx512dq") != 0, __builtin_cpu_supports("avx512vl") != 0,
                           __builtin_cpu_supports("avx512bf16") != 0, __builtin_cpu_supports("f16c") != 0})
        if (!has) return 0;
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool tiles = most == nullptr && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0 &&
                       (d >> 22 & 1) != 0 && tiles_granted();
    return tiles ? 2 : 1;
}

}  // namespace

int32_t headgate_encoder_instructions() {
    static const int32_t found = find();
    return found;
}

void headgate_encoder_pack(const float* weight, int64_t outputs, int64_t inputs, uint16_t* packed) {
    for (int64_t o = 0; o < outputs; ++o) {
        uint16_t* column = packed + o / kPanel * kPanel * inputs + o % kPanel * 2;
        for (int64_t i = 0; i < inputs; ++i) {
            // To the nearest bfloat16, ties to even.
            uint32_t bits;
            std::memcpy(&bits, weight + o * inputs + i, 4);
            column[i / 2 * kPanel * 2 + i % 2] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
    }
}

void headgate_encoder_run(const HeadgateEncoder* encoder, int32_t instructions, int32_t together, const int32_t* ids,
                          const int64_t* starts, int64_t texts, float* vectors, float* states) {
    static thread_local Workspace space;
    // Never destroyed, for its thread outlives whoever would do that.
    static Team* const team = new Team;
    for (int64_t begin = 0, end = 0; begin < texts; begin = end) {
        for (end = begin + 1; end < texts && starts[end + 1] - starts[begin] <= kMostRows;) ++end;
        Pass pass(*encoder, instructions == 2, ids, starts + begin, end - begin, vectors + begin * encoder->hidden,
                  states + 2 * starts[begin] * encoder->hidden, space);
        const bool helped = together != 0 && texts == 1 && team->enter(&pass);
        pass.run(helped ? team : nullptr);
        if (helped) team->leave();
    }
}

#else

int32_t headgate_encoder_instructions() { return 0; }
void headgate_encoder_pack(const float*, int64_t, int64_t, uint16_t*) { std::abort(); }
void headgate_encoder_run(const HeadgateEncoder*, int32_t, int32_t, const int32_t*, const int64_t*, int64_t, float*, float*) {
    std::abort();
}

#endif

int32_t headgate_encoder_interface() { return 4; }
