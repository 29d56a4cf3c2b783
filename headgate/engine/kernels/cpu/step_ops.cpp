// torch.classes.headgate.Product, Experts and Step: they check their arguments and begin the one walk of a call.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checks.h"
#include "crew.h"
#include "decode.h"
#include "holders.h"
#include "sampling.h"
#include "step.h"

namespace headgate {
namespace {

using Holder = c10::intrusive_ptr<ProductHolder>;
using MaybeHolder = std::optional<Holder>;
using MaybeExperts = std::optional<c10::intrusive_ptr<ExpertsHolder>>;

class Step : public torch::CustomClassHolder {
  public:
    Step(int64_t heads, int64_t kv_heads, int64_t head_dim, double eps, bool gelu, double embedding_scale,
         const Tensor& embedding, const Tensor& norm, const Holder& head)
        : dtype_(embedding.scalar_type()) {
        TORCH_CHECK(embedding.dim() == 2 && embedding.is_contiguous(), "embedding must be contiguous [vocabulary, hidden]");
        TORCH_CHECK(kv_heads > 0 && heads % kv_heads == 0 && head_dim % 2 == 0 && head_dim <= kMaxHeadDim,
                    "heads must be a multiple of kv_heads and head_dim even and at most ", kMaxHeadDim);
        model_.element = element(embedding);
        model_.hidden = embedding.size(1);
        model_.heads = heads;
        model_.kv_heads = kv_heads;
        model_.dim = head_dim;
        model_.eps = static_cast<float>(eps);
        model_.gelu = gelu;
        model_.embedding_scale = static_cast<float>(embedding_scale);
        model_.embedding = embedding.const_data_ptr();
        model_.norm = weight(norm, model_.hidden, "norm");
        model_.head = fitting(head, model_.hidden, embedding.size(0), "head");
        keep_.push_back(embedding);
    }

    void add_layer(const Tensor& input_norm, const Tensor& mlp_norm, const std::optional<Tensor>& attended_norm,
                   const std::optional<Tensor>& fed_norm, const std::optional<Tensor>& q_norm,
                   const std::optional<Tensor>& k_norm, const Holder& qkv, const Holder& output, const MaybeHolder& gate_up,
                   const MaybeHolder& down, const MaybeExperts& experts, std::optional<int64_t> window, int64_t rotation,
                   const std::optional<Tensor>& sinks) {
        TORCH_CHECK(!window || *window > 0, "window must be positive, got ", window.value_or(0));
        TORCH_CHECK(rotation >= 0, "rotation must not be negative, got ", rotation);
        TORCH_CHECK(gate_up.has_value() == down.has_value() && down.has_value() != experts.has_value(),
                    "a layer has gate_up and down, or experts");
        const int64_t hidden = model_.hidden, dim = model_.dim, width = down ? (*down)->product->inputs : 0;
        model_.layers.push_back({weight(input_norm, hidden, "input_norm"), weight(mlp_norm, hidden, "mlp_norm"),
                                 attended_norm ? weight(*attended_norm, hidden, "attended_norm") : nullptr,
                                 fed_norm ? weight(*fed_norm, hidden, "fed_norm") : nullptr,
                                 q_norm ? weight(*q_norm, dim, "q_norm") : nullptr,
                                 k_norm ? weight(*k_norm, dim, "k_norm") : nullptr,
                                 fitting(qkv, hidden, (model_.heads + 2 * model_.kv_heads) * dim, "qkv"),
                                 fitting(output, model_.heads * dim, hidden, "output"),
                                 gate_up ? fitting(*gate_up, hidden, 2 * width, "gate_up") : nullptr,
                                 down ? fitting(*down, width, hidden, "down") : nullptr,
                                 experts ? fitting(*experts) : nullptr,
                                 window.value_or(std::numeric_limits<int64_t>::max()),
                                 sinks ? scores(*sinks) : nullptr, static_cast<size_t>(rotation),
                                 nullptr, nullptr, nullptr, nullptr, false});
    }

    // By position, float32 [positions, head_dim / 2], those of every rotation that layers name, of equally many positions.
    void set_angles(const std::vector<Tensor>& cos, const std::vector<Tensor>& sin) {
        TORCH_CHECK(!cos.empty() && cos.size() == sin.size(), "cos and sin must be equally many, and some");
        for (const StepLayer& layer : model_.layers)
            TORCH_CHECK(layer.rotation < cos.size(), "rotation ", layer.rotation, " of ", cos.size());
        positions_ = cos[0].size(0);
        const int64_t elements = positions_ * model_.dim / 2;
        model_.angles.clear();
        for (size_t i = 0; i < cos.size(); ++i)
            model_.angles.push_back({static_cast<const float*>(data_of(cos[i], at::kFloat, elements, "cos")),
                                     static_cast<const float*>(data_of(sin[i], at::kFloat, elements, "sin"))});
        angles_ = cos;
        angles_.insert(angles_.end(), sin.begin(), sin.end());
    }

    // The cache, per layer [slots, kv_heads, head_dim] of the model's dtype; or int8, with float32 scales [slots, kv_heads].
    // Layers that are `paged`, 1 or 0 of each, have slots of their own number: tables of steps then have as many pages behind
    // their blocks.
    void bind(const std::vector<Tensor>& keys, const std::vector<Tensor>& values, const std::vector<Tensor>& key_scales,
              const std::vector<Tensor>& value_scales, const std::vector<int64_t>& paged, int64_t block_size) {
        const size_t scaled = keys.empty() || keys[0].scalar_type() != at::kChar ? 0 : keys.size();
        TORCH_CHECK(keys.size() == model_.layers.size() && values.size() == keys.size() && paged.size() == keys.size() &&
                        block_size > 0 && key_scales.size() == scaled && value_scales.size() == scaled,
                    "there must be keys and values for ", model_.layers.size(),
                    " layers, scales of as many where these are int8 and else none, and a positive block_size");
        const at::ScalarType dtype = scaled > 0 ? at::kChar : dtype_;
        slots_ = page_slots_ = 0;
        for (size_t i = 0; i < keys.size(); ++i) {
            int64_t& slots = paged[i] ? page_slots_ : slots_;
            if (slots == 0) slots = keys[i].size(0);
            const int64_t elements = slots * model_.kv_heads * model_.dim;
            model_.layers[i].paged = paged[i] != 0;
            model_.layers[i].keys = const_cast<void*>(data_of(keys[i], dtype, elements, "keys"));
            model_.layers[i].values = const_cast<void*>(data_of(values[i], dtype, elements, "values"));
            model_.layers[i].key_scales = model_.layers[i].value_scales = nullptr;
            if (scaled == 0) continue;
            const int64_t rows = elements / model_.dim;
            model_.layers[i].key_scales = static_cast<float*>(
                const_cast<void*>(data_of(key_scales[i], at::kFloat, rows, "key_scales")));
            model_.layers[i].value_scales = static_cast<float*>(
                const_cast<void*>(data_of(value_scales[i], at::kFloat, rows, "value_scales")));
        }
        model_.block_size = block_size;
        cache_ = keys;
        for (const auto* more : {&values, &key_scales, &value_scales})
            cache_.insert(cache_.end(), more->begin(), more->end());
    }

    // Logits [rows, vocabulary] of a step, or the hidden states [rows, hidden] that they come from; not to be called from
    // two threads at once. Without positions and slots they are those of the geometry.
    Tensor forward(const Tensor& tokens, const Tensor& positions, const Tensor& slots, const Tensor& geometry,
                   const Tensor& tables, const Tensor& rows, bool logits) {
        Tensor out = at::empty({rows.numel(), logits ? model_.head->outputs : model_.hidden}, at::TensorOptions(dtype_));
        step(tokens, positions, slots, geometry, tables, rows, logits ? out.mutable_data_ptr() : nullptr,
             logits ? nullptr : out.mutable_data_ptr(), {});
        return out;
    }

    // The likeliest tokens by these logits, as the operator of that name has them: int64 [rows].
    Tensor choose(const Tensor& tokens, const Tensor& positions, const Tensor& slots, const Tensor& geometry,
                  const Tensor& tables, const Tensor& rows) {
        const int64_t vocabulary = model_.head->outputs, stride = vocabulary * model_.element_bytes();
        Tensor out = at::empty({rows.numel()}, at::TensorOptions(at::kLong));
        int64_t* chosen = out.mutable_data_ptr<int64_t>();
        char* logits = aligned(logits_, rows.numel() * stride);
        step(tokens, positions, slots, geometry, tables, rows, logits, nullptr, [&](int64_t begin, int64_t end, int64_t) {
            for (int64_t i = begin; i < end; ++i) chosen[i] = likeliest(model_.element, logits + i * stride, vocabulary);
        });
        return out;
    }

    // Up to `most` steps in a row, in each of which every sequence gets one token that is chosen from its logits. Ends
    // early after a step in which one of them ended, or while which `interrupt` [1] became other than 0. `rows` and `choices`
    // are those of DecodeBatch in kernels/interface.py, `of`, `allowed` and `told` those of its Forms, where there are any. `ask`
    // is then the address of a function of int64 that prepares for 0 and settles for 1; it gives 0 where it failed, which
    // ends the run. Tokens [sequences, steps], and the seconds in the layers, the output layer and, without forms, the choice.
    std::tuple<Tensor, double> decode(const Tensor& rows, const Tensor& choices, const Tensor& tables, const Tensor& ends,
                                      int64_t most, const Tensor& interrupt, const std::optional<Tensor>& of,
                                      const std::optional<Tensor>& allowed, const std::optional<Tensor>& told, int64_t ask) {
        TORCH_CHECK(!cache_.empty() && !model_.angles.empty(), "bind and set_angles come first");
        TORCH_CHECK(most > 0, "most must be positive, got ", most);
        const int64_t count = rows.numel() * sizeof(int64_t) / sizeof(DecodeRow), vocabulary = model_.head->outputs;
        const int64_t numbers = count * static_cast<int64_t>(sizeof(DecodeRow) / sizeof(int64_t));
        const auto* sequences = static_cast<const DecodeRow*>(data_of(rows, at::kLong, numbers, "rows"));
        const auto* chosen_by = static_cast<const DecodeChoice*>(data_of(choices, at::kDouble, 3 * count, "choices"));
        const auto* blocks = static_cast<const int32_t*>(data_of(tables, at::kInt, tables.numel(), "tables"));
        const auto* end_tokens = static_cast<const int64_t*>(data_of(ends, at::kLong, ends.numel(), "ends"));
        const auto* flag = static_cast<const int64_t*>(data_of(interrupt, at::kLong, 1, "interrupt"));
        const Forms forms = ask == 0 ? Forms{} : forms_of(of, allowed, told, count);
        for (int64_t i = 0; i < count; ++i)
            check(sequences[i], blocks, table_size(tables), ends.numel(), most);
        const auto asked = [&](int64_t chosen) { return reinterpret_cast<int64_t (*)(int64_t)>(ask)(chosen) != 0; };
        const int32_t* pages = pages_of(tables, blocks);
        Decoding decoding(sequences, chosen_by, count, blocks, pages, end_tokens, forms, model_.block_size, vocabulary,
                          team_places());
        char* logits = aligned(logits_, count * vocabulary * model_.element_bytes());
        const auto choose = [&](int64_t begin, int64_t end, int64_t place) {
            decoding.choose(begin, end, model_.element, logits, place);
        };
        StepInput input{decoding.tokens(), decoding.positions(), decoding.slots(), decoding.page_slots(), decoding.rows(),
                        count, count, true, {}, logits, nullptr, {}};
        // What a form allows is known once it was asked, which nobody in the step waits for.
        if (ask == 0) input.choose = choose;
        std::vector<int64_t> found;
        double seconds = 0;
        for (bool goes_on = count > 0; goes_on;) {
            decoding.begin();
            const auto started = std::chrono::steady_clock::now();
            bool answered = true;
            run(input, decoding.spans(), count, blocks, pages, [&] { answered = ask == 0 || asked(0); });
            seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
            if (ask != 0 && count > 1)
                together([&](Member& member) {
                    member.share(count, count, [&](int64_t begin, int64_t end) { choose(begin, end, member.number()); });
                });
            else if (ask != 0)
                choose(0, 1, 0);
            if (answered && decoding.unsettled()) {
                answered = asked(1);
                decoding.choose_again(model_.element, logits);
            }
            found.insert(found.end(), decoding.tokens(), decoding.tokens() + count);
            goes_on = decoding.advance() && answered && --most > 0 && __atomic_load_n(flag, __ATOMIC_RELAXED) == 0;
        }
        const int64_t steps = count > 0 ? static_cast<int64_t>(found.size()) / count : 0;
        Tensor out = at::empty({count, steps}, at::TensorOptions(at::kLong));
        for (int64_t i = 0; i < count * steps; ++i) out.mutable_data_ptr<int64_t>()[i % count * steps + i / count] = found[i];
        return {out, seconds};
    }

  private:
    void step(const Tensor& tokens, const Tensor& positions, const Tensor& slots, const Tensor& geometry,
              const Tensor& tables, const Tensor& rows, void* logits, void* hidden,
              std::function<void(int64_t, int64_t, int64_t)> choose) {
        TORCH_CHECK(!cache_.empty() && !model_.angles.empty(), "bind and set_angles come first");
        const int64_t count = tokens.numel(), sequences = geometry.numel() / 4;
        TORCH_CHECK(rows.numel() <= count, "rows must be at most as many as tokens, ", count, ", got ", rows.numel());
        const int64_t size = table_size(tables), of_blocks = slots_ / model_.block_size;
        const Span* spans = spans_of(geometry, tables.narrow(0, 0, size), count, of_blocks, model_.block_size);
        const auto* blocks = tables.const_data_ptr<int32_t>();
        const int32_t* pages = pages_of(tables, blocks);
        if (pages != nullptr)
            spans_of(geometry, tables.narrow(0, size, size), count, page_slots_ / model_.block_size, model_.block_size);
        const int64_t *at = nullptr, *to = nullptr, *to_pages = nullptr;
        if (positions.numel() == 0 && slots.numel() == 0) {
            places_of(spans, sequences, blocks, pages, count);
            at = places_.data();
            to = at + count;
            if (pages != nullptr) to_pages = to + count;
        } else {
            TORCH_CHECK(pages == nullptr && positions.numel() == count && slots.numel() == count,
                        "tokens, positions and slots must be equally many, or the last two none, as where layers have pages");
            at = indices(positions, positions_, "positions");
            to = indices(slots, slots_, "slots");
        }
        StepInput input{indices(tokens, model_.head->outputs, "tokens"), at, to, to_pages, indices(rows, count, "rows"), count,
                        rows.numel(), sequences == count, {}, logits, hidden, std::move(choose)};
        if (count > 0) run(input, spans, sequences, blocks, pages, [] {});
    }

    // How many blocks are in tables, and the pages that stand behind them; null where layers have none.
    int64_t table_size(const Tensor& tables) const { return page_slots_ == 0 ? tables.numel() : tables.numel() / 2; }
    const int32_t* pages_of(const Tensor& tables, const int32_t* blocks) const {
        return page_slots_ == 0 ? nullptr : blocks + table_size(tables);
    }

    // Of all rows, which the spans must cover in their order, the positions, after them the slots, then those of pages.
    void places_of(const Span* spans, int64_t sequences, const int32_t* blocks, const int32_t* pages, int64_t count) {
        places_.resize(3 * count);
        int64_t row = 0;
        for (int64_t i = 0; i < sequences; ++i) {
            const Span& s = spans[i];
            TORCH_CHECK(s.row == row && s.context <= positions_, "sequence ", i, " begins at row ", s.row, " of ", row,
                        " and has ", s.context, " of ", positions_, " positions");
            for (int64_t at = s.context - s.count; at < s.context; ++at, ++row) {
                const int64_t size = model_.block_size, number = s.table + at / size;
                places_[row] = at;
                places_[count + row] = blocks[number] * size + at % size;
                if (pages != nullptr) places_[2 * count + row] = pages[number] * size + at % size;
            }
        }
        TORCH_CHECK(row == count, "the sequences have ", row, " of ", count, " rows");
    }

    // `meanwhile` is called on this thread, while others may already be in the step.
    template <typename F>
    void run(StepInput& input, const Span* spans, int64_t sequences, const int32_t* blocks, const int32_t* pages,
             const F& meanwhile) {
        std::map<std::pair<bool, int64_t>, AttentionPlan> plans;
        const int64_t group = model_.heads / model_.kv_heads;
        const AttentionWay way = attention_way(model_.element, group);
        input.attention.clear();
        for (const StepLayer& layer : model_.layers) {
            const auto [found, added] = plans.try_emplace({layer.paged, layer.window});
            if (added)
                found->second = plan_attention(spans, sequences, layer.paged ? pages : blocks, model_.kv_heads, group,
                                               model_.dim, layer.window, way);
            input.attention.push_back(&found->second);
        }
        AttentionPlan last;
        if (0 < input.samples && input.samples < input.count) {
            const std::vector<Span> ends = sampled_spans(spans, sequences, input.rows, input.samples);
            const StepLayer& layer = model_.layers.back();
            last = plan_attention(ends.data(), static_cast<int64_t>(ends.size()), layer.paged ? pages : blocks,
                                  model_.kv_heads, group, model_.dim, layer.window, way);
            input.attention.back() = &last;
        }
        const Workspace workspace(model_, input, team_places());
        char* memory = aligned(memory_, workspace.bytes());
        together([&](Member& member) {
            if (member.number() == 0) meanwhile();
            walk(member, model_, input, workspace, memory);
        });
    }

    void check(const DecodeRow& row, const int32_t* tables, int64_t blocks, int64_t ends, int64_t most) const {
        TORCH_CHECK_INDEX(row.token >= 0 && row.token < model_.head->outputs, "token ", row.token, " of ",
                          model_.head->outputs);
        TORCH_CHECK_INDEX(row.position >= 0 && row.position + most <= positions_, "positions ", row.position, " to ",
                          row.position + most, " of ", positions_);
        const int64_t used = (row.position + most + model_.block_size - 1) / model_.block_size;
        TORCH_CHECK_INDEX(row.table >= 0 && row.table + used <= blocks && row.ends >= 0 && row.end_count >= 0 &&
                              row.ends + row.end_count <= ends,
                          "a table or list of ends is too short: ", blocks, " blocks, ", ends, " ends");
        const auto below = [&](const int32_t* of, int64_t slots, const char* name) {
            for (int64_t i = row.table; i < row.table + used; ++i)
                TORCH_CHECK_INDEX(of[i] >= 0 && of[i] < slots / model_.block_size, name, of[i], " of ",
                                  slots / model_.block_size);
        };
        below(tables, slots_, "block ");
        if (page_slots_ > 0) below(tables + blocks, page_slots_, "page ");
    }

    static Forms forms_of(const std::optional<Tensor>& of, const std::optional<Tensor>& allowed,
                          const std::optional<Tensor>& told, int64_t sequences) {
        TORCH_CHECK(of && allowed && told && allowed->dim() == 2, "forms have of, allowed [forms, words] and told");
        const int64_t count = allowed->size(0);
        const auto* numbers = static_cast<const int64_t*>(data_of(*of, at::kLong, sequences, "of"));
        for (int64_t i = 0; i < sequences; ++i)
            TORCH_CHECK_INDEX(-1 <= numbers[i] && numbers[i] < count, "form ", numbers[i], " of ", count);
        return {numbers, static_cast<const uint32_t*>(data_of(*allowed, at::kInt, allowed->numel(), "allowed")),
                allowed->size(1), static_cast<Told*>(const_cast<void*>(data_of(*told, at::kLong, 3 * count, "told"))), count};
    }

    const void* weight(const Tensor& x, int64_t elements, const char* name) {
        keep_.push_back(x);
        return data_of(x, dtype_, elements, name);
    }

    const float* scores(const Tensor& sinks) {
        keep_.push_back(sinks);
        return static_cast<const float*>(data_of(sinks, at::kFloat, model_.heads, "sinks"));
    }

    std::shared_ptr<const Product> fitting(const Holder& holder, int64_t inputs, int64_t outputs, const char* name) {
        const Product& p = *holder->product;
        TORCH_CHECK(p.inputs == inputs && p.outputs == outputs && p.element == model_.element, name, " must map ", inputs,
                    " to ", outputs, " elements of ", dtype_, ", maps ", p.inputs, " to ", p.outputs);
        holders_.push_back(holder);
        return holder->product;
    }

    std::shared_ptr<const ExpertLayer> fitting(const c10::intrusive_ptr<ExpertsHolder>& holder) {
        const ExpertLayer& layer = *holder->layer;
        TORCH_CHECK(layer.hidden == model_.hidden && layer.element == model_.element, "experts must be for ", model_.hidden,
                    " elements of ", dtype_, ", are for ", layer.hidden);
        experts_.push_back(holder);
        return holder->layer;
    }

    const at::ScalarType dtype_;
    StepModel model_{};
    int64_t positions_ = 0;
    int64_t slots_ = 0;
    int64_t page_slots_ = 0;  // of layers that are paged; 0 where none is
    std::vector<Tensor> keep_, angles_, cache_;  // that the model points into
    std::vector<Holder> holders_;
    std::vector<c10::intrusive_ptr<ExpertsHolder>> experts_;
    Tensor memory_, logits_;
    std::vector<int64_t> places_;
};

}  // namespace
}  // namespace headgate

TORCH_LIBRARY_FRAGMENT(headgate, m) {
    using headgate::ExpertsHolder;
    using headgate::ProductHolder;
    using headgate::Step;
    m.class_<ProductHolder>("Product").def(
        torch::init<const std::string&, std::vector<at::Tensor>, std::optional<at::Tensor>, int64_t, int64_t,
                    at::ScalarType>());
    m.class_<ExpertsHolder>("Experts")
        .def(torch::init<const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&, const at::Tensor&, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&, int64_t, int64_t, int64_t, int64_t, int64_t, bool,
                         const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&, double>())
        .def("forward", &ExpertsHolder::forward);
    m.class_<Step>("Step")
        .def(torch::init<int64_t, int64_t, int64_t, double, bool, double, const at::Tensor&, const at::Tensor&,
                         const headgate::Holder&>())
        .def("add_layer", &Step::add_layer)
        .def("set_angles", &Step::set_angles)
        .def("bind", &Step::bind)
        .def("forward", &Step::forward)
        .def("choose", &Step::choose)
        .def("decode", &Step::decode, "",
             {torch::arg("rows"), torch::arg("choices"), torch::arg("tables"), torch::arg("ends"), torch::arg("most"),
              torch::arg("interrupt"), torch::arg("of") = torch::arg::none(), torch::arg("allowed") = torch::arg::none(),
              torch::arg("told") = torch::arg::none(), torch::arg("ask") = 0});
}
