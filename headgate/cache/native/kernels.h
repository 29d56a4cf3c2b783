// What is compiled once for each set of instructions.
#pragma once

#include <cstdint>
#include <memory>

#include "comparator.h"
#include "pass.h"

namespace headgate {

struct Kernels {
    std::unique_ptr<Pass> (*pass)(const HeadgateEncoder& encoder, bool tiles, const Texts& texts, Workspace& space);
    decltype(headgate_comparator_sketches)* sketches;
    decltype(headgate_comparator_run)* compare;
};

extern const Kernels avx2;
extern const Kernels avx512;

}  // namespace headgate
