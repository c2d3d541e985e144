#include "quant.h"

bool quant_geometry(Py_ssize_t bits, Py_ssize_t group, Py_ssize_t rows, Py_ssize_t cols, struct geometry *g)
{
    const bool known = group == 0 ? bits == 8 || bits == 4
                                  : group == SUPER && (bits == 6 || bits == 4 || bits == 3 || bits == 2);
    if (!known) {
        PyErr_Format(PyExc_ValueError, "no method of %zd bits in super-blocks of %zd", bits, group);
        return false;
    }
    /* Each row takes up to a super-block more than its columns. */
    if (cols < 1 || cols > PY_SSIZE_T_MAX - BLOCK * SUPER || rows > PY_SSIZE_T_MAX / 4 / (cols + BLOCK * SUPER)) {
        PyErr_Format(PyExc_ValueError, "%zd rows of %zd columns", rows, cols);
        return false;
    }
    const size_t blocks = ((size_t)cols + BLOCK - 1) / BLOCK;
    *g = (struct geometry){
        .bits = (int)bits,
        .group = (int)group,
        .rows = (size_t)rows,
        .cols = (size_t)cols,
        .blocks = blocks,
        .supers = group ? (blocks + SUPER - 1) / SUPER : 0,
        .block_bytes = (size_t)bits * BLOCK / 8,
    };
    return true;
}

bool quant_holds(const Py_buffer *buffer, size_t count, size_t width, const char *what)
{
    if ((size_t)buffer->len == count * width)
        return true;
    PyErr_Format(PyExc_ValueError, "%zu %s take %zu bytes, not %zd", count, what, count * width, buffer->len);
    return false;
}

bool quant_regions(const struct geometry *g, const Py_buffer *values, const Py_buffer *scales, const Py_buffer *subs,
                   const Py_buffer *codes)
{
    return quant_holds(values, g->rows * g->cols, 4, "values") &&
           quant_holds(scales, g->rows * (g->group ? g->supers : g->blocks), 2, "scales") &&
           quant_holds(subs, g->group ? g->rows * g->blocks : 0, 1, "sub-scales") &&
           quant_holds(codes, g->rows * g->blocks * g->block_bytes, 1, "code bytes");
}

bool quant_flat(Py_ssize_t bits, Py_ssize_t count)
{
    if (bits != 8 && bits != 4) {
        PyErr_Format(PyExc_ValueError, "bits must be 4 or 8, not %zd", bits);
        return false;
    }
    if (count > PY_SSIZE_T_MAX / 8) {
        PyErr_Format(PyExc_ValueError, "%zd values", count);
        return false;
    }
    return true;
}
