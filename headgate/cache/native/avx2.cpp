// The pass and the comparator by AVX2, with which every x86 processor since 2013 or so comes.
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
#pragma GCC target("avx2,fma,f16c")

namespace headgate {
namespace {

#include "lanes_avx2.inc"
#include "exponential.inc"
#include "products_avx2.inc"
#include "pass.inc"
#include "comparator.inc"

}  // namespace
}  // namespace headgate

#pragma GCC pop_options

namespace headgate {

const Kernels avx2 = {
    [](const HeadgateEncoder& encoder, bool tiles, const Texts& texts, Workspace& space) -> std::unique_ptr<Pass> {
        return std::make_unique<Walk>(encoder, tiles, texts, space);
    },
    make_sketches,
    compare,
};

}  // namespace headgate
#endif
