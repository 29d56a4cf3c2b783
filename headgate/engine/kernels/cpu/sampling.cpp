// Choosing tokens, compiled once per instruction set. As in loops.cpp no torch header, and none of the standard library
// inside a target region.
#include "sampling.h"

#include "choice.h"

#include <cstring>
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

using Likeliest = int64_t (*)(const void*, int64_t);

struct Variant {
    Likeliest f32;
    Likeliest bf16;
};

}  // namespace
}  // namespace headgate

namespace headgate::baseline {
namespace {
#define LANES 4
#include "vector.inc"
#include "sampling.inc"
#undef LANES
const Variant sampling{likeliest<float>, likeliest<uint16_t>};
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
const Variant sampling{likeliest<float>, likeliest<uint16_t>};
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
const Variant sampling{likeliest<float>, likeliest<uint16_t>};
}  // namespace
}  // namespace headgate::avx512
#pragma GCC pop_options
#endif

namespace headgate {
namespace {

Variant choose() {
#if defined(HEADGATE_VARIANTS)
    if (allowed(Instructions::avx512)) return avx512::sampling;
    if (allowed(Instructions::avx2)) return avx2::sampling;
#endif
    return baseline::sampling;
}

}  // namespace

int64_t likeliest(Element element, const void* logits, int64_t count) {
    static const Variant chosen = choose();
    return (element == Element::f32 ? chosen.f32 : chosen.bf16)(logits, count);
}

}  // namespace headgate
