// The loops, compiled once per instruction set. No torch header here, and none of the standard library inside a
// target region: an inline function compiled for AVX-512 could be the one that the linker keeps for everybody.
#include "loops.h"

#include "bf16.h"
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

#define HEADGATE_LOOPS(T) {rms_norm<T>, add_rms_norm<T>, rope<T>, swiglu<T>, geglu<T>, scale<T>, place<T>, to_int8<T>, \
        attend<T>, fold, merge<T>, bf16_panels}

// 128-bit vectors, which every 64-bit processor has.
namespace headgate::baseline {
#define LANES 4
#include "vector.inc"
#include "elementwise.inc"
#include "attention.inc"
#include "bf16.inc"
#undef LANES
const Loops f32 = HEADGATE_LOOPS(float);
const Loops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace headgate::avx2 {
#define LANES 8
#include "vector.inc"
#include "elementwise.inc"
#include "attention.inc"
#include "bf16.inc"
#undef LANES
const Loops f32 = HEADGATE_LOOPS(float);
const Loops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace headgate::avx512 {
#define LANES 16
#include "vector.inc"
#include "elementwise.inc"
#include "attention.inc"
#include "bf16.inc"
#undef LANES
const Loops f32 = HEADGATE_LOOPS(float);
const Loops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
namespace headgate::avx512_bf16 {
#define LANES 16
#define HEADGATE_NARROWS 1
#include "vector.inc"
#include "elementwise.inc"
#include "attention.inc"
#include "bf16.inc"
#undef HEADGATE_NARROWS
#undef LANES
const Loops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::avx512_bf16
#pragma GCC pop_options
#endif

namespace headgate {
namespace {

struct Variant {
    const Loops* f32;
    const Loops* bf16;
};

Variant choose() {
#if defined(HEADGATE_VARIANTS)
    if (allowed(Instructions::avx512_bf16)) return {&avx512::f32, &avx512_bf16::bf16};
    if (allowed(Instructions::avx512)) return {&avx512::f32, &avx512::bf16};
    if (allowed(Instructions::avx2)) return {&avx2::f32, &avx2::bf16};
#endif
    return {&baseline::f32, &baseline::bf16};
}

const Variant& variant() {
    static const Variant chosen = choose();
    return chosen;
}

}  // namespace

const Loops& loops(Element element) { return element == Element::f32 ? *variant().f32 : *variant().bf16; }

}  // namespace headgate
