// The delta rule's loop, compiled once per instruction set; see loops.cpp for why nothing else may be in here.
#include "delta.h"

#include "choice.h"

#include <cmath>
#include <cstring>
#include <utility>

#define INLINE inline __attribute__((always_inline))

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HEADGATE_SHUFFLES 1
#endif
#endif

namespace headgate::baseline_delta {
#define LANES 4
#include "vector.inc"
#include "delta.inc"
#undef LANES
const DeltaLoop f32 = delta<float>, bf16 = delta<uint16_t>;
}  // namespace headgate::baseline_delta

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace headgate::avx2_delta {
#define LANES 8
#include "vector.inc"
#include "delta.inc"
#undef LANES
const DeltaLoop f32 = delta<float>, bf16 = delta<uint16_t>;
}  // namespace headgate::avx2_delta
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace headgate::avx512_delta {
#define LANES 16
#include "vector.inc"
#include "delta.inc"
#undef LANES
const DeltaLoop f32 = delta<float>, bf16 = delta<uint16_t>;
}  // namespace headgate::avx512_delta
#pragma GCC pop_options
#endif

namespace headgate {

DeltaLoop delta_loop(Element element) {
    const bool f32 = element == Element::f32;
#if defined(HEADGATE_VARIANTS)
    if (allowed(Instructions::avx512)) return f32 ? avx512_delta::f32 : avx512_delta::bf16;
    if (allowed(Instructions::avx2)) return f32 ? avx2_delta::f32 : avx2_delta::bf16;
#endif
    return f32 ? baseline_delta::f32 : baseline_delta::bf16;
}

}  // namespace headgate
