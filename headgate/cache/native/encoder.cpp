// What Python calls: which instructions there are, weights as the products read them, and passes.
#include "encoder.h"

#include <cstdlib>
#include <cstring>

#include "comparator.h"
#include "lanes.h"

#if defined(HEADGATE_VECTORS)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "blocks.h"
#include "kernels.h"
#include "team.h"

namespace {

constexpr int64_t kMostRows = 1024;  // of one walk through the layers, unless a single text is longer

// Tiles are large; Linux gives a process their room in the saved state only when asked.
bool tiles_granted() {
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

int32_t find() {
    const char* most = std::getenv("HEADGATE_VECTORS");
    const auto up_to = [most](const char* name) { return most == nullptr || std::strcmp(most, name) == 0; };
    if (!up_to("avx2") && !up_to("avx512")) return 0;
    for (const bool has : {__builtin_cpu_supports("avx2") != 0, __builtin_cpu_supports("fma") != 0,
                           __builtin_cpu_supports("f16c") != 0})
        if (!has) return 0;
    if (!up_to("avx512")) return 1;
    for (const bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bw") != 0,
                           __builtin_cpu_supports("avx512dq") != 0, __builtin_cpu_supports("avx512vl") != 0,
                           __builtin_cpu_supports("avx512bf16") != 0})
        if (!has) return 1;
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool tiles = most == nullptr && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0 &&
                       (d >> 22 & 1) != 0 && tiles_granted();
    return tiles ? 3 : 2;
}

const headgate::Kernels& kernels(int64_t instructions) {
    return instructions == 1 ? headgate::avx2 : headgate::avx512;
}

}  // namespace

int32_t headgate_encoder_instructions() {
    static const int32_t found = find();
    return found;
}

void headgate_encoder_pack(const float* weight, int64_t outputs, int64_t inputs, uint16_t* packed) {
    for (int64_t o = 0; o < outputs; ++o) {
        uint16_t* column = packed + o / headgate::kPanel * headgate::kPanel * inputs + o % headgate::kPanel * 2;
        for (int64_t i = 0; i < inputs; ++i) {
            // To the nearest bfloat16, ties to even.
            uint32_t bits;
            std::memcpy(&bits, weight + o * inputs + i, 4);
            column[i / 2 * headgate::kPanel * 2 + i % 2] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
    }
}

void headgate_encoder_run(const HeadgateEncoder* encoder, int32_t instructions, int32_t together, const int32_t* ids,
                          const int64_t* starts, int64_t texts, float* vectors, float* states) {
    static thread_local headgate::Workspace space;
    // Never destroyed, for its thread outlives whoever would do that.
    static headgate::Team* const team = new headgate::Team;
    for (int64_t begin = 0, end = 0; begin < texts; begin = end) {
        for (end = begin + 1; end < texts && starts[end + 1] - starts[begin] <= kMostRows;) ++end;
        const headgate::Texts walked = {ids, starts + begin, end - begin, vectors + begin * encoder->hidden,
                                        states + 2 * starts[begin] * encoder->hidden};
        const auto pass = kernels(instructions).pass(*encoder, instructions == 3, walked, space);
        const bool helped = together != 0 && texts == 1 && team->enter(pass.get());
        pass->run(helped ? team : nullptr);
        if (helped) team->leave();
    }
}

void headgate_comparator_sketches(const HeadgateComparator* comparator, const HeadgateStates* given, int64_t texts,
                                  int8_t* sketches) {
    kernels(comparator->instructions).sketches(comparator, given, texts, sketches);
}

void headgate_comparator_run(const HeadgateComparator* comparator, const uint16_t* ids, const int8_t* sketches,
                             const int64_t* starts, int64_t stored, const float* cosines, float* odds) {
    kernels(comparator->instructions).compare(comparator, ids, sketches, starts, stored, cosines, odds);
}

#else

int32_t headgate_encoder_instructions() { return 0; }
void headgate_encoder_pack(const float*, int64_t, int64_t, uint16_t*) { std::abort(); }
void headgate_encoder_run(const HeadgateEncoder*, int32_t, int32_t, const int32_t*, const int64_t*, int64_t, float*, float*) {
    std::abort();
}
void headgate_comparator_sketches(const HeadgateComparator*, const HeadgateStates*, int64_t, int8_t*) { std::abort(); }
void headgate_comparator_run(const HeadgateComparator*, const uint16_t*, const int8_t*, const int64_t*, int64_t, const float*,
                             float*) {
    std::abort();
}

#endif

int32_t headgate_encoder_interface() { return 5; }
