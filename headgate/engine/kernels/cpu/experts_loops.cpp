// The experts' loops, compiled once per instruction set; see loops.cpp for why nothing else may be in here.
#include "experts.h"
#include "mxfp4.h"

#include <cstring>
#include <utility>

#include "choice.h"

#define INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// See int4.cpp.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HEADGATE_SHUFFLES 1
#endif
#endif

#define HEADGATE_LOOPS(T) {route, activate<T>, activate_clamped<T>, shift, add, round<T>, product<T>, expand<T>}

namespace headgate::baseline_experts {
#define LANES 4
#include "vector.inc"
#include "experts.inc"
#include "mxfp4.inc"
#undef LANES
const ExpertLoops f32 = HEADGATE_LOOPS(float);
const ExpertLoops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::baseline_experts

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace headgate::avx2_experts {
#define LANES 8
#include "vector.inc"
#include "experts.inc"
#include "mxfp4.inc"
#undef LANES
const ExpertLoops f32 = HEADGATE_LOOPS(float);
const ExpertLoops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::avx2_experts
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace headgate::avx512_experts {
#define LANES 16
#include "vector.inc"
#include "experts.inc"
#include "mxfp4.inc"
#undef LANES
const ExpertLoops f32 = HEADGATE_LOOPS(float);
const ExpertLoops bf16 = HEADGATE_LOOPS(uint16_t);
}  // namespace headgate::avx512_experts
#pragma GCC pop_options
#endif

namespace headgate {

const ExpertLoops& expert_loops(Element element) {
    const bool f32 = element == Element::f32;
#if defined(HEADGATE_VARIANTS)
    if (allowed(Instructions::avx512)) return f32 ? avx512_experts::f32 : avx512_experts::bf16;
    if (allowed(Instructions::avx2)) return f32 ? avx2_experts::f32 : avx2_experts::bf16;
#endif
    return f32 ? baseline_experts::f32 : baseline_experts::bf16;
}

}  // namespace headgate
