// Steps in which every sequence gets one token, fed with what the step before chose; free of torch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_plan.h"
#include "loops.h"

namespace headgate {

// One sequence: its columns of `rows`, see DecodeBatch in kernels/interface.py.
struct DecodeRow {
    int64_t token;     // known, its key and value not computed
    int64_t position;  // of that token
    int64_t table;     // where its blocks begin in `tables`
    int64_t ends;      // where the tokens that end it begin in `ends`, and how many there are
    int64_t end_count;
    int64_t stream;    // all its draws' keys begin with this
    int64_t top_k;
};

// How its tokens are chosen; likewise.
struct DecodeChoice {
    double temperature;  // 0 is greedy
    double top_p;
    double min_p;
};

// How a sequence with a form gets its next token, and which it got; see Forms in kernels/interface.py.
struct Told {
    enum State : int64_t { free, held, again, lost };
    int64_t token;
    int64_t state;
    int64_t refused;
};

// Of all sequences that are held to one. Both change while tokens are chosen.
struct Forms {
    const int64_t* of;        // [sequences], -1 for one that has none; or null
    const uint32_t* allowed;  // [forms][words]
    int64_t words;
    Told* told;  // [forms]
    int64_t count;
};

class Decoding {
  public:
    // What the pointers show must stay; `rows` is copied. `pages` are null, or stand where the blocks do in `tables`.
    Decoding(const DecodeRow* rows, const DecodeChoice* choices, int64_t count, const int32_t* tables, const int32_t* pages,
             const int64_t* ends, const Forms& forms, int64_t block_size, int64_t vocabulary, int64_t places);

    // Lays out the inputs of the next step, one row per sequence. They stay where they are.
    void begin();
    const int64_t* tokens() const { return tokens_.data(); }
    const int64_t* positions() const { return positions_.data(); }
    const int64_t* slots() const { return slots_.data(); }
    const int64_t* page_slots() const { return pages_ == nullptr ? nullptr : page_slots_.data(); }
    const int64_t* rows() const { return numbers_.data(); }
    const Span* spans() const { return spans_.data(); }

    // Chooses tokens for sequences [begin, end) from the step's logits [count][vocabulary], of which those of forbidden tokens
    // may be overwritten. `place`: that of the thread.
    void choose(int64_t begin, int64_t end, Element element, void* logits, int64_t place);

    // Whether a token was chosen freely that a form must be asked about; and, when it was, choosing once more where told to.
    bool unsettled() const;
    void choose_again(Element element, void* logits);

    // Appends the chosen tokens. False where there can be no next step: a sequence has ended, or its logits were not finite
    // and its token is -1.
    bool advance();

  private:
    int64_t chosen(int64_t i, Element element, void* logits, int64_t place);
    int64_t by_itself(int64_t i, Element element, const void* own, int64_t place);

    std::vector<DecodeRow> sequences_;
    const DecodeChoice* const choices_;
    const int32_t* const tables_;
    const int32_t* const pages_;
    const int64_t* const ends_;
    const Forms forms_;
    const int64_t block_size_;
    const int64_t vocabulary_;
    std::vector<int64_t> tokens_, positions_, slots_, page_slots_, numbers_;
    std::vector<Span> spans_;
    std::unique_ptr<float[]> floats_;  // what drawing needs, per place
    std::unique_ptr<int32_t[]> ids_;
};

}  // namespace headgate
