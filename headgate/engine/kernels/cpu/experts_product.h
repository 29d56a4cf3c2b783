// The product of an expert's rows with one of its matrices, in whichever format that is.
#pragma once

#include <algorithm>

#include "choice.h"
#include "experts.h"
#include "experts_sort.h"
#include "int4.h"
#include "int8.h"
#include "mxfp4.h"

namespace headgate {

// Rows of activations as a product reads them.
struct Prepared {
    const void* rows;
    const float* scales;   // null in floating point
    const GroupSum* sums;  // null unless the weights are 4-bit
};

inline int64_t element_bytes(Element element) { return element == Element::f32 ? 4 : 2; }

inline FloatProduct float_product(Element element) {
    if (element == Element::bf16)
        if (const FloatProduct product = bf16_product()) return product;
    return expert_loops(element).product;
}

// The products of one layer. Rows, sums and everything else is the caller's.
class ExpertProducts {
  public:
    explicit ExpertProducts(const ExpertLayer& layer)
        : format_(layer.format),
          element_bytes_(element_bytes(layer.element)),
          panel_(panel_of(layer.format)),
          loops_(expert_loops(layer.element)),
          floating_(float_product(layer.element)),
          few_(few_mxfp4(layer.element)) {}

    // Whether rows are rounded to int8.
    bool quantized() const { return format_ == ExpertFormat::int8 || format_ == ExpertFormat::int4; }

    // Plain weights times plain rows, as the router's are in every format.
    void floating(FloatRows x, const void* packed, int64_t depth, int64_t begin, int64_t end, FloatSums out) const {
        floating_(x, packed, depth, begin, end, out);
    }

    // What the product of a span's rows reads them with.
    Int8Layout layout(const ExpertSpan& s, int64_t depth) const {
        return format_ == ExpertFormat::int8 || s.expand ? Int8Layout(s.end - s.begin, depth) : Int8Layout(depth);
    }

    // Whether so many rows of an expert are worth to have its 4-bit weights written out as int8.
    bool expands(int64_t rows) const {
        return format_ == ExpertFormat::int4 && int4_loops()->expand != nullptr &&
               rows >= (allowed(Instructions::amx_int8) ? kExpandRowsForAmx : kExpandRows);
    }

    // How many of a matrix's panels are written out at a time; all, where none need be.
    int64_t expanded_panels(const ExpertMatrix& m) const {
        if (format_ != ExpertFormat::mxfp4) return m.panels;
        return std::clamp<int64_t>(kExpandedPanelBytes / (m.depth * panel_ * element_bytes_), 1, m.panels);
    }

    // Panels [begin, end) of the matrix of a span's expert times `count` of its rows, and its bias: out
    // [count][(end - begin) * panel_]. `expanded` has room for the panels if they are to be written out.
    void multiply(const ExpertMatrix& m, const ExpertSpan& s, const Prepared& x, int64_t count, int64_t begin, int64_t end,
                  int8_t* expanded, float* out) const {
        multiply_weights(m, s, x, count, begin, end, expanded, out);
        if (m.bias != nullptr)
            loops_.shift(out, count, (end - begin) * panel_, m.bias + (s.expert * m.panels + begin) * panel_);
    }

  private:
    static constexpr int64_t kExpandedPanelBytes = 512 * 1024;  // of panels in MXFP4 that are written out at a time
    static constexpr int64_t kGroupsAtOnce = 8;                  // of one panel, for few rows

    void multiply_weights(const ExpertMatrix& m, const ExpertSpan& s, const Prepared& x, int64_t count, int64_t begin,
                          int64_t end, int8_t* expanded, float* out) const {
        const int64_t panel = s.expert * m.panels + begin, panels = end - begin;
        if (format_ == ExpertFormat::mxfp4) return multiply_mxfp4(m, panel, panels, {x.rows, count, m.depth}, expanded, out);
        if (!quantized()) {
            floating_({x.rows, count, m.depth}, m.packed, m.depth, panel, panel + panels, {out, panels * panel_, false});
            return;
        }
        const float* scales = m.scales + panel * kPanel;
        const int32_t* shift = m.shift + panel * kPanel;
        const int8_t* packed = static_cast<const int8_t*>(m.packed) + panel * kPanel * m.depth;
        if (format_ == ExpertFormat::int4) {
            const auto* codes = static_cast<const uint8_t*>(m.packed) + panel * (m.depth / kInt4Group) * kInt4Block;
            const Int4Weights w{codes, scales, shift, nullptr, panels * kPanel, m.depth};
            if (!s.expand) {
                int4_loops()->product(static_cast<const int8_t*>(x.rows), x.scales, x.sums, count, w, Element::f32, out, 0,
                                      panels);
                return;
            }
            int4_loops()->expand(w, 0, panels, expanded);
            packed = expanded;
        }
        int8_product(static_cast<const uint8_t*>(x.rows), x.scales, count,
                     {packed, scales, shift, nullptr, panels * kPanel, m.depth}, Element::f32, out, 0, panels);
    }

    void multiply_mxfp4(const ExpertMatrix& m, int64_t panel, int64_t panels, FloatRows x, int8_t* expanded, float* out) const {
        const int64_t groups = m.depth / kMxfp4Group, stride = panels * panel_;
        const auto* codes = static_cast<const uint8_t*>(m.packed) + panel * groups * kMxfp4Block;
        if (x.count > kMoreRows) {
            loops_.expand(codes, panels * groups, expanded);
            return floating_(x, expanded, m.depth, 0, panels, {out, stride, false});
        }
        if (few_ != nullptr && x.count <= kFewMxfp4)
            return few_(x, codes, groups, panels, reinterpret_cast<float*>(expanded), out);
        // Few rows are done before what was written out for them leaves the first-level cache.
        for (int64_t p = 0; p < panels; ++p)
            for (int64_t g = 0; g < groups; g += kGroupsAtOnce) {
                const int64_t some = std::min(kGroupsAtOnce, groups - g);
                const auto* rows = static_cast<const char*>(x.rows) + g * kMxfp4Group * element_bytes_;
                loops_.expand(codes + (p * groups + g) * kMxfp4Block, some, expanded);
                floating_({rows, x.count, x.stride}, expanded, some * kMxfp4Group, 0, 1, {out + p * panel_, stride, g > 0});
            }
    }

    const ExpertFormat format_;
    const int64_t element_bytes_;
    const int64_t panel_;
    const ExpertLoops& loops_;
    const FloatProduct floating_;
    const FewMxfp4 few_;
};

}  // namespace headgate
