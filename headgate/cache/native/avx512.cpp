// The pass and the comparator by AVX-512 with its bfloat16, and AMX where that is.
#include "lanes.h"

#if defined(HEADGATE_VECTORS)
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "blocks.h"
#include "kernels.h"
#include "team.h"

// What of the standard library is used here is inlined or was compiled above: nothing that the linker could take for everybody.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,amx-tile,amx-bf16")

namespace headgate {
namespace {

#include "lanes_avx512.inc"
#include "exponential.inc"
#include "products_avx512.inc"
#include "pass.inc"
#include "comparator.inc"

}  // namespace
}  // namespace headgate

#pragma GCC pop_options

namespace headgate {

const Kernels avx512 = {
    [](const HeadgateEncoder& encoder, bool tiles, const Texts& texts, Workspace& space) -> std::unique_ptr<Pass> {
        return std::make_unique<Walk>(encoder, tiles, texts, space);
    },
    make_sketches,
    compare,
};

}  // namespace headgate
#endif
