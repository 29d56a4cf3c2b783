// Choosing tokens, compiled once per instruction set. As in loops.cpp no torch header, and none of the standard library
// inside a target region.
#include "sampling.h"

#include "choice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#define INLINE inline __attribute__((always_inline))

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HEADGATE_SHUFFLES 1
#endif
#endif

namespace headgate {
namespace {

INLINE float one(const float* p) { return *p; }

INLINE float one(const uint16_t* p) {
    const uint32_t bits = static_cast<uint32_t>(*p) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Scores are (logit - most) / temperature, at most 0; `least` is the lowest that takes part.
struct Variant {
    int64_t (*likeliest)(const void* logits, int64_t count);
    float (*peaks)(const void* logits, int64_t count, float* maxima);
    double (*mass)(const void* logits, int64_t count, float most, float temperature);
    int64_t (*collect)(const void* logits, int64_t count, float most, float temperature, float least, float* scores,
                       int32_t* ids);
    void (*weigh)(const float* scores, int64_t count, float* weights);  // e to each score
    int64_t (*race_all)(const void* logits, int64_t count, float most, float temperature, float least, uint32_t high,
                        uint32_t low);
    int64_t (*race_some)(const float* scores, const int32_t* ids, int64_t count, float least, uint32_t high, uint32_t low);
};

#define HEADGATE_SAMPLING(T) {likeliest<T>, peaks<T>, mass<T>, collect<T>, weigh, race_all<T>, race_some}

constexpr int64_t kBlock = 64;  // logits whose largest is kept, to find the top_k ones among few

}  // namespace
}  // namespace headgate

namespace headgate::baseline {
namespace {
#define LANES 4
#include "vector.inc"
#include "sampling.inc"
#undef LANES
const Variant f32 = HEADGATE_SAMPLING(float);
const Variant bf16 = HEADGATE_SAMPLING(uint16_t);
}  // namespace
}  // namespace headgate::baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace headgate::avx2 {
namespace {
#define LANES 8
#include "vector.inc"
#include "sampling.inc"
#undef LANES
const Variant f32 = HEADGATE_SAMPLING(float);
const Variant bf16 = HEADGATE_SAMPLING(uint16_t);
}  // namespace
}  // namespace headgate::avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace headgate::avx512 {
namespace {
#define LANES 16
#include "vector.inc"
#include "sampling.inc"
#undef LANES
const Variant f32 = HEADGATE_SAMPLING(float);
const Variant bf16 = HEADGATE_SAMPLING(uint16_t);
}  // namespace
}  // namespace headgate::avx512
#pragma GCC pop_options
#endif

namespace headgate {
namespace {

const Variant& choose(Element element) {
    const bool f32 = element == Element::f32;
#if defined(HEADGATE_VARIANTS)
    if (allowed(Instructions::avx512)) return f32 ? avx512::f32 : avx512::bf16;
    if (allowed(Instructions::avx2)) return f32 ? avx2::f32 : avx2::bf16;
#endif
    return f32 ? baseline::f32 : baseline::bf16;
}

// Most words are all of one kind: text allows nearly every token, a form's own marks a few.
template <typename T>
void forbid_in(T* logits, T impossible, int64_t count, const uint32_t* allowed, int64_t words) {
    for (int64_t word = 0; 32 * word < count; ++word) {
        const uint32_t bits = word < words ? allowed[word] : 0;
        T* of = logits + 32 * word;
        const int64_t width = std::min<int64_t>(32, count - 32 * word);
        if (bits == 0)
            std::fill(of, of + width, impossible);
        else if (bits != 0xffffffffu)
            for (int64_t i = 0; i < width; ++i) of[i] = (bits >> i & 1) != 0 ? of[i] : impossible;
    }
}

struct Candidates {
    float* scores;
    int32_t* ids;  // rising
    int64_t count;
};

// Orders scores, which are at most 0, with the likeliest first.
uint32_t key_of(float score) {
    const float size = 0.0f - score;
    uint32_t key;
    std::memcpy(&key, &size, sizeof key);
    return key;
}

// Keeps a candidate if those before it, likeliest first and lower ids first among equals, weigh less than `limit`: digit by
// digit of the keys, so that nothing is sorted.
template <typename F>
void keep(Candidates& c, double limit, const F& weight) {
    double before = 0;
    uint32_t found = 0, known = 0;  // the boundary's key, as far as it is known
    constexpr int kBits = 11;
    for (const int shift : {21, 10, 0}) {
        double weights[1 << kBits] = {};
        const uint32_t digits = shift > 0 ? (1u << kBits) - 1 : (1u << 10) - 1;
        for (int64_t i = 0; i < c.count; ++i) {
            const uint32_t key = key_of(c.scores[i]);
            if ((key & known) == found) weights[key >> shift & digits] += weight(i);
        }
        uint32_t digit = 0;
        while (digit < digits && before + weights[digit] < limit) before += weights[digit++];
        found |= digit << shift;
        known |= digits << shift;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < c.count; ++i) {
        const uint32_t key = key_of(c.scores[i]);
        if (key > found || (key == found && before >= limit)) continue;
        if (key == found) before += weight(i);
        c.scores[kept] = c.scores[i];
        c.ids[kept++] = c.ids[i];
    }
    c.count = kept;
}

}  // namespace

void forbid(Element element, void* logits, int64_t count, const uint32_t* allowed, int64_t words) {
    if (element == Element::f32)
        forbid_in(static_cast<uint32_t*>(logits), 0xff800000u, count, allowed, words);
    else
        forbid_in(static_cast<uint16_t*>(logits), uint16_t{0xff80}, count, allowed, words);
}

int64_t likeliest(Element element, const void* logits, int64_t count) { return choose(element).likeliest(logits, count); }

int64_t draw_floats(int64_t count) { return 2 * count + (count + kBlock - 1) / kBlock; }

int64_t draw(Element element, const void* logits, int64_t count, const Drawing& d, float* floats, int32_t* ids) {
    const Variant& loops = choose(element);
    float *weights = floats + count, *maxima = weights + count;
    const int64_t blocks = (count + kBlock - 1) / kBlock;
    const float most = loops.peaks(logits, count, maxima);
    if (!(most == most)) return -1;
    const float unlikely = d.min_p > 0 ? std::log(static_cast<float>(d.min_p)) : -std::numeric_limits<float>::infinity();
    const bool limited = 0 < d.top_k && d.top_k < count;
    if (!limited && d.top_p >= 1) return loops.race_all(logits, count, most, d.temperature, unlikely, d.high, d.low);
    float least = -std::numeric_limits<float>::infinity();
    double whole = 0;
    if (!limited) {
        // All tokens below weigh less together than what is to be left out; the margin is for rounding.
        whole = loops.mass(logits, count, most, d.temperature);
        least = static_cast<float>(std::log((1 - d.top_p) * whole / static_cast<double>(count))) - 1e-3f;
    } else if (d.top_k <= blocks) {
        // So many blocks have a token at least as likely.
        std::nth_element(maxima, maxima + d.top_k - 1, maxima + blocks, std::greater<>());
        least = (maxima[d.top_k - 1] - most) / d.temperature;
    }
    Candidates c{floats, ids, loops.collect(logits, count, most, d.temperature, least, floats, ids)};
    if (limited) keep(c, static_cast<double>(d.top_k), [](int64_t) { return 1.0; });
    if (d.top_p < 1) {
        loops.weigh(c.scores, c.count, weights);
        if (limited) whole = std::accumulate(weights, weights + c.count, 0.0);
        keep(c, d.top_p * whole, [=](int64_t i) { return static_cast<double>(weights[i]); });
    }
    return loops.race_some(c.scores, c.ids, c.count, unlikely, d.high, d.low);
}

void forecast(Element element, const void* logits, int64_t count, int64_t most, float* floats, int32_t* ids, float* told) {
    const Variant& loops = choose(element);
    float* weights = floats + count;
    const float peak = loops.peaks(logits, count, weights + count);
    if (!(peak == peak)) return std::fill(told, told + most + 1, peak);
    loops.collect(logits, count, peak, 1, -std::numeric_limits<float>::infinity(), floats, ids);
    loops.weigh(floats, count, weights);
    double whole = 0, moment = 0;
    for (int64_t i = 0; i < count; ++i) {
        whole += weights[i];
        moment += weights[i] > 0 ? static_cast<double>(weights[i]) * floats[i] : 0;
    }
    std::partial_sort(floats, floats + most, floats + count, std::greater<>());
    for (int64_t i = 0; i < most; ++i) told[i] = static_cast<float>(floats[i] - std::log(whole));
    told[most] = static_cast<float>(std::log(whole) - moment / whole);
}

}  // namespace headgate
