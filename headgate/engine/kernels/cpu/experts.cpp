// One mixture-of-experts layer, divided among torch's threads.
#include "experts.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "choice.h"
#include "int4.h"
#include "int8.h"

namespace headgate {
namespace {

// Working memory of a task: what fits a core's second-level cache beside the weights that pass through it.
constexpr int64_t kRowBytes = 512 * 1024;  // gathered rows
constexpr int64_t kSumBytes = 256 * 1024;  // sums of a block of outputs, for all tokens
constexpr int64_t kOutBytes = 64 * 1024;   // results of a product
constexpr int64_t kPanelsAtOnce = 8;
// Tasks per thread: many enough that the threads end together.
constexpr int64_t kTasksPerThread = 8;
// Below about this many elements waking a second thread costs more than it saves.
constexpr int64_t kElementsPerThread = 16 * 1024;

// Memory that is not cleared, aligned for every vector width.
template <typename T>
class Buffer {
public:
    explicit Buffer(int64_t count)
        : memory_(static_cast<T*>(::operator new(std::max<int64_t>(count, 1) * sizeof(T), std::align_val_t{64}))) {}
    ~Buffer() { ::operator delete(memory_, std::align_val_t{64}); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* get() const { return memory_; }

private:
    T* memory_;
};

// Rows that are all for the same expert.
struct Span {
    int64_t expert;
    int64_t begin;
    int64_t end;
    bool expand;  // its 4-bit weights are written out as int8 first, because there are many rows
};

// Rows of activations as a product reads them.
struct Prepared {
    const void* rows;
    const float* scales;   // null in floating point
    const GroupSum* sums;  // null unless the weights are 4-bit
};

// int8 as unsigned bytes, 128 added, which is the form int8_product wants.
void flip(uint8_t* bytes, int64_t count) {
    for (int64_t i = 0; i < count; ++i) bytes[i] ^= 0x80;
}

int64_t element_bytes(Element element) { return element == Element::f32 ? 4 : 2; }

FloatProduct float_product(Element element) {
    if (element == Element::bf16)
        if (const FloatProduct product = bf16_product()) return product;
    return expert_loops(element).product;
}

// Whoever is done takes the next of `count` tasks.
template <typename F>
void share(int64_t count, const F& work) {
    const int64_t workers = std::min<int64_t>(count, at::get_num_threads());
    std::atomic<int64_t> next{0};
    at::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
        for (int64_t worker = begin; worker < end; ++worker)
            work([&] { return next.fetch_add(1, std::memory_order_relaxed); });
    });
}

class Step {
public:
    Step(const ExpertLayer& layer, const void* x, int64_t tokens, void* out)
        : layer_(layer),
          x_(static_cast<const char*>(x)),
          out_(static_cast<char*>(out)),
          tokens_(tokens),
          picks_(layer.per_token + layer.shared),
          panel_(panel_of(layer.format)),
          element_bytes_(element_bytes(layer.element)),
          quantized_(layer.format != ExpertFormat::floating),
          row_bytes_(layer.gate_up.depth * (quantized_ ? 1 : element_bytes_)),
          groups_(layer.format == ExpertFormat::int4 ? layer.gate_up.depth / kInt4Group : 0),
          hidden_groups_(layer.format == ExpertFormat::int4 ? layer.down.depth / kInt4Group : 0),
          hidden_row_(quantized_ ? layer.gate_up.panels * panel_ / 2 : layer.down.depth),
          loops_(expert_loops(layer.element)),
          product_(float_product(layer.element)),
          ids_(tokens * picks_),
          weights_(tokens * picks_),
          rows_(tokens * row_bytes_),
          row_scales_(tokens),
          row_sums_(tokens * groups_),
          sorted_tokens_(tokens * picks_),
          sorted_weights_(tokens * picks_),
          hidden_(tokens * picks_ * hidden_row_ * element_bytes_),
          hidden_bytes_(quantized_ ? tokens * picks_ * layer.down.depth : 0),
          hidden_scales_(quantized_ ? tokens * picks_ : 0),
          hidden_sums_(tokens * picks_ * hidden_groups_) {}

    void run() {
        over_tokens(tokens_, layer_.hidden * 4, [&](int64_t begin, int64_t end) { choose(begin, end); });
        sort();
        gate_up();
        if (quantized_)
            over_tokens(tokens_ * picks_, layer_.width, [&](int64_t begin, int64_t end) { quantize_hidden(begin, end); });
        down();
    }

private:
    template <typename F>
    void over_tokens(int64_t count, int64_t work, const F& f) {
        at::parallel_for(0, count, std::max<int64_t>(1, kElementsPerThread / work), f);
    }

    // Rows as the first product reads them, and each token's experts with their weights.
    void choose(int64_t begin, int64_t end) {
        constexpr int64_t kBlock = 16;
        const int64_t outputs = layer_.count + (layer_.shared > 0 ? 1 : 0);
        const int64_t panels = round_up(outputs, kFloatPanel) / kFloatPanel, depth = round_up(layer_.hidden, kFloatDepth);
        const int64_t bytes = layer_.hidden * element_bytes_, padded = depth * element_bytes_;
        const Buffer<float> logits(kBlock * panels * kFloatPanel);
        const Buffer<char> block(bytes == padded ? 0 : kBlock * padded);
        for (int64_t first = begin; first < end; first += kBlock) {
            const int64_t count = std::min(kBlock, end - first);
            const char* rows = x_ + first * bytes;
            if (bytes != padded) {
                std::memset(block.get(), 0, count * padded);
                for (int64_t r = 0; r < count; ++r) std::memcpy(block.get() + r * padded, rows + r * bytes, bytes);
                rows = block.get();
            }
            product_(rows, count, layer_.router, depth, 0, panels, logits.get());
            for (int64_t r = 0; r < count; ++r)
                loops_.route(logits.get() + r * panels * kFloatPanel, layer_.count, layer_.per_token, layer_.shared,
                             layer_.normalize, ids_.get() + (first + r) * picks_, weights_.get() + (first + r) * picks_);
            if (!quantized_) std::memcpy(rows_.get() + first * padded, rows, count * padded);
        }
        if (quantized_)
            quantize({x_, layer_.hidden, 0, 1}, layer_.hidden, layer_.gate_up.depth, rows_.get(), row_scales_.get(),
                     row_sums_.get(), begin, end);
    }

    void quantize(Rows from, int64_t inputs, int64_t depth, void* q, float* scales, GroupSum* sums, int64_t begin,
                  int64_t end) const {
        if (layer_.format == ExpertFormat::int4)
            int4_loops()->quantize(from, layer_.element, inputs, depth, static_cast<int8_t*>(q), scales, sums, begin, end);
        else
            int8_quantize(from, layer_.element, inputs, depth, static_cast<uint8_t*>(q), scales, begin, end);
    }

    void quantize_hidden(int64_t begin, int64_t end) {
        const int64_t depth = layer_.down.depth;
        quantize({hidden_.get(), hidden_row_, 0, 1}, layer_.width, depth, hidden_bytes_.get(), hidden_scales_.get(),
                 hidden_sums_.get(), begin, end);
        for (const Span& s : spans_) {
            const int64_t from = std::max(begin, s.begin), to = std::min(end, s.end);
            if (s.expand && from < to) flip(hidden_bytes_.get() + from * depth, (to - from) * depth);
        }
    }

    // A counting sort of the choices by expert; within an expert tokens stay in order.
    void sort() {
        std::vector<int64_t> next(layer_.count + layer_.shared + 1);
        for (int64_t i = 0; i < tokens_ * picks_; ++i) ++next[ids_.get()[i] + 1];
        for (size_t e = 1; e < next.size(); ++e) {
            if (next[e] > 0) spans_.push_back({static_cast<int64_t>(e) - 1, next[e - 1], next[e - 1] + next[e], expands(next[e])});
            next[e] += next[e - 1];
        }
        for (int64_t i = 0; i < tokens_ * picks_; ++i) {
            const int64_t place = next[ids_.get()[i]]++;
            sorted_tokens_.get()[place] = static_cast<int32_t>(i / picks_);
            sorted_weights_.get()[place] = weights_.get()[i];
        }
    }

    bool expands(int64_t rows) const {
        return layer_.format == ExpertFormat::int4 && int4_loops()->expand != nullptr &&
               rows >= (allowed(Instructions::amx_int8) ? kExpandRowsForAmx : kExpandRows);
    }

    // Panels [begin, end) of the matrix of a span's expert times `count` of its rows: out [count][(end - begin) * panel_].
    // `expanded` has room for the panels in int8 if the span wants that.
    void multiply(const ExpertMatrix& m, const Span& s, const Prepared& x, int64_t count, int64_t begin, int64_t end,
                  int8_t* expanded, float* out) const {
        const int64_t panel = s.expert * m.panels + begin, panels = end - begin;
        if (!quantized_) {
            product_(x.rows, count, m.packed, m.depth, panel, panel + panels, out);
            return;
        }
        const float* scales = m.scales + panel * kPanel;
        const int32_t* shift = m.shift + panel * kPanel;
        const int8_t* packed = static_cast<const int8_t*>(m.packed) + panel * kPanel * m.depth;
        if (layer_.format == ExpertFormat::int4) {
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

    // Bytes of `panels` panels written out as int8.
    int64_t expanded_bytes(const ExpertMatrix& m, int64_t panels) const {
        const bool any = std::any_of(spans_.begin(), spans_.end(), [](const Span& s) { return s.expand; });
        return any ? panels * kPanel * m.depth : 0;
    }

    // How many panels of `rows` results fit kOutBytes.
    int64_t panels_at_once(int64_t rows) const {
        return std::clamp<int64_t>(kOutBytes / (std::max<int64_t>(1, rows) * panel_ * 4), 1, kPanelsAtOnce);
    }

    void gate_up() {
        // Pieces of an expert's rows that fit the cache, each times a run of panels.
        const int64_t most = std::max<int64_t>(16, kRowBytes / row_bytes_), panels = layer_.gate_up.panels;
        std::vector<Span> pieces;
        int64_t longest = 0;
        for (const Span& s : spans_)
            for (int64_t row = s.begin; row < s.end; row += most) {
                pieces.push_back({s.expert, row, std::min(row + most, s.end), s.expand});
                longest = std::max(longest, pieces.back().end - row);
            }
        const int64_t count = static_cast<int64_t>(pieces.size()), wanted = at::get_num_threads() * kTasksPerThread;
        const int64_t runs = std::clamp<int64_t>((wanted + count - 1) / std::max<int64_t>(1, count), 1, panels);
        share(count * runs, [&](const auto& next) {
            const Buffer<char> gathered(longest * row_bytes_);
            const Buffer<float> scales(longest);
            const Buffer<GroupSum> sums(longest * groups_);
            const Buffer<int8_t> expanded(expanded_bytes(layer_.gate_up, kPanelsAtOnce));
            const Buffer<float> results(std::max(kOutBytes / 4, longest * panel_));
            for (int64_t task = next(); task < count * runs; task = next()) {
                const Span& s = pieces[task / runs];
                const int64_t run = task % runs, rows = s.end - s.begin;
                for (int64_t r = 0; r < rows; ++r) {
                    const int64_t token = sorted_tokens_.get()[s.begin + r];
                    std::memcpy(gathered.get() + r * row_bytes_, rows_.get() + token * row_bytes_, row_bytes_);
                    scales.get()[r] = row_scales_.get()[token];
                    std::copy_n(row_sums_.get() + token * groups_, groups_, sums.get() + r * groups_);
                }
                if (s.expand) flip(reinterpret_cast<uint8_t*>(gathered.get()), rows * row_bytes_);
                const Prepared prepared{gathered.get(), scales.get(), sums.get()};
                const int64_t end = panels * (run + 1) / runs, step = panels_at_once(rows);
                for (int64_t begin = panels * run / runs; begin < end; begin += step) {
                    const int64_t stop = std::min(begin + step, end);
                    multiply(layer_.gate_up, s, prepared, rows, begin, stop, expanded.get(), results.get());
                    char* to = hidden_.get() + (s.begin * hidden_row_ + begin * panel_ / 2) * element_bytes_;
                    loops_.activate(results.get(), rows, stop - begin, panel_, to, hidden_row_);
                }
                if (run == runs - 1) clear_padding(s);
            }
        });
    }

    // What the second product reads past the outputs of the first one.
    void clear_padding(const Span& s) {
        const int64_t filled = layer_.gate_up.panels * panel_ / 2;
        if (filled >= hidden_row_) return;
        for (int64_t row = s.begin; row < s.end; ++row)
            std::memset(hidden_.get() + (row * hidden_row_ + filled) * element_bytes_, 0,
                        (hidden_row_ - filled) * element_bytes_);
    }

    void down() {
        // A task owns some of the outputs for all tokens: experts add to them one after the other, without a second
        // thread and without an intermediate result per choice.
        const int64_t panels = layer_.down.panels;
        const int64_t wanted = (panels + at::get_num_threads() * kTasksPerThread - 1) / (at::get_num_threads() * kTasksPerThread);
        const int64_t fitting = std::max<int64_t>(1, kSumBytes / (tokens_ * panel_ * 4));
        const int64_t each = std::min(wanted, fitting), count = (panels + each - 1) / each;
        const int64_t most = std::max<int64_t>(16, kOutBytes / (each * panel_ * 4));
        const char* rows = quantized_ ? reinterpret_cast<const char*>(hidden_bytes_.get()) : hidden_.get();
        const int64_t bytes = layer_.down.depth * (quantized_ ? 1 : element_bytes_);
        share(count, [&](const auto& next) {
            const Buffer<float> sums(tokens_ * each * panel_);
            const Buffer<float> results(std::min(most, tokens_) * each * panel_);
            const Buffer<int8_t> expanded(expanded_bytes(layer_.down, each));
            for (int64_t task = next(); task < count; task = next()) {
                const int64_t begin = task * each, end = std::min(begin + each, panels), width = (end - begin) * panel_;
                std::fill_n(sums.get(), tokens_ * width, 0.0f);
                for (const Span& s : spans_)
                    for (int64_t row = s.begin; row < s.end; row += most) {
                        const int64_t height = std::min(most, s.end - row);
                        const Prepared prepared{rows + row * bytes, hidden_scales_.get() + row,
                                                hidden_sums_.get() + row * hidden_groups_};
                        multiply(layer_.down, s, prepared, height, begin, end, expanded.get(), results.get());
                        loops_.add(results.get(), sorted_tokens_.get() + row, sorted_weights_.get() + row, height, width,
                                   sums.get());
                    }
                loops_.round(sums.get(), tokens_, width, std::min(width, layer_.hidden - begin * panel_),
                             out_ + begin * panel_ * element_bytes_, layer_.hidden);
            }
        });
    }

    const ExpertLayer& layer_;
    const char* x_;
    char* out_;
    int64_t tokens_;
    int64_t picks_;  // per token
    int64_t panel_;
    int64_t element_bytes_;
    bool quantized_;
    int64_t row_bytes_;      // of a row as the first product reads it
    int64_t groups_;         // of such a row, if the weights are 4-bit
    int64_t hidden_groups_;  // of a row as the second product reads it
    int64_t hidden_row_;  // elements between rows of hidden_
    const ExpertLoops& loops_;
    FloatProduct product_;
    Buffer<int32_t> ids_;
    Buffer<float> weights_;
    Buffer<char> rows_;
    Buffer<float> row_scales_;
    Buffer<GroupSum> row_sums_;
    std::vector<Span> spans_;
    Buffer<int32_t> sorted_tokens_;
    Buffer<float> sorted_weights_;
    Buffer<char> hidden_;           // silu(gate) * up of each choice, sorted by expert, in the element type
    Buffer<uint8_t> hidden_bytes_;  // the same in int8
    Buffer<float> hidden_scales_;
    Buffer<GroupSum> hidden_sums_;
};

}  // namespace

int64_t panel_of(ExpertFormat format) { return format == ExpertFormat::floating ? kFloatPanel : kPanel; }

void run_experts(const ExpertLayer& layer, const void* x, int64_t tokens, void* out) {
    if (tokens > 0) Step(layer, x, tokens, out).run();
}

}  // namespace headgate
