// Which instructions this process uses: what the processor has, less what HEADGATE_VECTORS holds back.
#pragma once

namespace headgate {

enum class Instructions { avx2, avx512, avx512_vnni, avx512_bf16, amx_int8, amx_bf16 };

// Settled once per process. HEADGATE_VECTORS=avx512, avx2 or baseline allows no more than that (avx512 means all but AMX), so
// that a test sees what other processors run.
bool allowed(Instructions instructions);

// For the log, such as "AVX-512, VNNI, BF16, AMX".
const char* instruction_set();

}  // namespace headgate
