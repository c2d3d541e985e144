/* What quantizing and dequantizing share; quant/reference.py explains the numbers. */
#ifndef HOLDALL_QUANT_H
#define HOLDALL_QUANT_H

#include "kernels.h" /* Python.h comes first */

#include "floats.h"

#include <stdbool.h>

enum { BLOCK = 32, SUPER = 8 };

/* Rows of a q* (group 0) or k* (group 8) tensor. */
struct geometry {
    int bits, group;
    size_t rows, cols;
    size_t blocks, supers; /* of one row */
    size_t block_bytes;
};

/* Whether there is such a method and the numbers are far from overflow; else an exception is set. */
bool quant_geometry(Py_ssize_t bits, Py_ssize_t group, Py_ssize_t rows, Py_ssize_t cols, struct geometry *g);

/* Whether `buffer` has exactly count elements of `width` bytes; else an exception is set. */
bool quant_holds(const Py_buffer *buffer, size_t count, size_t width, const char *what);

/* The same for all four regions of rows: values, scales, sub-scales and codes. */
bool quant_regions(const struct geometry *g, const Py_buffer *values, const Py_buffer *scales, const Py_buffer *subs,
                   const Py_buffer *codes);

/* Whether `count` values of int8 or int4 make sense; else an exception is set. */
bool quant_flat(Py_ssize_t bits, Py_ssize_t count);

/* Half precision, of any sign. */
INLINE float from_half(uint32_t code)
{
    return as_float(widen_rest(code & 0x7fff, F16) | (int32_t)((code & 0x8000) << 16));
}

#endif
