#include "simd.h"

#include <stdlib.h>

int simd_level = 0;

static int best_level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("f16c"))
        return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 1;
    return 2;
#else
    return 0;
#endif
}

void simd_choose(void)
{
    simd_level = best_level();
    const char *asked = getenv("HOLDALL_SIMD");
    if (asked && asked[0] >= '0' && asked[0] <= '2' && !asked[1] && asked[0] - '0' < simd_level)
        simd_level = asked[0] - '0';
}
