// Attention over bfloat16 keys and values with bfloat16 products and float32 sums: by AMX tiles, or by AVX-512's own
// instruction. The softmax runs over blocks of keys (Dao et al. 2022).
//
// Sixteen queries at a time, of whatever heads share the keys. Keys times queries gives scores whose lanes are the queries, so
// that the softmax needs no sums across lanes, and keys can be read where the cache has them. The weights are then turned
// round, and multiply values whose rows are laid two by two, as tiles want them.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "choice.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_BF16_ATTENTION 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
// See int8.cpp, for these and for the instruction as such.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "avx512.inc"

#define MULTIPLY_ADD(sum, x, w) asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
// The same with one pair for all lanes.
#define MULTIPLY_ADD_EACH(sum, x, pair) \
    asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(x), "m"(*reinterpret_cast<const Pair*>(pair)))

// Of products: inlined among much else, GCC 12 keeps their sums in memory, and a prompt takes twice as long.
#define OWN_REGISTERS __attribute__((noinline))

#include "attention_room.inc"

#include "attention_keys.inc"

#include "attention_softmax.inc"

#include "attention_few.inc"

#include "attention_products.inc"

namespace headgate {
namespace {

// One task, tile of keys by tile; of bfloat16, K is uint16_t, or int8_t.
template <typename Way, typename K>
class Attending {
  public:
    Attending(const Attention& a, const AttentionTask& task, float* scratch)
        : a_(a),
          task_(task),
          dim_(a.cache.dim),
          size_(partial_floats(dim_)),
          group_(a.heads / a.cache.kv_heads),
          queries_(task.rows * group_),
          blocks_(blocks_of(queries_)),
          few_(queries_ <= kFew && (!Way::kAsTiles || (!CachedTile<K>::kInt8 && dim_ % kDeep == 0))),
          scale_(1 / std::sqrt(static_cast<float>(dim_))),
          room_(scratch, queries_, dim_) {}

    // Tasks of neighbouring heads go through the keys together, tile by tile, where all have few queries.
    static void run(Attending* heads, int64_t count, const AttentionTask* next) {
        if (heads->few_) {
            for (Attending* head = heads; head < heads + count; ++head) head->arrange_few_queries();
            add_up(heads, count, next);
        }
        for (Attending* head = heads; head < heads + count; ++head) head->finish(next);
    }

  private:
    static void add_up(Attending* heads, int64_t count, const AttentionTask* next) {
        const AttentionTask& task = heads->task_;
        const auto each = [&](const auto& f) {
            for (Attending* head = heads; head < heads + count; ++head) f(*head);
        };
        for (int64_t begin = task.begin; begin < task.end;) {
            const int64_t after = begin / kSection * kSection + kSection, end = after < task.end ? after : task.end;
            each([](Attending& head) { head.reset(); });
            for (int64_t start = begin; start < end; start += kTile) {
                if (heads->few_) Coming(heads->a_.cache, sizeof(K), task, start, count).read();
                Coming coming = heads->after(start, count, next);
                each([&](Attending& head) { head.tile(start, end - start < kTile ? end - start : kTile, coming); });
                coming.ask_rest();
            }
            each([&](Attending& head) { head.close(end < task.end); });
            begin = end;
        }
    }

    // What the heads of a run look at after the tile at `start`.
    Coming after(int64_t start, int64_t heads, const AttentionTask* next) const {
        if (start + kTile < task_.end) return {a_.cache, sizeof(K), task_, start + kTile, heads};
        return next == nullptr ? Coming() : Coming(a_.cache, sizeof(K), *next, next->begin, heads);
    }

    void finish(const AttentionTask* next) {
        // Where tokens see different keys, a weight of 0 may have let a value in that is no number.
        if (few_ && task_.rows > 1) few_ = finite(result());
        if (!few_) {
            folded_ = false;
            arrange_queries();
            Way::begin();
            add_up(this, 1, next);
            Way::end();
        }
        for (int64_t i = 0; i < queries_; ++i) finish(i, result() + i * size_);
    }

    // The task's unfinished results, of `queries_`.
    const float* result() const { return folded_ ? room_.all : room_.section; }

    int64_t token(int64_t query) const { return query / group_; }
    int64_t place(int64_t query) const {
        return ((task_.row + query / group_) * a_.heads + task_.kv_head * group_ + query % group_) * dim_;
    }

    bool finite(const float* from) const {
        __mmask16 strange = 0;
        for (int64_t i = 0; i < queries_; ++i)
            for (int64_t d = 0; d < dim_; d += kBlock)
                strange |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(from + i * size_ + d), 0x99);  // NaN or infinity
        return strange == 0;
    }

    // Those that fill up the last block are like the last one.
    void find_positions() {
        for (int64_t i = 0; i < blocks_ * kBlock; ++i) {
            const int64_t at = token(i < queries_ ? i : queries_ - 1);
            room_.positions[i] = static_cast<int32_t>(task_.position + at);
            room_.limits[i] = a_.limits == nullptr ? room_.positions[i] + 1 : a_.limits[task_.row + at];
        }
    }

    void arrange_few_queries() {
        find_positions();
        auto* to = reinterpret_cast<typename Way::Few::Query*>(room_.few_q);
        for (int64_t i = 0; i < queries_; ++i)
            Way::Few::arrange(static_cast<const uint16_t*>(a_.q) + place(i), dim_, to + i * deep(dim_));
    }

    void arrange_queries() {
        find_positions();
        const int64_t depth = deep(dim_);
        for (int64_t block = 0; block < blocks_; ++block) {
            const uint16_t* rows[kBlock] = {};
            for (int64_t i = 0; i < queries_in(block); ++i)
                rows[i] = static_cast<const uint16_t*>(a_.q) + place(block * kBlock + i);
            // The next ones, which lie far apart and mostly in other cores' caches.
            for (int64_t i = (block + 1) * kBlock; i < std::min(queries_, (block + 2) * kBlock); ++i)
                for (int64_t d = 0; d < dim_; d += 32) __builtin_prefetch(static_cast<const uint16_t*>(a_.q) + place(i) + d);
            side_by_side(
                depth,
                [&](int64_t i, int64_t d) __attribute__((always_inline)) {
                    return rows[i] != nullptr ? load_row(rows[i], d, dim_, 1) : _mm512_setzero_si512();
                },
                room_.q + block * depth * kBlock);
        }
    }

    void reset() {
        __builtin_memset(room_.section, 0, (few_ ? queries_ : blocks_ * kBlock) * size_ * sizeof(float));
        for (int64_t i = 0; i < blocks_ * kBlock; i += kBlock) {
            _mm512_store_ps(room_.totals + i, _mm512_setzero_ps());
            _mm512_store_ps(room_.tops + i, _mm512_set1_ps(-__builtin_inff()));
        }
    }

    // The end of a section; whether there will be another.
    void close(bool more) {
        for (int64_t i = 0; i < queries_; ++i) {
            if (few_) Way::Few::put_in_order(room_.section + i * size_, dim_);
            room_.section[i * size_ + padded(dim_)] = room_.totals[i];
            room_.section[i * size_ + padded(dim_) + 1] = room_.tops[i];
        }
        if (more || folded_) fold();
        folded_ = folded_ || more;
    }

    void fold() {
        if (!folded_) {
            __builtin_memcpy(room_.all, room_.section, queries_ * size_ * sizeof(float));
            return;
        }
        const auto join = loops(Element::bf16).fold;
        for (int64_t i = 0; i < queries_; ++i) join(room_.all + i * size_, room_.section + i * size_, dim_);
    }

    // A tile for one decoded token or a few, which would not pay for a copy of its keys and values.
    void tile_for_few(int64_t start, int64_t count, Coming& coming) {
        using Few = typename Way::Few;
        const Sight s = sight(0, start, count);
        if (s.begin >= s.end) return;
        cached_.find(a_.cache, task_, start, count);
        const auto* q = reinterpret_cast<const typename Few::Query*>(room_.few_q);
        for (int64_t from = s.begin / kBlock * kBlock; from < s.end; from += kBlock)
            by_runs(queries_, [&]<int64_t N>(int64_t i) {
                Few::template score<N>(q + i * deep(dim_), dim_, cached_.keys + from, coming,
                                       room_.rows_of_scores + i * kTile + from);
            });
        if constexpr (CachedTile<K>::kInt8)
            for (int64_t i = 0; i < queries_; ++i) cached_.scale_row(s.end, room_.rows_of_scores + i * kTile);
        weigh(0, s.end > kDeep ? kTile : kDeep, s, room_.section);
        by_runs(queries_, [&]<int64_t N>(int64_t i) {
            Few::template add<N>(room_.weights + i * kTile, cached_, s.begin, s.end, dim_, coming, room_.section + i * size_,
                                 size_);
        });
    }

    Sight sight(int64_t block, int64_t start, int64_t count) const {
        const int32_t *positions = room_.positions + block * kBlock, *limits = room_.limits + block * kBlock;
        const __m512i none = _mm512_setzero_si512(), all = _mm512_set1_epi32(kTile);
        const int64_t window = a_.window < kFarthest ? a_.window : kFarthest;
        if (count == kTile && limits[0] - start >= kTile && positions[kBlock - 1] - start < window)
            return {none, all, 0, kTile, true};
        const __m512i seen = _mm512_sub_epi32(_mm512_load_si512(limits), _mm512_set1_epi32(static_cast<int32_t>(start)));
        const __m512i back = _mm512_sub_epi32(_mm512_load_si512(positions), _mm512_set1_epi32(static_cast<int32_t>(start - 1)));
        const auto within = [&](__m512i v, int64_t most) {
            return _mm512_max_epi32(none, _mm512_min_epi32(v, _mm512_set1_epi32(static_cast<int32_t>(most))));
        };
        Sight s{within(_mm512_sub_epi32(back, _mm512_set1_epi32(static_cast<int32_t>(window))), kTile), within(seen, count),
                kTile, 0, false};
        const __mmask16 some = _mm512_cmplt_epi32_mask(s.first, s.last);
        if (some == 0) return s;
        s.begin = _mm512_mask_reduce_min_epi32(some, s.first);
        s.end = _mm512_mask_reduce_max_epi32(some, s.last);
        s.whole = (_mm512_cmpneq_epi32_mask(s.first, none) | _mm512_cmpneq_epi32_mask(s.last, all)) == 0;
        return s;
    }

    // Keys of a tile as the products take them, sixteen by sixteen; the result is how far apart rows of a part lie.
    int64_t arrange_keys(int64_t count, int64_t keys, const uint16_t** parts) {
        const int64_t depth = deep(dim_);
        if constexpr (Way::kAsTiles && !CachedTile<K>::kInt8)
            // Where they are, if sixteen follow each other evenly and no more than one block of queries comes by.
            if (blocks_ == 1 && depth == dim_ && a_.cache.block_size % kBlock == 0) {
                // A block that the context only begins is in the cache as a whole.
                for (int64_t i = 0; i < keys; i += kBlock) parts[i / kBlock] = cached_.keys[i < count ? i : 0];
                return a_.cache.kv_heads * dim_;
            }
        if constexpr (Way::kAsTiles)
            cached_.copy_keys(keys, dim_, room_.keys);
        else
            cached_.turn_keys(keys, dim_, room_.keys);
        for (int64_t i = 0; i < keys; i += kBlock) parts[i / kBlock] = room_.keys + i * depth;
        return depth;
    }

    void tile(int64_t start, int64_t count, Coming& coming) {
        const NormalNumbers normal;
        if (few_) return tile_for_few(start, count, coming);
        cached_.find(a_.cache, task_, start, count);
        if (start == task_.begin) cached_.ask(dim_);
        const int64_t keys = count > kDeep ? kTile : kDeep, depth = deep(dim_);
        const uint16_t* parts[kParts];
        const int64_t stride = arrange_keys(count, keys, parts);
        const bool finite = cached_.pair_values(0, count, keys, dim_, room_.values);
        for (int64_t block = 0; block < blocks_; ++block) {
            coming.ask_part(blocks_);
            const Sight s = sight(block, start, count);
            if (s.begin >= s.end) continue;
            const int64_t seen = s.end > kDeep ? kTile : kDeep;
            Way::score(room_.q + block * depth * kBlock, parts, stride, seen, depth, room_.scores);
            if constexpr (CachedTile<K>::kInt8) cached_.scale_columns(seen, room_.scores);
            float* sums = room_.section + block * kBlock * size_;
            weigh(block, seen, s, sums);
            if (finite || s.whole)
                Way::add(room_.weights, room_.values, seen, queries_in(block), padded(dim_), sums, size_);
            else
                add_one_by_one(block, count, seen, s, sums);
        }
    }

    int64_t queries_in(int64_t block) const {
        const int64_t left = queries_ - block * kBlock;
        return left < kBlock ? left : kBlock;
    }

    void weigh(int64_t block, int64_t seen, const Sight& s, float* sums) {
        const int64_t queries = queries_in(block);
        float *top = room_.tops + block * kBlock, *weight = room_.totals + block * kBlock;
        __m512 tops = _mm512_load_ps(top), weights = _mm512_load_ps(weight);
        const bool by_rows = few_ || queries <= 4;
        if (by_rows && !few_) first_columns(room_.scores, seen, room_.rows_of_scores);
        const __m512 keep =
            by_rows ? soften_rows(room_.rows_of_scores, queries, seen, s, scale_, tops, weights, room_.weights)
                    : soften(room_.scores, seen, s, scale_, tops, weights, room_.weights);
        _mm512_store_ps(top, tops);
        _mm512_store_ps(weight, weights);
        unsigned changed = _mm512_cmp_ps_mask(keep, _mm512_set1_ps(1), _CMP_NEQ_UQ) & first(queries);
        if (changed == 0) return;
        alignas(64) float by[kBlock];
        _mm512_store_ps(by, keep);
        for (; changed != 0; changed &= changed - 1) {
            const int64_t i = __builtin_ctz(changed);
            for (int64_t d = 0; d < padded(dim_); d += 16)
                _mm512_storeu_ps(sums + i * size_ + d,
                                 _mm512_mul_ps(_mm512_loadu_ps(sums + i * size_ + d), _mm512_set1_ps(by[i])));
        }
    }

    // Where some value is no number: a weight of 0 would let it into queries that do not see it. The sums of each query are
    // taken from a product with the values that it sees.
    void add_one_by_one(int64_t block, int64_t count, int64_t seen, const Sight& s, float* sums) {
        alignas(64) int32_t first[kBlock], last[kBlock];
        _mm512_store_si512(first, s.first);
        _mm512_store_si512(last, s.last);
        std::vector<float> copied(kBlock * size_ + 16);
        float* copy = copied.data() + (64 - reinterpret_cast<uintptr_t>(copied.data()) % 64) % 64 / sizeof(float);
        for (int64_t i = 0; i < queries_in(block); ++i) {
            cached_.pair_values(first[i], last[i], seen, dim_, room_.values);
            __builtin_memcpy(copy, sums, kBlock * size_ * sizeof(float));
            Way::add(room_.weights, room_.values, seen, kBlock, padded(dim_), copy, size_);
            __builtin_memcpy(sums + i * size_, copy + i * size_, padded(dim_) * sizeof(float));
        }
        cached_.pair_values(0, count, count > kDeep ? kTile : kDeep, dim_, room_.values);
    }

    void finish(int64_t query, const float* from) {
        if (task_.partial != nullptr) {
            __builtin_memcpy(task_.partial + query * size_, from, size_ * sizeof(float));
            return;
        }
        uint16_t* to = static_cast<uint16_t*>(a_.out) + place(query);
        // As `finish` of attention.inc has it.
        float total = from[padded(dim_)];
        if (a_.sinks != nullptr)
            total += std::exp(a_.sinks[task_.kv_head * group_ + query % group_] - from[padded(dim_) + 1]);
        const __m512 weight = _mm512_set1_ps(total);
        for (int64_t d = 0; d < dim_; d += 16) narrow(to + d, _mm512_div_ps(_mm512_loadu_ps(from + d), weight), first(dim_ - d));
    }

    const Attention& a_;
    const AttentionTask& task_;
    const int64_t dim_, size_, group_, queries_, blocks_;
    bool few_;
    bool folded_ = false;  // whether `all` has sections before the present one
    const float scale_;
    const Room room_;
    CachedTile<K> cached_;
};

template <typename Way, typename K>
void attend_to(const Attention& a, const AttentionRun& run, float* scratch) {
    const int64_t floats = floats_of(run.tasks->rows * (a.heads / a.cache.kv_heads), a.cache.dim);
    std::vector<Attending<Way, K>> heads;
    heads.reserve(run.count);
    for (int64_t i = 0; i < run.count; ++i) heads.emplace_back(a, run.tasks[i], scratch + i * floats);
    Attending<Way, K>::run(heads.data(), run.count, run.next);
}

template <typename Way>
void attend(const Attention& a, const AttentionRun& run, float* scratch) {
    if (a.cache.key_scales != nullptr)
        attend_to<Way, int8_t>(a, run, scratch);
    else
        attend_to<Way, uint16_t>(a, run, scratch);
}

constexpr int64_t kQueries = 256;  // of a task at most: so many share a copy of the keys and values

}  // namespace
}  // namespace headgate
#pragma GCC pop_options
#endif

namespace headgate {
namespace {

constexpr int64_t kQueriesInFloat32 = 32;

}  // namespace

AttentionWay attention_way(Element element, [[maybe_unused]] int64_t group) {
#if defined(HEADGATE_BF16_ATTENTION)
    if (element == Element::bf16) {
        if (allowed(Instructions::amx_bf16)) return {attend<Tiles>, floats_of, kQueries};
        if (allowed(Instructions::avx512_bf16)) return {attend<Vectors>, floats_of, kQueries};
    }
#endif
    return {loops(element).attend, scratch_floats, kQueriesInFloat32};
}

}  // namespace headgate
