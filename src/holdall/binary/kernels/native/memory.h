/* Numbers in memory that came from a file: at any address, little-endian. */
#ifndef HOLDALL_MEMORY_H
#define HOLDALL_MEMORY_H

#include "compiler.h"

#include <string.h>

/* A tensor may start at an odd byte of a memory map, so no kernel may assume alignment. */
typedef ANYWHERE uint16_t u16_any;
typedef ANYWHERE uint32_t u32_any;
typedef ANYWHERE uint64_t u64_any;
typedef ANYWHERE float f32_any;
typedef ANYWHERE double f64_any;

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
