/* The functions that Python calls. Their Python twins document them; the two without a twin are documented in C. */
#ifndef HOLDALL_KERNELS_H
#define HOLDALL_KERNELS_H

#include <Python.h>

#include <stdint.h>

PyObject *kernel_scan(PyObject *module, PyObject *arguments);
PyObject *kernel_texts(PyObject *module, PyObject *arguments);
PyObject *kernel_fnv1a(PyObject *module, PyObject *arguments);
PyObject *kernel_unpack(PyObject *module, PyObject *arguments);
PyObject *kernel_pack(PyObject *module, PyObject *arguments);
PyObject *kernel_quantize_blocks(PyObject *module, PyObject *arguments);
PyObject *kernel_dequantize_blocks(PyObject *module, PyObject *arguments);
PyObject *kernel_quantize_flat(PyObject *module, PyObject *arguments);
PyObject *kernel_dequantize_flat(PyObject *module, PyObject *arguments);
PyObject *kernel_ggml_decode(PyObject *module, PyObject *arguments);
PyObject *kernel_widen(PyObject *module, PyObject *arguments);
PyObject *kernel_narrow(PyObject *module, PyObject *arguments);
PyObject *kernel_equal(PyObject *module, PyObject *arguments);
PyObject *kernel_extremes(PyObject *module, PyObject *arguments);
PyObject *kernel_distance(PyObject *module, PyObject *arguments);
PyObject *kernel_measure(PyObject *module, PyObject *arguments);
PyObject *kernel_count_codes(PyObject *module, PyObject *arguments);
PyObject *kernel_count_reached(PyObject *module, PyObject *arguments);
PyObject *kernel_bias_gelu(PyObject *module, PyObject *arguments);
PyObject *kernel_add_norm(PyObject *module, PyObject *arguments);
PyObject *kernel_softmax(PyObject *module, PyObject *arguments);
PyObject *kernel_json_tape(PyObject *module, PyObject *arguments);
PyObject *kernel_json_records(PyObject *module, PyObject *arguments);
PyObject *kernel_json_uints(PyObject *module, PyObject *arguments);
PyObject *kernel_json_words(PyObject *module, PyObject *arguments);
PyObject *kernel_protobuf_records(PyObject *module, PyObject *arguments);
PyObject *kernel_msgpack_walk(PyObject *module, PyObject *arguments);
PyObject *kernel_msgpack_table(PyObject *module, PyObject *arguments);
PyObject *kernel_msgpack_dims(PyObject *module, PyObject *arguments);
PyObject *kernel_pickle_tensors(PyObject *module, PyObject *arguments);

/* "O&" converter: a Python int into a Py_ssize_t of 0 or more. Sizes come from files, so one that does not fit is a
 * ValueError like every other size out of bounds, not the OverflowError of "n". */
int to_size(PyObject *value, void *size);

/* The bytes of `count` things of `width`, or -1 with a MemoryError: on a machine of 32 bits a small file can ask for more
 * than there are addresses. */
Py_ssize_t bytes_of(uint64_t count, uint64_t width);

#endif
