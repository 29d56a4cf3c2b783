// What the processor has, asked once.
#include "choice.h"

#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEADGATE_VARIANTS 1
#include <cpuid.h>
#endif
#if defined(HEADGATE_VARIANTS) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace headgate {
namespace {

struct Found {
    bool avx2 = false;
    bool avx512 = false;
    bool vnni = false;
    bool bf16 = false;
    bool amx_int8 = false;
    bool amx_bf16 = false;
    std::string name = "128-bit vectors";
};

#if defined(HEADGATE_VARIANTS)
// Tiles are large; Linux gives a process their room in the saved state only when asked.
bool tiles_granted() {
#if defined(__linux__) && defined(SYS_arch_prctl)
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
    return false;
#endif
}

Found find() {
    Found found;
    const char* most = std::getenv("HEADGATE_VECTORS");
    const auto up_to = [&](const char* level) { return most == nullptr || std::strcmp(most, level) == 0; };
    found.avx2 = (up_to("avx512") || up_to("avx2")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!found.avx2) return found;
    found.name = "AVX2";
    found.avx512 = up_to("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!found.avx512) return found;
    found.name = "AVX-512";
    found.vnni = __builtin_cpu_supports("avx512vnni");
    found.bf16 = __builtin_cpu_supports("avx512bf16");
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (most == nullptr && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0 && tiles_granted()) {
        found.amx_bf16 = (d >> 22 & 1) != 0;
        found.amx_int8 = found.vnni && (d >> 25 & 1) != 0;
    }
    if (found.vnni) found.name += ", VNNI";
    if (found.bf16) found.name += ", BF16";
    if (found.amx_int8 || found.amx_bf16) found.name += ", AMX";
    return found;
}
#else
Found find() { return {}; }
#endif

const Found& found() {
    static const Found once = find();
    return once;
}

}  // namespace

bool allowed(Instructions instructions) {
    switch (instructions) {
        case Instructions::avx2: return found().avx2;
        case Instructions::avx512: return found().avx512;
        case Instructions::avx512_vnni: return found().vnni;
        case Instructions::avx512_bf16: return found().bf16;
        case Instructions::amx_int8: return found().amx_int8;
        case Instructions::amx_bf16: return found().amx_bf16;
    }
    return false;
}

const char* instruction_set() { return found().name.c_str(); }

}  // namespace headgate
