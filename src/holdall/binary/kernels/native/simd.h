/* One body, compiled once per instruction set.
 *
 * A kernel is written as plain C in an INLINE function `name_body`. SIMD_LEVELS(name, ...) wraps it in one function per
 * level, each with its own target, and puts them in the table `name`; the compiler vectorizes each copy with what that
 * target has. Bodies use integer arithmetic or single exactly rounded float operations, and -ffp-contract=off keeps it
 * so: every level gives the same bits.
 */
#ifndef HOLDALL_SIMD_H
#define HOLDALL_SIMD_H

#include "memory.h"

/* 0 baseline, 1 AVX2, 2 AVX-512; without targets always 0. Fixed by simd_choose. */
extern int simd_level;

/* Takes the best level of this CPU, or a lower one that HOLDALL_SIMD=0|1|2 asks for. Called once, at import. */
void simd_choose(void);

#if HOLDALL_TARGETS
#define SIMD_LEVELS(name, parameters, arguments)                                                                       \
    static void name##_base parameters { name##_body arguments; }                                                      \
    TARGET("avx2,bmi2") static void name##_avx2 parameters { name##_body arguments; }                                  \
    TARGET("avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl") static void name##_avx512 parameters                        \
    {                                                                                                                  \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    static void(*const name[]) parameters = {name##_base, name##_avx2, name##_avx512};
#else
#define SIMD_LEVELS(name, parameters, arguments)                                                                       \
    static void name##_base parameters { name##_body arguments; }                                                      \
    static void(*const name[]) parameters = {name##_base};
#endif

#endif
