#include "simd.h"

#include <stdlib.h>

int simd_level = 0;

static int best_level(void)
{
#if HOLDALL_TARGETS
    if (!CPU_HAS("avx2") || !CPU_HAS("bmi2"))
        return 0;
    if (!CPU_HAS("avx512f") || !CPU_HAS("avx512bw") || !CPU_HAS("avx512dq") || !CPU_HAS("avx512vl"))
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
