#include "kernels.h"
#include "memory.h"

/* Decodes with CPython's decoder, which is strict, and fast for ASCII. Returns the new list, or NULL with an error
 * set. */
static PyObject *decode_pieces(const Py_buffer *data, const Py_buffer *positions, const Py_buffer *lengths,
                               Py_ssize_t *bad)
{
    Py_ssize_t count = positions->len / 8;
    if (positions->len % 8 || lengths->len != positions->len)
        return PyErr_Format(PyExc_ValueError, "positions and lengths must be uint64, as many of one as of the other");
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        uint64_t at = load_u64((const char *)positions->buf + 8 * i);
        uint64_t length = load_u64((const char *)lengths->buf + 8 * i);
        if (at > (uint64_t)data->len || length > (uint64_t)data->len - at) {
            Py_DECREF(list);
            return PyErr_Format(PyExc_ValueError, "text %zd does not lie within the %zd bytes", i, data->len);
        }
        PyObject *text = PyUnicode_DecodeUTF8((const char *)data->buf + at, (Py_ssize_t)length, NULL);
        if (text) {
            PyList_SetItem(list, i, text);
            continue;
        }
        PyObject *before = NULL;
        if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            *bad = i;
            before = PyList_GetSlice(list, 0, i);
        }
        Py_DECREF(list);
        return before;
    }
    return list;
}

PyObject *kernel_texts(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, positions, lengths;
    if (!PyArg_ParseTuple(arguments, "y*y*y*:texts", &data, &positions, &lengths))
        return NULL;
    Py_ssize_t bad = -1;
    PyObject *list = decode_pieces(&data, &positions, &lengths, &bad);
    PyBuffer_Release(&data);
    PyBuffer_Release(&positions);
    PyBuffer_Release(&lengths);
    return list ? Py_BuildValue("(Nn)", list, bad) : NULL;
}
