// What the kernels of this folder share before they are compiled, once for each of the two sets of instructions.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VECTORS 1
// GCC 12's own header leaves the lanes that a full mask never shows uninitialised, and warns of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define INLINE inline __attribute__((always_inline))
#define ALL _Pragma("GCC unroll 16")
#endif
