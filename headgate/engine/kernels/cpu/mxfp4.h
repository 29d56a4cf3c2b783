// Weights of experts in MXFP4 (quant/mxfp4.py), as they lie in memory: 4.25 bits each, nothing rounded again.
#pragma once

#include <cstdint>

#include "experts.h"

namespace headgate {

// weight = value of the code * 2^(scale - 127); a code has a sign and, in its lower three bits, one of 0, 1/2, 1, 3/2, 2, 3, 4, 6.
//
// Packed for reading once from end to end: [panels][groups][kMxfp4Block], of groups of inputs. A block is kFloatPanel scales and
// then kMxfp4Words times kFloatPanel words of 32 bits, an output's: the t-th has its codes for the inputs 8 t, 8 t + 2, 8 t + 4 and
// 8 t + 6, from the lowest bits on, and then those for the inputs after each of these. Missing outputs are zeros.
constexpr int64_t kMxfp4Group = 32;
constexpr int64_t kMxfp4Words = kMxfp4Group / 8;
constexpr int64_t kMxfp4Block = kFloatPanel + kMxfp4Words * kFloatPanel * 4;

constexpr int64_t kMxfp4Ahead = 16 * kMxfp4Block;  // how far ahead weights are asked for

// Scales for which all products are normal numbers of bfloat16. Smaller ones are those of groups of zeros.
constexpr uint8_t kLeastScale = 2;
constexpr uint8_t kMostScale = 252;

// x w^T of up to kFewMxfp4 rows, side by side, with weights unpacked in registers; `room` for the rows in float32. The bits are
// those of ExpertLoops::product with what `expand` makes of the weights.
constexpr int64_t kFewMxfp4 = 4;
using FewMxfp4 = void (*)(FloatRows x, const uint8_t* packed, int64_t groups, int64_t panels, float* room, float* out);

// Null where there is none.
FewMxfp4 few_mxfp4(Element element);

}  // namespace headgate
