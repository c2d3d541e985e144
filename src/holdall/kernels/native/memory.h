/* Numbers in memory that came from a file: at any address, little-endian. */
#ifndef HOLDALL_MEMORY_H
#define HOLDALL_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read little-endian files in place; elsewhere the Python twins serve"
#endif

#define INLINE static inline __attribute__((always_inline))

/* A tensor may start at an odd byte of a memory map, so no kernel may assume alignment. */
typedef uint16_t u16_any __attribute__((aligned(1), may_alias));
typedef uint32_t u32_any __attribute__((aligned(1), may_alias));
typedef uint64_t u64_any __attribute__((aligned(1), may_alias));

INLINE uint64_t load_u64(const void *at) { return *(const u64_any *)at; }
INLINE void store_u64(void *at, uint64_t value) { *(u64_any *)at = value; }

INLINE uint64_t load_uint(const uint8_t *at, int width)
{
    switch (width) {
    case 1: return *at;
    case 2: return *(const u16_any *)at;
    case 4: return *(const u32_any *)at;
    default: return load_u64(at);
    }
}

INLINE size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

#endif
