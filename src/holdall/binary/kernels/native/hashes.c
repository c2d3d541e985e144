#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

/* 32-bit FNV-1a of many short texts. */

struct pieces {
    const uint8_t *data;
    const char *positions, *lengths;
    Py_ssize_t count;
};

static void hash_pieces(const struct pieces *p, uint8_t *out)
{
    for (Py_ssize_t i = 0; i < p->count; i++) {
        const uint8_t *text = p->data + load_u64(p->positions + 8 * i);
        const size_t length = (size_t)load_u64(p->lengths + 8 * i);
        uint32_t hash = 0x811C9DC5u;
        for (size_t k = 0; k < length; k++)
            hash = (hash ^ text[k]) * 0x01000193u;
        *(u32_any *)(out + 4 * i) = hash;
    }
}

/* Whether every piece lies within the `size` bytes; else sets ValueError. */
static bool check_pieces(const struct pieces *p, size_t size)
{
    for (Py_ssize_t i = 0; i < p->count; i++) {
        uint64_t at = load_u64(p->positions + 8 * i), length = load_u64(p->lengths + 8 * i);
        if (at > size || length > size - at) {
            PyErr_Format(PyExc_ValueError, "text %zd does not lie within the %zu bytes", i, size);
            return false;
        }
    }
    return true;
}

/* Whether two buffers share no byte. Hashes written over the positions would be read as positions that were never
 * checked. */
static bool are_apart(const Py_buffer *a, const Py_buffer *b)
{
    const uintptr_t x = (uintptr_t)a->buf, y = (uintptr_t)b->buf;
    return x < y ? y - x >= (uintptr_t)a->len : x - y >= (uintptr_t)b->len;
}

PyObject *kernel_fnv1a(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, positions, lengths, out;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*:fnv1a", &data, &positions, &lengths, &out))
        return NULL;
    struct pieces pieces = {data.buf, positions.buf, lengths.buf, positions.len / 8};
    bool valid = false;
    if (positions.len % 8 || lengths.len != positions.len)
        PyErr_SetString(PyExc_ValueError, "positions and lengths must be uint64, as many of one as of the other");
    else if (out.len != 4 * pieces.count)
        PyErr_Format(PyExc_ValueError, "%zd hashes take 4 bytes each, not %zd in all", pieces.count, out.len);
    else if (!are_apart(&out, &positions) || !are_apart(&out, &lengths))
        PyErr_SetString(PyExc_ValueError, "hashes cannot be written over positions or lengths");
    else
        valid = check_pieces(&pieces, (size_t)data.len);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        hash_pieces(&pieces, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&positions);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&out);
    return valid ? Py_NewRef(Py_None) : NULL;
}
