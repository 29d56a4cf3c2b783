// Linear layers of int8 weights and activations quantised to int8 row by row, free of torch.
#pragma once

#include <cstdint>

#include "loops.h"

namespace headgate {

// Weights as the product reads them: panels of kPanel outputs, in each the inputs four by four, the outputs next to each
// other: [panels][depth / 4][kPanel][4]. Missing outputs and inputs are zeros.
struct Int8Weights {
    const int8_t* packed;
    const float* scales;   // [panels * kPanel], of each output
    const int32_t* shift;  // [panels * kPanel]: 128 times the sum of an output's weights, see int8_quantize
    const void* bias;      // null, or [outputs] in the element type of the result
    int64_t outputs;
    int64_t depth;  // inputs, rounded up to kDepth
};

constexpr int64_t kPanel = 32;
constexpr int64_t kDepth = 64;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Where the bytes of quantised rows lie: one row after the other, or, for AMX tiles, in blocks of up to sixteen rows of which
// the inputs follow each other 64 by 64, so that what a tile takes is one stretch of memory and so is what the next one takes.
class Int8Layout {
  public:
    // As the product of so many rows wants them.
    Int8Layout(int64_t rows, int64_t depth);

    // One row after the other.
    explicit Int8Layout(int64_t depth) : height_(1), depth_(depth) {}

    // Bytes that hold up to `rows` rows either way: the last block may lack some.
    static int64_t bytes(int64_t rows, int64_t depth) { return (rows + (rows + 15) / 16) * depth; }

    // The place of a row's first 64 inputs, and how far apart the next 64 lie each.
    int64_t place(int64_t row) const { return row / height_ * height_ * depth_ + row % height_ * kDepth; }
    int64_t step() const { return height_ * kDepth; }

    // Rows of a block.
    int64_t height() const { return height_; }

  private:
    int64_t height_;
    int64_t depth_;
};

// Whether this processor has the instructions: AVX2 at least. With AVX-512 VNNI it goes faster, and with AMX faster still.
bool int8_usable();

// Rows [begin, end) of x to q, `depth` each, and scales [rows]: x ~ (q - 128) * scale with scale = max|x| / 127, or 1 for
// a row of zeros. Stored with 128 added, because the instruction multiplies unsigned by signed bytes.
void int8_quantize(Rows x, Element element, int64_t inputs, int64_t depth, const Int8Layout& layout, uint8_t* q,
                   float* scales, int64_t begin, int64_t end);

// One panel of weights: q [kPanel][depth], with 128 added, to [depth / 4][kPanel][4] without, and 128 times their sums.
void int8_pack_panel(const uint8_t* q, int64_t depth, int8_t* packed, int32_t* shift);

// Panels [begin, end) of out [rows][outputs] = (q - 128) w^T, scaled, plus bias; q as Int8Layout(rows, depth) says, from a
// multiple of 64 bytes on. Sums are exact in int32.
void int8_product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                  int64_t begin, int64_t end);

// Whether `int8_gated_product` can be called for so many rows: there are whole panels of gates and no AMX is used.
bool int8_gates(int64_t rows, const Int8Weights& w);

// Panels [begin, end) of out [rows][outputs / 2] = silu(gate) * up, of outputs whose first half are gates and the second ups;
// all rounded as if each had been stored.
void int8_gated_product(const uint8_t* q, const float* scales, int64_t rows, const Int8Weights& w, Element element, void* out,
                        int64_t begin, int64_t end);

}  // namespace headgate
