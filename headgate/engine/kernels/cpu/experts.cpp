// One mixture-of-experts layer, divided among the threads of a team; what they multiply is in experts_product.h.
#include "experts.h"

#include <algorithm>
#include <cstring>

#include "experts_product.h"
#include "experts_sort.h"
#include "int4.h"
#include "int8.h"

namespace headgate {
namespace {

// Working memory of a task: what fits a core's second-level cache beside the weights that pass through it.
constexpr int64_t kRowBytes = 512 * 1024;  // gathered rows
constexpr int64_t kSumBytes = 256 * 1024;  // sums of a block of outputs, for all tokens
constexpr int64_t kOutBytes = 64 * 1024;   // results of a product
constexpr int64_t kPanelsAtOnce = 8;
constexpr int64_t kFewRows = 16;  // that are not divided
// Tasks per thread: many enough that the threads end together.
constexpr int64_t kTasksPerThread = 8;

// Arrays one after the other, each aligned for every vector width.
class Room {
  public:
    explicit Room(char* memory) : memory_(reinterpret_cast<uintptr_t>(memory)) {}

    template <typename T>
    T* take(int64_t count) {
        T* at = reinterpret_cast<T*>(memory_ + bytes_);
        bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
        return at;
    }

    int64_t bytes() const { return bytes_; }

  private:
    uintptr_t memory_;
    int64_t bytes_ = 0;
};

// The rows of a step in one layer, and where in `memory` everything lies; all threads make it with the same arguments.
class Mixture {
  public:
    Mixture(const ExpertLayer& layer, int64_t tokens, int64_t places, char* memory)
        : layer_(layer),
          tokens_(tokens),
          products_(layer),
          picks_(layer.per_token + layer.shared),
          tasks_(places * kTasksPerThread),
          panel_(panel_of(layer.format)),
          element_bytes_(element_bytes(layer.element)),
          quantized_(products_.quantized()),
          row_bytes_(layer.gate_up.depth * (quantized_ ? 1 : element_bytes_)),
          groups_(layer.format == ExpertFormat::int4 ? layer.gate_up.depth / kInt4Group : 0),
          hidden_groups_(layer.format == ExpertFormat::int4 ? layer.down.depth / kInt4Group : 0),
          hidden_row_(quantized_ ? layer.gate_up.panels * panel_ / 2 : layer.down.depth),
          router_panels_(round_up(layer.count + (layer.shared > 0 ? 1 : 0), kFloatPanel) / kFloatPanel),
          longest_(std::min(tokens, std::max(kFewRows, kRowBytes / row_bytes_))),
          down_panels_(std::min({(layer.down.panels + tasks_ - 1) / tasks_,
                                 std::max<int64_t>(1, kSumBytes / (tokens * panel_ * 4)),
                                 products_.expanded_panels(layer.down)})),
          down_rows_(std::min(tokens, std::max(kFewRows, kOutBytes / (down_panels_ * panel_ * 4)))),
          loops_(expert_loops(layer.element)) {
        Room room(memory);
        const int64_t choices = tokens * picks_, experts = layer.count + layer.shared;
        sorted_ = room.take<Sorted>(1);
        next_ = room.take<int64_t>(experts + 1);
        pieces_ = room.take<ExpertSpan>(experts + choices / longest_);
        down_pieces_ = room.take<ExpertSpan>(experts + choices / down_rows_);
        ids_ = room.take<int32_t>(choices);
        weights_ = room.take<float>(choices);
        rows_ = room.take<char>(tokens * row_bytes_);
        row_scales_ = room.take<float>(tokens);
        row_sums_ = room.take<GroupSum>(tokens * groups_);
        sorted_tokens_ = room.take<int32_t>(choices);
        sorted_weights_ = room.take<float>(choices);
        hidden_ = room.take<char>(choices * hidden_row_ * element_bytes_);
        // Each piece of the second product may have a block of rows that is not full.
        const int64_t padded = choices + choices / kFewRows + experts + choices / down_rows_;
        hidden_bytes_ = room.take<uint8_t>(quantized_ ? padded * layer.down.depth : 0);
        hidden_scales_ = room.take<float>(quantized_ ? choices : 0);
        hidden_sums_ = room.take<GroupSum>(choices * hidden_groups_);
        scratch_ = room.take<char>(0);
        shared_bytes_ = room.bytes();
        Room own(nullptr);
        scratch(own);
        scratch_bytes_ = own.bytes();
    }

    int64_t bytes(int64_t places) const { return shared_bytes_ + places * scratch_bytes_; }

    // Rows as the first product reads them, and each token's experts with their weights.
    void choose(const Member& member, const char* x, int64_t begin, int64_t end) const {
        const Scratch own = scratch_of(member);
        const int64_t depth = round_up(layer_.hidden, kFloatDepth);
        const int64_t bytes = layer_.hidden * element_bytes_, padded = depth * element_bytes_;
        for (int64_t first = begin; first < end; first += kFewRows) {
            const int64_t count = std::min(kFewRows, end - first);
            const char* rows = x + first * bytes;
            if (bytes != padded) {
                std::memset(own.rows, 0, count * padded);
                for (int64_t r = 0; r < count; ++r) std::memcpy(own.rows + r * padded, rows + r * bytes, bytes);
                rows = own.rows;
            }
            products_.floating({rows, count, depth}, layer_.router, depth, 0, router_panels_,
                               {own.results, router_panels_ * kFloatPanel, false});
            if (layer_.router_bias != nullptr)
                loops_.shift(own.results, count, router_panels_ * kFloatPanel, layer_.router_bias);
            for (int64_t r = 0; r < count; ++r)
                loops_.route(own.results + r * router_panels_ * kFloatPanel, layer_.count, layer_.per_token, layer_.shared,
                             layer_.normalize, ids_ + (first + r) * picks_, weights_ + (first + r) * picks_);
            if (!quantized_) std::memcpy(rows_ + first * padded, rows, count * padded);
        }
        const Rows all{x, layer_.hidden, 0, 1};
        const int64_t width = layer_.gate_up.depth;
        if (layer_.format == ExpertFormat::int8)
            int8_quantize(all, layer_.element, layer_.hidden, width, Int8Layout(width), reinterpret_cast<uint8_t*>(rows_),
                          row_scales_, begin, end);
        else if (quantized_)
            int4_loops()->quantize(all, layer_.element, layer_.hidden, width, reinterpret_cast<int8_t*>(rows_), row_scales_,
                                   row_sums_, begin, end);
    }

    void sort() const {
        const Choices choices{ids_, weights_, tokens_ * picks_, picks_};
        const auto expanded = [&](int64_t rows) { return products_.expands(rows); };
        *sorted_ = sort_by_expert(choices, layer_.count + layer_.shared, longest_, down_rows_, expanded, next_,
                                  {pieces_, down_pieces_, sorted_tokens_, sorted_weights_});
    }

    void run(Member& member, char* out, const std::function<void()>& then) const {
        gate_up(member);
        if (quantized_)
            member.share(tokens_ * picks_, [&](int64_t begin, int64_t end) { quantize_hidden(begin, end); });
        down(member, out, then);
    }

  private:
    // A thread's own memory.
    struct Scratch {
        char* rows;  // gathered, or padded for the router
        float* scales;
        GroupSum* sums;
        int8_t* expanded;  // panels of weights
        float* results;
        float* totals;
    };

    Scratch scratch(Room& room) const {
        const int64_t depth = round_up(layer_.hidden, kFloatDepth), down_width = down_panels_ * panel_;
        const int64_t gathered = quantized_ ? Int8Layout::bytes(longest_, layer_.gate_up.depth) : longest_ * row_bytes_;
        const int64_t results = std::max({kOutBytes / 4, longest_ * panel_, kFewRows * router_panels_ * kFloatPanel});
        int64_t expanded = std::max(kPanelsAtOnce * layer_.gate_up.depth, down_panels_ * layer_.down.depth) * kPanel;
        if (layer_.format == ExpertFormat::mxfp4)
            expanded = std::max(element_bytes_ * panel_, kFewMxfp4 * 4) *
                       std::max(products_.expanded_panels(layer_.gate_up) * layer_.gate_up.depth,
                                down_panels_ * layer_.down.depth);
        else if (!products_.expands(tokens_))
            expanded = 0;
        return {room.take<char>(std::max(gathered, kFewRows * depth * element_bytes_)),
                room.take<float>(longest_),
                room.take<GroupSum>(longest_ * groups_),
                room.take<int8_t>(expanded),
                room.take<float>(std::max(results, down_rows_ * down_width)),
                room.take<float>(tokens_ * down_width)};
    }

    Scratch scratch_of(const Member& member) const {
        Room room(scratch_ + member.number() * scratch_bytes_);
        return scratch(room);
    }

    void quantize_hidden(int64_t begin, int64_t end) const {
        const int64_t depth = layer_.down.depth;
        for (const ExpertSpan* s = down_pieces_; s < down_pieces_ + sorted_->down_pieces; ++s) {
            const int64_t from = std::max(begin, s->begin), to = std::min(end, s->end);
            if (from >= to) continue;
            const Rows rows{hidden_ + s->begin * hidden_row_ * element_bytes_, hidden_row_, 0, 1};
            uint8_t* q = hidden_bytes_ + s->place * depth;
            float* scales = hidden_scales_ + s->begin;
            if (layer_.format == ExpertFormat::int8 || s->expand)
                int8_quantize(rows, layer_.element, layer_.width, depth, products_.layout(*s, depth), q, scales,
                              from - s->begin, to - s->begin);
            else
                int4_loops()->quantize(rows, layer_.element, layer_.width, depth, reinterpret_cast<int8_t*>(q), scales,
                                       hidden_sums_ + s->begin * hidden_groups_, from - s->begin, to - s->begin);
        }
    }

    // How many panels of `rows` results fit kOutBytes.
    int64_t panels_at_once(int64_t rows) const {
        const int64_t most = std::min(kPanelsAtOnce, products_.expanded_panels(layer_.gate_up));
        return std::clamp<int64_t>(kOutBytes / (rows * panel_ * 4), 1, most);
    }

    void gate_up(Member& member) const {
        const Scratch own = scratch_of(member);
        const int64_t count = sorted_->pieces, panels = layer_.gate_up.panels;
        const int64_t runs = std::clamp<int64_t>((tasks_ + count - 1) / count, 1, panels);
        member.share(count * runs, count * runs, [&](int64_t first, int64_t last) {
            for (int64_t task = first; task < last; ++task) {
                const ExpertSpan& s = pieces_[task / runs];
                const int64_t run = task % runs, rows = s.end - s.begin;
                gather(s, own);
                const int64_t end = panels * (run + 1) / runs, step = panels_at_once(rows);
                for (int64_t begin = panels * run / runs; begin < end; begin += step) {
                    const int64_t stop = std::min(begin + step, end);
                    products_.multiply(layer_.gate_up, s, {own.rows, own.scales, own.sums}, rows, begin, stop, own.expanded,
                                       own.results);
                    char* to = hidden_ + (s.begin * hidden_row_ + begin * panel_ / 2) * element_bytes_;
                    if (layer_.limit > 0)
                        loops_.activate_clamped(own.results, rows, stop - begin, panel_, layer_.limit, to, hidden_row_);
                    else
                        loops_.activate(own.results, rows, stop - begin, panel_, to, hidden_row_);
                }
                if (run == runs - 1) clear_padding(s);
            }
        });
    }

    // A span's rows, as the product wants them.
    void gather(const ExpertSpan& s, const Scratch& own) const {
        const int64_t rows = s.end - s.begin, depth = layer_.gate_up.depth;
        if (!quantized_) {
            for (int64_t r = 0; r < rows; ++r)
                std::memcpy(own.rows + r * row_bytes_, rows_ + sorted_tokens_[s.begin + r] * row_bytes_, row_bytes_);
            return;
        }
        const Int8Layout to = products_.layout(s, depth);
        // The int8 product takes bytes with 128 added, which the rows of 4-bit weights lack.
        const uint8_t flipped = s.expand ? 0x80 : 0;
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t token = sorted_tokens_[s.begin + r];
            const char* row = rows_ + token * row_bytes_;
            char* place = own.rows + to.place(r);
            for (int64_t k = 0; k < depth; k += kDepth, place += to.step())
                for (int64_t i = 0; i < kDepth; ++i) place[i] = static_cast<char>(row[k + i] ^ flipped);
            own.scales[r] = row_scales_[token];
            std::copy_n(row_sums_ + token * groups_, groups_, own.sums + r * groups_);
        }
    }

    // What the second product reads past the outputs of the first one.
    void clear_padding(const ExpertSpan& s) const {
        const int64_t filled = layer_.gate_up.panels * panel_ / 2;
        if (filled >= hidden_row_) return;
        for (int64_t row = s.begin; row < s.end; ++row)
            std::memset(hidden_ + (row * hidden_row_ + filled) * element_bytes_, 0, (hidden_row_ - filled) * element_bytes_);
    }

    // A task owns some of the outputs for all tokens: experts add to them one after the other, without a second thread and
    // without an intermediate result per choice.
    void down(Member& member, char* out, const std::function<void()>& then) const {
        const Scratch own = scratch_of(member);
        const int64_t panels = layer_.down.panels, count = (panels + down_panels_ - 1) / down_panels_;
        const char* rows = quantized_ ? reinterpret_cast<const char*>(hidden_bytes_) : hidden_;
        const int64_t bytes = layer_.down.depth * (quantized_ ? 1 : element_bytes_);
        const auto tasks = [&](int64_t first, int64_t last) {
            for (int64_t task = first; task < last; ++task) {
                const int64_t begin = task * down_panels_, end = std::min(begin + down_panels_, panels);
                const int64_t width = (end - begin) * panel_;
                std::fill_n(own.totals, tokens_ * width, 0.0f);
                for (const ExpertSpan* s = down_pieces_; s < down_pieces_ + sorted_->down_pieces; ++s) {
                    const int64_t row = s->begin, height = s->end - row;
                    const Prepared prepared{rows + (quantized_ ? s->place : row) * bytes, hidden_scales_ + row,
                                            hidden_sums_ + row * hidden_groups_};
                    products_.multiply(layer_.down, *s, prepared, height, begin, end, own.expanded, own.results);
                    loops_.add(own.results, sorted_tokens_ + row, sorted_weights_ + row, height, width, own.totals);
                }
                loops_.round(own.totals, tokens_, width, std::min(width, layer_.hidden - begin * panel_),
                             out + begin * panel_ * element_bytes_, layer_.hidden);
            }
        };
        member.share(count, count, tasks, then);
    }

    const ExpertLayer& layer_;
    const int64_t tokens_;
    const ExpertProducts products_;
    const int64_t picks_;  // per token
    const int64_t tasks_;  // that a product should come to
    const int64_t panel_;
    const int64_t element_bytes_;
    const bool quantized_;
    const int64_t row_bytes_;      // of a row as the first product reads it
    const int64_t groups_;         // of such a row, if the weights are 4-bit
    const int64_t hidden_groups_;  // of a row as the second product reads it
    const int64_t hidden_row_;     // elements between rows of hidden_
    const int64_t router_panels_;
    const int64_t longest_;      // piece of an expert's rows
    const int64_t down_panels_;  // of one task
    const int64_t down_rows_;    // multiplied at a time
    const ExpertLoops& loops_;
    Sorted* sorted_;
    int64_t* next_;  // place of each expert's next choice
    ExpertSpan* pieces_;
    ExpertSpan* down_pieces_;
    int32_t* ids_;
    float* weights_;
    char* rows_;
    float* row_scales_;
    GroupSum* row_sums_;
    int32_t* sorted_tokens_;
    float* sorted_weights_;
    char* hidden_;           // silu(gate) * up of each choice, sorted by expert, in the element type
    uint8_t* hidden_bytes_;  // the same in int8
    float* hidden_scales_;
    GroupSum* hidden_sums_;
    char* scratch_;  // of all threads
    int64_t shared_bytes_;
    int64_t scratch_bytes_;  // of one thread
};

}  // namespace

int64_t panel_of(ExpertFormat format) {
    return format == ExpertFormat::floating || format == ExpertFormat::mxfp4 ? kFloatPanel : kPanel;
}

int64_t expert_bytes(const ExpertLayer& layer, int64_t tokens, int64_t places) {
    return tokens == 0 ? 0 : Mixture(layer, tokens, places, nullptr).bytes(places);
}

void choose_experts(const Member& member, const ExpertLayer& layer, const void* x, int64_t tokens, char* memory,
                    int64_t begin, int64_t end) {
    Mixture(layer, tokens, member.places(), memory).choose(member, static_cast<const char*>(x), begin, end);
}

void sort_experts(const Member& member, const ExpertLayer& layer, int64_t tokens, char* memory) {
    Mixture(layer, tokens, member.places(), memory).sort();
}

void add_experts(Member& member, const ExpertLayer& layer, int64_t tokens, char* memory, void* out,
                 const std::function<void()>& then) {
    Mixture(layer, tokens, member.places(), memory).run(member, static_cast<char*>(out), then);
}

}  // namespace headgate
