// The phases of a step. Each is divided among the threads; none begins before the one before it is done.
//
// A layer: the norm and the preparation of its rows for the next product, or for experts, go row by row; products go by panels
// of outputs; rotation by heads; attention by the tasks of its plan; experts in phases of their own (experts.cpp). All rounding is that of the operators one by one, so both ways give
// the same bits.
#include "step.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace headgate {
namespace {

// Of one piece of a product, so that a thread that lost its core, or was the last to begin one, holds up little.
constexpr int64_t kMostPanels = 8;
constexpr int64_t kMostProducts = 16 * 1024 * 1024;  // or one panel
constexpr int64_t kLeastBytes = 32 * 1024;  // of weights that a piece is worth, where there are pieces for all threads
// Rows that go through a layer's products together, and of how many for each thread it pays that every thread reads all of the
// layer's weights, up to these bytes of them, which then stay in its core's cache.
constexpr int64_t kBlockRows = 32;
constexpr int64_t kLeastRows = 32;
constexpr int64_t kCachedBytes = 1024 * 1024;

int64_t widest(const StepModel& model, int64_t rows, int64_t samples) {
    int64_t most = model.head->prepared_bytes(samples);
    for (const StepLayer& layer : model.layers)
        for (const Product* product : {layer.qkv.get(), layer.output.get(), layer.gate_up.get(), layer.down.get()})
            if (product != nullptr) most = std::max(most, product->prepared_bytes(rows));
    return most;
}

// The state of a walk, and its phases.
class Walk {
  public:
    Walk(Member& member, const StepModel& model, const StepInput& input, const Workspace& space, char* memory)
        : member_(member), model_(model), input_(input), space_(space), memory_(memory), loops_(loops(model.element)),
          way_(attention_way(model.element, model.heads / model.kv_heads)) {}

    void run() {
        const std::vector<StepLayer>& layers = model_.layers;
        blocks_ = goes_by_blocks();
        embed(layers[0]);
        for (size_t i = 0; i < layers.size(); ++i) {
            const StepLayer& layer = layers[i];
            const bool last = i + 1 == layers.size();
            if (!blocks_) multiply(*layer.qkv, space_.x, input_.count, at(space_.qkv));
            // A head of a sequence's only row needs no key of this step but its own: whoever attends places it.
            const AttentionPlan& plan = *input_.attention[i];
            const bool together = !blocks_ && input_.single && plan.merges.empty() && !(last && input_.samples < input_.count);
            if (!blocks_ && !together) place(layer);
            if (last && input_.samples == 0) return;
            const auto attended = [&](const auto& then) { attend(layer, plan, together, then); };
            if (blocks_ && !last) {
                attended([] {});
                feed_by_blocks(layer, layers[i + 1]);
                continue;
            }
            // Past the last keys and values only the rows that are sampled matter.
            if (last && !in_order()) {
                attended([] {});
                choose(*layer.output);
            } else {
                prepare_after(attended, *layer.output, space_.attended);
            }
            const void* norm = last ? model_.norm : layers[i + 1].input_norm;
            const Product& next = last ? *model_.head : *layers[i + 1].qkv;
            if (layer.experts != nullptr)
                mix(layer, norm, next);
            else
                feed(layer, norm, next);
        }
        if (input_.hidden != nullptr) keep();
        if (input_.logits != nullptr) tell();
    }

  private:
    char* at(int64_t offset) const { return memory_ + offset; }
    char* row(int64_t offset, int64_t row, int64_t width) const { return at(offset) + row * width * model_.element_bytes(); }
    Rows dense(int64_t offset, int64_t width) const { return {at(offset), width, 0, 1}; }

    void embed(const StepLayer& first) {
        rows_ = input_.count;
        const int64_t hidden = model_.hidden, bytes = hidden * model_.element_bytes();
        const auto embed = [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                char* to = row(space_.residual, i, hidden);
                std::memcpy(to, static_cast<const char*>(model_.embedding) + input_.tokens[i] * bytes, bytes);
                if (model_.embedding_scale != 1.0f) loops_.scale(to, model_.embedding_scale, hidden);
            }
            loops_.rms_norm(dense(space_.residual, hidden), first.input_norm, model_.eps, hidden, at(space_.x), begin, end);
        };
        if (blocks_)
            return share_blocks([&](int64_t begin, int64_t end) {
                embed(begin, end);
                begin_layer(first, begin, end);
            });
        member_.share(rows_, [&](int64_t begin, int64_t end) {
            embed(begin, end);
            prepare(*first.qkv, space_.x, begin, end);
        });
    }

    // Whether rows go by blocks through all that lies between two attentions, each thread with its own. What one core has
    // written another one fetches slowly: with many rows and few weights that takes longer than reading all weights does.
    bool goes_by_blocks() const {
        if (input_.count < kLeastRows * member_.places()) return false;
        return std::all_of(model_.layers.begin(), model_.layers.end(), [](const StepLayer& layer) {
            if (layer.experts != nullptr) return false;
            int64_t bytes = 0;
            for (const Product* p : {layer.qkv.get(), layer.output.get(), layer.gate_up.get(), layer.down.get()}) {
                if (!p->takes_rows()) return false;
                bytes += p->pieces() * p->piece_bytes();
            }
            return bytes <= kCachedBytes;
        });
    }

    // f(begin, end) over the rows, in blocks.
    template <typename F>
    void share_blocks(const F& f) {
        const int64_t blocks = (rows_ + kBlockRows - 1) / kBlockRows;
        member_.share(blocks, blocks,
                      [&](int64_t begin, int64_t end) { f(begin * kBlockRows, std::min(end * kBlockRows, rows_)); });
    }

    // Rows [begin, end) at `to` = those at `from` times the weights.
    void multiply_rows(const Product& product, int64_t from, int64_t to, int64_t begin, int64_t end) {
        product.multiply(row(from, begin, product.inputs), end - begin, row(to, begin, product.outputs), 0, product.pieces());
    }

    // Up to attention, for normalised rows.
    void begin_layer(const StepLayer& layer, int64_t begin, int64_t end) {
        multiply_rows(*layer.qkv, space_.x, space_.qkv, begin, end);
        const int64_t heads = model_.heads + model_.kv_heads;
        loops_.place(placement(layer), begin * heads, end * heads);
    }

    void feed_by_blocks(const StepLayer& layer, const StepLayer& next) {
        share_blocks([&](int64_t begin, int64_t end) {
            multiply_rows(*layer.output, space_.attended, space_.x, begin, end);
            add(layer.attended_norm, layer.mlp_norm, begin, end);
            multiply_rows(*layer.gate_up, space_.x, space_.gate_up, begin, end);
            gate(layer, begin, end);
            multiply_rows(*layer.down, space_.gated, space_.x, begin, end);
            add(layer.fed_norm, next.input_norm, begin, end);
            begin_layer(next, begin, end);
        });
    }

    // Whether all rows are sampled, in their order.
    bool in_order() const {
        if (input_.samples != input_.count) return false;
        for (int64_t i = 0; i < input_.count; ++i)
            if (input_.rows[i] != i) return false;
        return true;
    }

    // Rows [begin, end) at `x` for the product, which finds them there or in `prepared`.
    void prepare(const Product& next, int64_t x, int64_t begin, int64_t end) {
        if (!next.takes_rows()) next.prepare(dense(x, next.inputs), rows_, at(space_.prepared), begin, end);
    }

    // f(begin, end) over the rows that `phase` makes, which takes what is to be done at its end; then `finally`. A single row is
    // left to whoever ends the phase: no thread could help with it, and to begin another phase takes as long as a norm.
    template <typename P, typename F, typename G>
    void after(const P& phase, const F& f, const G& finally) {
        if (rows_ == 1) {
            phase([&] {
                f(int64_t{0}, int64_t{1});
                finally();
            });
        } else {
            phase([] {});
            member_.share(rows_, member_.pieces(), f, finally);
        }
    }

    template <typename P, typename F>
    void after(const P& phase, const F& f) {
        after(phase, f, [] {});
    }

    template <typename P>
    void prepare_after(const P& phase, const Product& next, int64_t x) {
        if (next.takes_rows())
            phase([] {});
        else
            after(phase, [&](int64_t begin, int64_t end) { prepare(next, x, begin, end); });
    }

    template <typename F>
    void multiply(const Product& product, int64_t x, int64_t rows, void* out, const F& then) {
        const void* from = at(product.takes_rows() ? x : space_.prepared);
        const auto multiply = [&](int64_t begin, int64_t end) { product.multiply(from, rows, out, begin, end); };
        share_panels(product.pieces(), product.piece_bytes(), rows, multiply, then);
    }

    void multiply(const Product& product, int64_t x, int64_t rows, void* out) {
        multiply(product, x, rows, out, [] {});
    }

    // Panels of so many bytes, times so many rows.
    template <typename F, typename G>
    void share_panels(int64_t panels, int64_t bytes, int64_t rows, const F& f, const G& then) {
        const int64_t each = panels / (member_.places() * std::max<int64_t>(2, kLeastBytes / bytes));
        const int64_t pieces = member_.places() * std::clamp<int64_t>(each, 1, 16);
        const int64_t most = std::clamp<int64_t>(kMostProducts / (bytes * rows), 1, kMostPanels);
        member_.share(panels, std::max(pieces, (panels + most - 1) / most), f, then);
    }

    Placement placement(const StepLayer& layer) const {
        const Angles& angles = model_.angles[layer.rotation];
        const int64_t* slots = layer.paged ? input_.page_slots : input_.slots;
        return {at(space_.qkv), layer.q_norm,     layer.k_norm,  model_.eps,      angles.cos, angles.sin,
                input_.positions, slots,          model_.heads,  model_.kv_heads, model_.dim, at(space_.q),
                layer.keys,       layer.values, layer.key_scales, layer.value_scales};
    }

    void place(const StepLayer& layer) {
        const Placement p = placement(layer);
        member_.share(input_.count * (model_.heads + model_.kv_heads),
                      [&](int64_t begin, int64_t end) { loops_.place(p, begin, end); });
    }

    template <typename F>
    void attend(const StepLayer& layer, const AttentionPlan& plan, bool together, const F& then) {
        const int64_t group = model_.heads / model_.kv_heads;
        const Attention a{at(space_.q),
                          at(space_.attended),
                          {layer.keys, layer.values, layer.key_scales, layer.value_scales, model_.kv_heads, model_.dim,
                           model_.block_size},
                          model_.heads,
                          layer.window,
                          layer.sinks};
        const Placement p = placement(layer);
        float* scratch = reinterpret_cast<float*>(at(space_.scratch + member_.number() * space_.scratch_bytes));
        const auto attend = [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const AttentionRun run = plan.run(i);
                if (together) {
                    const int64_t row = run.tasks->row * (model_.heads + model_.kv_heads);
                    const int64_t queries = row + run.tasks->kv_head * group;
                    const int64_t keys = row + model_.heads + run.tasks->kv_head;
                    loops_.place(p, queries, queries + run.count * group);
                    loops_.place(p, keys, keys + run.count);
                }
                way_.attend(a, run, scratch);
            }
        };
        const int64_t runs = plan.runs(), merges = static_cast<int64_t>(plan.merges.size());
        if (merges == 0) return member_.share(runs, runs, attend, then);
        member_.share(runs, runs, attend);
        const auto merge = [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const Merge& m = plan.merges[i];
                loops_.merge(m.partials, m.splits, group, model_.dim,
                             layer.sinks == nullptr ? nullptr : layer.sinks + m.kv_head * group,
                             row(space_.attended, m.row * model_.heads + m.kv_head * group, model_.dim));
            }
        };
        member_.share(merges, merges, merge, then);
    }

    void choose(const Product& next) {
        rows_ = input_.samples;
        const auto copy = [&](int64_t to, int64_t from, int64_t i, int64_t width) {
            std::memcpy(row(to, i, width), row(from, input_.rows[i], width), width * model_.element_bytes());
        };
        member_.share(rows_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                copy(space_.chosen_attended, space_.attended, i, model_.heads * model_.dim);
                copy(space_.chosen_residual, space_.residual, i, model_.hidden);
            }
            prepare(next, space_.chosen_attended, begin, end);
        });
        attended_ = space_.chosen_attended;
        x_ = space_.chosen;
        residual_ = space_.chosen_residual;
    }

    // Rows of what x is added to, to x; before that their norm where there is one `behind`.
    void add(const void* behind, const void* norm, int64_t begin, int64_t end) {
        if (behind != nullptr)
            loops_.rms_norm(dense(x_, model_.hidden), behind, model_.eps, model_.hidden, at(x_), begin, end);
        loops_.add_rms_norm(at(x_), at(residual_), norm, model_.eps, model_.hidden, begin, end);
    }

    // The product of what attention found, the sum and the norm; then `prepare` gets the rows that are done, and `finally`.
    template <typename F, typename G>
    void join(const StepLayer& layer, const F& prepare, const G& finally) {
        const auto product = [&](const auto& then) { multiply(*layer.output, attended_, rows_, at(x_), then); };
        const auto rows = [&](int64_t begin, int64_t end) {
            add(layer.attended_norm, layer.mlp_norm, begin, end);
            prepare(begin, end);
        };
        after(product, rows, finally);
    }

    // The rest of a layer; `norm` and `next` follow it.
    void mix(const StepLayer& layer, const void* norm, const Product& next) {
        const ExpertLayer& experts = *layer.experts;
        char* memory = at(space_.experts);
        const auto choose = [&](int64_t begin, int64_t end) {
            choose_experts(member_, experts, at(x_), rows_, memory, begin, end);
        };
        join(layer, choose, [&] { sort_experts(member_, experts, rows_, memory); });
        const auto added = [&](const auto& then) { add_experts(member_, experts, rows_, memory, at(x_), std::cref(then)); };
        after(added, [&](int64_t begin, int64_t end) { finish(layer, norm, next, begin, end); });
    }

    void feed(const StepLayer& layer, const void* norm, const Product& next) {
        const Product &gate_up = *layer.gate_up, &down = *layer.down;
        join(layer, [&](int64_t begin, int64_t end) { prepare(gate_up, x_, begin, end); }, [] {});
        if (const int64_t pieces = model_.gelu ? 0 : gate_up.gated_pieces(rows_)) {
            const auto product = [&](const auto& then) {
                const auto multiply = [&](int64_t begin, int64_t end) {
                    gate_up.multiply_gated(at(space_.prepared), rows_, at(space_.gated), begin, end);
                };
                share_panels(pieces, 2 * gate_up.piece_bytes(), rows_, multiply, then);
            };
            prepare_after(product, down, space_.gated);
        } else {
            const auto product = [&](const auto& then) { multiply(gate_up, x_, rows_, at(space_.gate_up), then); };
            after(product, [&](int64_t begin, int64_t end) {
                gate(layer, begin, end);
                prepare(down, space_.gated, begin, end);
            });
        }
        const auto product = [&](const auto& then) { multiply(down, space_.gated, rows_, at(x_), then); };
        after(product, [&](int64_t begin, int64_t end) { finish(layer, norm, next, begin, end); });
    }

    void gate(const StepLayer& layer, int64_t begin, int64_t end) {
        (model_.gelu ? loops_.geglu : loops_.swiglu)(dense(space_.gate_up, layer.gate_up->outputs), layer.down->inputs,
                                                     at(space_.gated), begin, end);
    }

    void finish(const StepLayer& layer, const void* norm, const Product& next, int64_t begin, int64_t end) {
        add(layer.fed_norm, norm, begin, end);
        prepare(next, x_, begin, end);
    }

    void tell() {
        const auto product = [&](const auto& then) { multiply(*model_.head, x_, rows_, input_.logits, then); };
        if (input_.choose)
            after(product, [&](int64_t begin, int64_t end) { input_.choose(begin, end, member_.number()); });
        else
            product([] {});
    }

    void keep() {
        const int64_t bytes = model_.hidden * model_.element_bytes();
        member_.share(rows_, [&](int64_t begin, int64_t end) {
            std::memcpy(static_cast<char*>(input_.hidden) + begin * bytes, row(x_, begin, model_.hidden),
                        (end - begin) * bytes);
        });
    }

    Member& member_;
    const StepModel& model_;
    const StepInput& input_;
    const Workspace& space_;
    char* const memory_;
    const Loops& loops_;
    const AttentionWay way_;
    bool blocks_ = false;
    int64_t rows_ = 0;  // that are computed now, and where their state is
    int64_t x_ = space_.x;
    int64_t attended_ = space_.attended;
    int64_t residual_ = space_.residual;
};

}  // namespace

Workspace::Workspace(const StepModel& model, const StepInput& input, int64_t threads) {
    const int64_t row = input.count * model.element_bytes(), head = row * model.dim;
    int64_t gate_up_width = 0, gated_width = 0, floats = 0, mixed = 0;
    for (size_t i = 0; i < model.layers.size(); ++i) {
        if (const ExpertLayer* experts = model.layers[i].experts.get()) {
            for (const int64_t rows : {input.count, input.samples})
                mixed = std::max(mixed, expert_bytes(*experts, rows, threads));
        } else {
            gate_up_width = std::max(gate_up_width, model.layers[i].gate_up->outputs);
            gated_width = std::max(gated_width, model.layers[i].down->inputs);
        }
        floats = std::max(floats, input.attention[i]->scratch_floats);
    }
    residual = take(row * model.hidden);
    x = take(row * model.hidden);
    qkv = take(head * (model.heads + 2 * model.kv_heads));
    q = take(head * model.heads);
    attended = take(head * model.heads);
    gate_up = take(row * gate_up_width);
    gated = take(row * gated_width);
    experts = take(mixed);
    prepared = take(widest(model, input.count, input.samples));
    chosen = take(input.samples * model.hidden * model.element_bytes());
    chosen_attended = take(input.samples * model.heads * model.dim * model.element_bytes());
    chosen_residual = take(input.samples * model.hidden * model.element_bytes());
    scratch_bytes = round_up(floats * static_cast<int64_t>(sizeof(float)), 64);
    scratch = take(threads * scratch_bytes);
}

int64_t Workspace::take(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += round_up(bytes, 64);
    return offset;
}

void walk(Member& member, const StepModel& model, const StepInput& input, const Workspace& workspace, char* memory) {
    Walk(member, model, input, workspace, memory).run();
}

}  // namespace headgate
