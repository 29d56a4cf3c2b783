// A linear layer as phases of a step see it, free of torch: rows are prepared once, then multiplied piece by piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "bf16.h"
#include "choice.h"
#include "int4.h"
#include "int8.h"

namespace headgate {

class Product {
  public:
    Product(Element element, int64_t inputs, int64_t outputs) : element(element), inputs(inputs), outputs(outputs) {}
    virtual ~Product() = default;

    // Bytes of `rows` prepared rows.
    virtual int64_t prepared_bytes(int64_t rows) const = 0;

    // Whether `multiply` takes dense rows as they are, so that there is nothing to prepare.
    virtual bool takes_rows() const { return false; }

    // Rows [begin, end) of x, of `rows` in all, as `multiply` takes them.
    virtual void prepare(Rows x, int64_t rows, void* prepared, int64_t begin, int64_t end) const = 0;

    // Pieces of the outputs that can be computed separately.
    virtual int64_t pieces() const = 0;

    // Of weights that a piece reads.
    virtual int64_t piece_bytes() const = 0;

    // Pieces [begin, end) of out [rows][outputs].
    virtual void multiply(const void* prepared, int64_t rows, void* out, int64_t begin, int64_t end) const = 0;

    // How many pieces `multiply_gated` has for so many rows; 0 if it cannot be called.
    virtual int64_t gated_pieces(int64_t) const { return 0; }

    // Pieces [begin, end) of out [rows][outputs / 2] = silu(gate) * up, the outputs being gates first, then ups.
    virtual void multiply_gated(const void*, int64_t, void*, int64_t, int64_t) const {}

    const Element element;  // of the rows and the result
    const int64_t inputs;
    const int64_t outputs;
};

class Int8Product final : public Product {
  public:
    Int8Product(Element element, int64_t inputs, Int8Weights weights)
        : Product(element, inputs, weights.outputs), weights_(weights) {}

    int64_t prepared_bytes(int64_t rows) const override {
        return Int8Layout::bytes(rows, weights_.depth) + rows * static_cast<int64_t>(sizeof(float));
    }

    void prepare(Rows x, int64_t rows, void* prepared, int64_t begin, int64_t end) const override {
        int8_quantize(x, element, inputs, weights_.depth, Int8Layout(rows, weights_.depth), bytes(prepared),
                      scales(prepared, rows), begin, end);
    }

    int64_t pieces() const override { return round_up(outputs, kPanel) / kPanel; }

    int64_t piece_bytes() const override { return kPanel * weights_.depth; }

    void multiply(const void* prepared, int64_t rows, void* out, int64_t begin, int64_t end) const override {
        void* p = const_cast<void*>(prepared);
        int8_product(bytes(p), scales(p, rows), rows, weights_, element, out, begin, end);
    }

    int64_t gated_pieces(int64_t rows) const override { return int8_gates(rows, weights_) ? outputs / (2 * kPanel) : 0; }

    void multiply_gated(const void* prepared, int64_t rows, void* out, int64_t begin, int64_t end) const override {
        void* p = const_cast<void*>(prepared);
        int8_gated_product(bytes(p), scales(p, rows), rows, weights_, element, out, begin, end);
    }

  private:
    // Quantised rows first, then their scales; the depth keeps these aligned.
    static uint8_t* bytes(void* prepared) { return static_cast<uint8_t*>(prepared); }
    float* scales(void* prepared, int64_t rows) const {
        return reinterpret_cast<float*>(bytes(prepared) + Int8Layout::bytes(rows, weights_.depth));
    }

    const Int8Weights weights_;
};

// Few rows read the codes as they are; many have them written out as int8, some panels at a time, for the int8 product.
class Int4Product final : public Product {
  public:
    Int4Product(Element element, int64_t inputs, Int4Weights weights, const Int4Loops& loops)
        : Product(element, inputs, weights.outputs), weights_(weights), loops_(loops) {}

    int64_t prepared_bytes(int64_t rows) const override {
        return Int8Layout::bytes(rows, weights_.depth) + rows * static_cast<int64_t>(sizeof(float)) + sums_bytes(rows) + 64;
    }

    void prepare(Rows x, int64_t rows, void* prepared, int64_t begin, int64_t end) const override {
        const View v = view(prepared, rows);
        if (expands(rows))
            int8_quantize(x, element, inputs, weights_.depth, Int8Layout(rows, weights_.depth), v.bytes, v.scales, begin,
                          end);
        else
            loops_.quantize(x, element, inputs, weights_.depth, reinterpret_cast<int8_t*>(v.bytes), v.scales, v.sums, begin,
                            end);
    }

    int64_t pieces() const override { return round_up(outputs, kPanel) / kPanel; }

    int64_t piece_bytes() const override { return kPanel * weights_.depth / 2; }

    void multiply(const void* prepared, int64_t rows, void* out, int64_t begin, int64_t end) const override {
        const View v = view(const_cast<void*>(prepared), rows);
        if (!expands(rows))
            return loops_.product(reinterpret_cast<int8_t*>(v.bytes), v.scales, v.sums, rows, weights_, element, out, begin,
                                  end);
        const Int4Weights& w = weights_;
        const int64_t most = std::max<int64_t>(1, kExpandedBytes / (kPanel * w.depth));
        const std::unique_ptr<Line[]> room(new Line[std::min(most, end - begin) * kPanel * w.depth / 64]);
        int8_t* expanded = room[0].bytes;
        for (int64_t panel = begin; panel < end; panel += most) {
            const int64_t until = std::min(panel + most, end);
            loops_.expand(w, panel, until, expanded);
            // The product counts panels from the first of the layer.
            const Int8Weights as_int8{expanded - panel * kPanel * w.depth, w.scales, w.shift, w.bias, w.outputs, w.depth};
            int8_product(v.bytes, v.scales, rows, as_int8, element, out, panel, until);
        }
    }

  private:
    struct alignas(64) Line {
        int8_t bytes[64];
    };
    struct View {
        uint8_t* bytes;  // of the rows
        float* scales;   // [rows]
        GroupSum* sums;  // [rows][depth / kInt4Group], for few rows
    };

    bool expands(int64_t rows) const {
        return loops_.expand != nullptr && rows >= (allowed(Instructions::amx_int8) ? kExpandRowsForAmx : kExpandRows);
    }

    int64_t sums_bytes(int64_t rows) const {
        return rows * (weights_.depth / kInt4Group) * static_cast<int64_t>(sizeof(GroupSum));
    }

    View view(void* prepared, int64_t rows) const {
        uint8_t* bytes = static_cast<uint8_t*>(prepared);
        uint8_t* sums = bytes + Int8Layout::bytes(rows, weights_.depth);
        return {bytes, reinterpret_cast<float*>(sums + sums_bytes(rows)), reinterpret_cast<GroupSum*>(sums)};
    }

    const Int4Weights weights_;
    const Int4Loops& loops_;
};

class Bf16Product final : public Product {
  public:
    Bf16Product(int64_t inputs, Bf16Weights weights) : Product(Element::bf16, inputs, weights.outputs), weights_(weights) {}

    int64_t prepared_bytes(int64_t rows) const override { return rows * weights_.depth * 2; }

    bool takes_rows() const override { return inputs == weights_.depth; }

    void prepare(Rows x, int64_t, void* prepared, int64_t begin, int64_t end) const override {
        for (int64_t row = begin; row < end; ++row) {
            uint16_t* to = static_cast<uint16_t*>(prepared) + row * weights_.depth;
            std::memcpy(to, static_cast<const uint16_t*>(x.data) + row * x.outer, inputs * 2);
            std::memset(to + inputs, 0, (weights_.depth - inputs) * 2);
        }
    }

    int64_t pieces() const override { return round_up(outputs, kPanel) / kPanel; }

    int64_t piece_bytes() const override { return kPanel * weights_.depth * 2; }

    void multiply(const void* prepared, int64_t rows, void* out, int64_t begin, int64_t end) const override {
        bf16_multiply(static_cast<const uint16_t*>(prepared), rows, weights_, static_cast<uint16_t*>(out), begin, end);
    }

  private:
    const Bf16Weights weights_;
};

}  // namespace headgate
