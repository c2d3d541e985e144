/* Everything that depends on the compiler.
 *
 * GCC and clang have attributes and builtins. Other compilers, such as MSVC, get plain C in their place: the same bits,
 * only slower. HOLDALL_PLAIN_C chooses the plain C with GCC and clang too, so that it can be tested there.
 */
#ifndef HOLDALL_COMPILER_H
#define HOLDALL_COMPILER_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) ? __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ : !defined(_MSC_VER)
#error "the kernels read little-endian files in place; elsewhere the Python twins serve"
#endif

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic that rounds each operation to float; elsewhere the Python twins serve"
#endif

#if defined(__GNUC__) && !defined(HOLDALL_PLAIN_C)
#define HOLDALL_GNU 1
#else
#define HOLDALL_GNU 0
#endif

/* A product and a sum stay two operations, each rounded. GCC does not know the pragma: it needs -ffp-contract=off. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define INLINE static __forceinline
#elif HOLDALL_GNU
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* ANYWHERE before a type: a number of it may lie at any address, and over bytes of any other type. The plain C keeps
 * the attribute with GCC and clang, because without it they would compile something else. */
#if defined(__GNUC__) || defined(__clang__)
#define ANYWHERE __attribute__((aligned(1), may_alias))
#elif defined(_MSC_VER)
#define ANYWHERE __unaligned
#else
#error "no way to read numbers at any address; the Python twins serve"
#endif

#if HOLDALL_GNU
/* After the name of an array: starts at a multiple of the largest vector, for speed alone. */
#define ALIGNED __attribute__((aligned(64)))
/* At the end of an outer loop: keeps the compiler from exchanging it with the loop over lanes inside. */
#define KEEP_NESTED __asm__ volatile("")
/* Before a loop over lanes: keeps the compiler from unrolling it, which would prevent vectors. */
#define KEEP_LOOP _Pragma("GCC unroll 1")
/* Before a loop of up to 18 turns: unrolls all of it. */
#define UNROLL _Pragma("GCC unroll 18")
#else
#define ALIGNED
#define KEEP_NESTED (void)0
#define KEEP_LOOP
#define UNROLL
#endif

/* Four floats in one register, and four of the eight in two of them; only where HOLDALL_GNU. */
#if HOLDALL_GNU
typedef float four __attribute__((vector_size(16)));
#if defined(__clang__)
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (int32_t __attribute__((vector_size(16)))){i, j, k, l})
#endif
#endif

/* Where HOLDALL_TARGETS, a function can be compiled for more than the baseline, and the CPU asked what it has. */
#if HOLDALL_GNU && defined(__x86_64__)
#define HOLDALL_TARGETS 1
#define TARGET(features) __attribute__((target(features)))
#define CPU_HAS(feature) __builtin_cpu_supports(feature)
#else
#define HOLDALL_TARGETS 0
#endif

/* A constant that the compiler does not know: choosing between a value and one it knows would become a branch. */
INLINE float unknown(float x)
{
#if HOLDALL_GNU
    __asm__("" : "+m"(x));
#endif
    return x;
}

/* The product and the sum of two numbers; false where it does not fit 64 bits. */
INLINE bool multiply_u64(uint64_t a, uint64_t b, uint64_t *product)
{
#if HOLDALL_GNU
    return !__builtin_mul_overflow(a, b, product);
#else
    *product = a * b;
    return a == 0 || b <= UINT64_MAX / a;
#endif
}

INLINE bool add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    *sum = a + b;
    return *sum >= a;
}

#endif
