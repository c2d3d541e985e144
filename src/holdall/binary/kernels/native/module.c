#include "kernels.h"
#include "simd.h"

int to_size(PyObject *value, void *size)
{
    Py_ssize_t number = PyLong_AsSsize_t(value);
    if (number == -1 && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return 0;
    if (number < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "a size must be from 0 to %zd, not %S", PY_SSIZE_T_MAX, value);
        return 0;
    }
    *(Py_ssize_t *)size = number;
    return 1;
}

Py_ssize_t bytes_of(uint64_t count, uint64_t width)
{
    uint64_t size;
    if (multiply_u64(width, count, &size) && size <= (uint64_t)PY_SSIZE_T_MAX)
        return (Py_ssize_t)size;
    PyErr_NoMemory();
    return -1;
}

static PyObject *kernel_simd_level(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(simd_level);
}

static PyMethodDef functions[] = {
    {"scan", kernel_scan, METH_VARARGS, "Walk a table of variable-length entries into columns."},
    {"texts", kernel_texts, METH_VARARGS, "Decode many pieces of one buffer as strict UTF-8."},
    {"fnv1a", kernel_fnv1a, METH_VARARGS, "FNV-1a of many pieces of one buffer."},
    {"unpack", kernel_unpack, METH_VARARGS, "Spread a bit stream to one byte per element."},
    {"pack", kernel_pack, METH_VARARGS, "Squeeze one byte per element into a bit stream."},
    {"quantize_blocks", kernel_quantize_blocks, METH_VARARGS, "float32 rows to q* or k* scales and codes."},
    {"dequantize_blocks", kernel_dequantize_blocks, METH_VARARGS, "q* or k* scales and codes to float32 rows."},
    {"quantize_flat", kernel_quantize_flat, METH_VARARGS, "float32 to codes of one scale."},
    {"dequantize_flat", kernel_dequantize_flat, METH_VARARGS, "Codes of one scale to float32."},
    {"ggml_decode", kernel_ggml_decode, METH_VARARGS, "Blocks of ggml to float32."},
    {"widen", kernel_widen, METH_VARARGS, "Small floats to float32."},
    {"narrow", kernel_narrow, METH_VARARGS, "float32 to small floats, to nearest even."},
    {"equal", kernel_equal, METH_VARARGS, "Whether two buffers have the same bytes."},
    {"extremes", kernel_extremes, METH_VARARGS, "The smallest and the largest of many floats."},
    {"distance", kernel_distance, METH_VARARGS, "How far two float32 arrays are apart."},
    {"measure", kernel_measure, METH_VARARGS, "Extremes and moments of numbers, and how often each code occurs."},
    {"count_codes", kernel_count_codes, METH_VARARGS, "How often each code of one or two bytes occurs."},
    {"count_reached", kernel_count_reached, METH_VARARGS, "How many numbers are at or above each border."},
    {"bias_gelu", kernel_bias_gelu, METH_VARARGS, "GELU of rows and a bias."},
    {"add_norm", kernel_add_norm, METH_VARARGS, "Layer normalization of rows, a bias and a residual."},
    {"softmax", kernel_softmax, METH_VARARGS, "Softmax of rows."},
    {"json_tape", kernel_json_tape, METH_VARARGS, "Strict JSON as a tape of tokens."},
    {"json_records", kernel_json_records, METH_VARARGS, "The members of an object of records, as rows of tokens."},
    {"json_uints", kernel_json_uints, METH_VARARGS, "Many arrays of unsigned integers off a tape."},
    {"json_words", kernel_json_words, METH_VARARGS, "Many strings off a tape, as places in a list of words."},
    {"msgpack_walk", kernel_msgpack_walk, METH_VARARGS, "Prove one MessagePack value."},
    {"msgpack_table", kernel_msgpack_table, METH_VARARGS, "MessagePack maps, one after the other, as columns."},
    {"msgpack_dims", kernel_msgpack_dims, METH_VARARGS, "Many MessagePack arrays of sizes."},
    {"pickle_tensors", kernel_pickle_tensors, METH_VARARGS, "The tensors of a state dict, from its pickle."},
    {"protobuf_records", kernel_protobuf_records, METH_VARARGS, "The records of a protobuf message, as rows."},
    {"simd_level", kernel_simd_level, METH_NOARGS, "0 baseline, 1 AVX2, 2 AVX-512."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    (void)module;
    simd_choose();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#ifdef Py_GIL_DISABLED
    /* No kernel keeps anything between calls, so importing them need not bring the lock back. */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The kernels in C. The *_reference modules are their Python twins.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
