#include "decode.h"

#include <algorithm>
#include <numeric>

#include "sampling.h"

namespace headgate {
namespace {

// As in sampling/noise.py.
uint64_t splitmix64(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

}  // namespace

Decoding::Decoding(const DecodeRow* rows, const DecodeChoice* choices, int64_t count, const int32_t* tables,
                   const int32_t* pages, const int64_t* ends, const Forms& forms, int64_t block_size, int64_t vocabulary,
                   int64_t places)
    : sequences_(rows, rows + count), choices_(choices), tables_(tables), pages_(pages), ends_(ends), forms_(forms),
      block_size_(block_size), vocabulary_(vocabulary), tokens_(count), positions_(count), slots_(count), page_slots_(count),
      numbers_(count), spans_(count) {
    std::iota(numbers_.begin(), numbers_.end(), 0);
    if (std::any_of(choices, choices + count, [](const DecodeChoice& c) { return c.temperature > 0; })) {
        floats_.reset(new float[places * draw_floats(vocabulary)]);
        ids_.reset(new int32_t[places * vocabulary]);
    }
}

void Decoding::begin() {
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const DecodeRow& row = sequences_[i];
        const int64_t at = row.table + row.position / block_size_, rest = row.position % block_size_;
        tokens_[i] = row.token;
        positions_[i] = row.position;
        slots_[i] = tables_[at] * block_size_ + rest;
        if (pages_ != nullptr) page_slots_[i] = pages_[at] * block_size_ + rest;
        spans_[i] = {static_cast<int64_t>(i), 1, row.position + 1, row.table};
    }
}

void Decoding::choose(int64_t begin, int64_t end, Element element, void* logits, int64_t place) {
    for (int64_t i = begin; i < end; ++i) tokens_[i] = chosen(i, element, logits, place);
}

bool Decoding::unsettled() const {
    return std::any_of(forms_.told, forms_.told + forms_.count, [](const Told& t) { return t.state == Told::free; });
}

void Decoding::choose_again(Element element, void* logits) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const int64_t form = forms_.of[i];
        if (form >= 0 && forms_.told[form].state != Told::free && forms_.told[form].state != Told::held)
            tokens_[i] = chosen(static_cast<int64_t>(i), element, logits, 0);
    }
}

int64_t Decoding::chosen(int64_t i, Element element, void* logits, int64_t place) {
    const int64_t form = forms_.of == nullptr ? -1 : forms_.of[i];
    void* own = static_cast<char*>(logits) + i * vocabulary_ * (element == Element::f32 ? 4 : 2);
    if (form < 0) return by_itself(i, element, own, place);
    Told& told = forms_.told[form];
    const uint32_t* allowed = forms_.allowed + form * forms_.words;
    const auto allows = [&](int64_t token) {
        return 0 <= token && token < 32 * forms_.words && (allowed[token / 32] >> token % 32 & 1) != 0;
    };
    if (told.state == Told::lost) return told.token = -1;
    told.refused = 0;
    if (choices_[i].temperature <= 0) {
        told.token = by_itself(i, element, own, place);
        if (told.state == Told::free || allows(told.token)) return told.token;
        told.refused = 1;
    }
    forbid(element, own, vocabulary_, allowed, forms_.words);
    return told.token = by_itself(i, element, own, place);
}

int64_t Decoding::by_itself(int64_t i, Element element, const void* own, int64_t place) {
    const DecodeRow& row = sequences_[i];
    const DecodeChoice& choice = choices_[i];
    if (choice.temperature <= 0) return likeliest(element, own, vocabulary_);
    // The token to be drawn stands one place after the one that was computed.
    const uint64_t key = splitmix64(static_cast<uint64_t>(row.stream) ^ static_cast<uint64_t>(row.position + 1));
    const Drawing d{static_cast<float>(choice.temperature), row.top_k, choice.top_p, choice.min_p,
                    static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key)};
    return draw(element, own, vocabulary_, d, floats_.get() + place * draw_floats(vocabulary_),
                ids_.get() + place * vocabulary_);
}

bool Decoding::advance() {
    bool goes_on = true;
    for (size_t i = 0; i < sequences_.size(); ++i) {
        DecodeRow& row = sequences_[i];
        const int64_t* ends = ends_ + row.ends;
        row.token = tokens_[i];
        ++row.position;
        goes_on = goes_on && row.token >= 0 && std::find(ends, ends + row.end_count, row.token) == ends + row.end_count;
    }
    return goes_on;
}

}  // namespace headgate
