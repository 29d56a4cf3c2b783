// Choosing tokens from logits, free of torch.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

// Index of the largest of `count` > 0 logits, the first of equal ones; -1 where one is NaN or +infinity, or all are
// -infinity, because then there is no distribution.
int64_t likeliest(Element element, const void* logits, int64_t count);

}  // namespace headgate
