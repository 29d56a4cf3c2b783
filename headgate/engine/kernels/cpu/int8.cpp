// Which way int8 products go, and their weights' layout, which is the same for all.
#include "int8.h"

#include <cstdlib>
#include <cstring>

#include "choice.h"
#include "int8_ways.h"

namespace headgate {
namespace {

const Int8Way* choose() {
#if defined(HEADGATE_INT8)
    if (allowed(Instructions::avx512_vnni)) return &int8_vnni;
    if (allowed(Instructions::avx2)) return &int8_avx2;
#endif
    return nullptr;
}

const Int8Way* chosen() {
    static const Int8Way* const way = choose();
    return way;
}

const Int8Way& way() {
    if (chosen() == nullptr) std::abort();
    return *chosen();
}

}  // namespace

Int8Layout::Int8Layout(int64_t rows, int64_t depth)
    : height_(chosen() == nullptr ? 1 : chosen()->height(rows)), depth_(depth) {}

bool int8_usable() { return chosen() != nullptr; }

void int8_quantize(Rows x, Element element, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q,
                   float* scales, int64_t begin, int64_t end) {
    way().quantize(x, element, inputs, depth, layout, q, scales, begin, end);
}

void int8_pack_panel(const uint8_t* q, int64_t depth, int8_t* packed, int32_t* shift) {
    for (int64_t o = 0; o < kPanel; ++o) {
        int32_t sum = 0;
        for (int64_t i = 0; i < depth; ++i) sum += q[o * depth + i];
        shift[o] = 128 * (sum - static_cast<int32_t>(128 * depth));
    }
    for (int64_t i = 0; i < depth; i += 4)
        for (int64_t o = 0; o < kPanel; ++o, packed += 4) {
            uint32_t four;
            std::memcpy(&four, q + o * depth + i, 4);
            four ^= 0x80808080;  // takes 128 from each byte
            std::memcpy(packed, &four, 4);
        }
}

void int8_product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                  int64_t begin, int64_t end) {
    way().product(q, scales, rows, w, element, out, begin, end);
}

bool int8_gates(int64_t rows, const Int8Weights& w) {
    return w.outputs % (2 * kPanel) == 0 && way().gated_product != nullptr && Int8Layout(rows, w.depth).height() == 1;
}

void int8_gated_product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                        int64_t begin, int64_t end) {
    way().gated_product(q, scales, rows, w, element, out, begin, end);
}

}  // namespace headgate
