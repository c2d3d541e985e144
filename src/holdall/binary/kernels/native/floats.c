/* Small floats to and from float32, all branchless so that the loops vectorize. */
#include "kernels.h"

#include "floats.h"
#include "simd.h"

#include <stdbool.h>

static const struct layout E5M2 = {2, 15, 0x7c, 0x7e, 0};
static const struct layout E4M3 = {3, 7, 0x7f, 0x7f, 0};

INLINE void widen_16(const u16_any *codes, u32_any *out, size_t count, struct layout small)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t code = codes[i];
        out[i] = (uint32_t)widen_rest(code & 0x7fff, small) | (code & 0x8000) << 16;
    }
}

INLINE void widen_8(const uint8_t *codes, u32_any *out, size_t count, struct layout small)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t code = codes[i];
        out[i] = (uint32_t)widen_rest(code & 0x7f, small) | (code & 0x80) << 24;
    }
}

INLINE void narrow_16(const u32_any *values, u16_any *out, size_t count, struct layout small)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (uint16_t)((uint32_t)narrow_rest(values[i] & F32_REST, small) | (values[i] >> 16 & 0x8000));
}

INLINE void narrow_8(const u32_any *values, uint8_t *out, size_t count, struct layout small)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)((uint32_t)narrow_rest(values[i] & F32_REST, small) | (values[i] >> 24 & 0x80));
}

/* bf16 is the upper half of a float32, subnormals and all. */
INLINE void widen_bf16(const u16_any *codes, u32_any *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (uint32_t)codes[i] << 16;
}

INLINE void narrow_bf16(const u32_any *values, u16_any *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t value = values[i];
        uint32_t rounded = (value + 0x7fff + (value >> 16 & 1)) >> 16;
        uint32_t quieted = value >> 16 | 0x40;
        out[i] = (uint16_t)((int32_t)(value & F32_REST) > F32_INFINITY ? quieted : rounded);
    }
}

enum kind { KIND_BF16, KIND_F16, KIND_E4M3, KIND_E5M2, KINDS };

static const struct {
    const char *name;
    Py_ssize_t width;
} kinds[KINDS] = {{"bf16", 2}, {"f16", 2}, {"f8_e4m3", 1}, {"f8_e5m2", 1}};

/* The switches make the layout a constant of each loop. */
INLINE void widen_body(int kind, const void *codes, void *out, size_t count)
{
    switch (kind) {
    case KIND_BF16: widen_bf16(codes, out, count); break;
    case KIND_F16: widen_16(codes, out, count, F16); break;
    case KIND_E4M3: widen_8(codes, out, count, E4M3); break;
    default: widen_8(codes, out, count, E5M2); break;
    }
}

INLINE void narrow_body(int kind, const void *values, void *out, size_t count)
{
    switch (kind) {
    case KIND_BF16: narrow_bf16(values, out, count); break;
    case KIND_F16: narrow_16(values, out, count, F16); break;
    case KIND_E4M3: narrow_8(values, out, count, E4M3); break;
    default: narrow_8(values, out, count, E5M2); break;
    }
}

SIMD_LEVELS(widen, (int kind, const void *codes, void *out, size_t count), (kind, codes, out, count))
SIMD_LEVELS(narrow, (int kind, const void *values, void *out, size_t count), (kind, values, out, count))

/* Codes as whole numbers in the order of the floats they stand for, whose magnitudes and signs they are: a NaN lies
 * beyond the infinities. The same function leads back. */
INLINE int32_t order_32(int32_t code) { return code ^ (code >> 31 & 0x7fffffff); }
INLINE int16_t order_16(int16_t code) { return (int16_t)(code ^ (code >> 15 & 0x7fff)); }
INLINE int8_t order_8(int8_t code) { return (int8_t)(code ^ (code >> 7 & 0x7f)); }

#define FIND_ENDS(width)                                                                                               \
    INLINE void find_ends_##width(const void *data, size_t count, int32_t *low, int32_t *high)                         \
    {                                                                                                                  \
        const i##width##_any *codes = data;                                                                            \
        int##width##_t least = INT##width##_MAX, most = INT##width##_MIN;                                              \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const int##width##_t place = order_##width(codes[i]);                                                      \
            least = place < least ? place : least;                                                                     \
            most = place > most ? place : most;                                                                        \
        }                                                                                                              \
        *low = order_##width(least), *high = order_##width(most);                                                      \
    }

typedef ANYWHERE int32_t i32_any;
typedef ANYWHERE int16_t i16_any;
typedef int8_t i8_any;

FIND_ENDS(32)
FIND_ENDS(16)
FIND_ENDS(8)

INLINE void extremes_body(Py_ssize_t width, const void *data, size_t count, int32_t *low, int32_t *high)
{
    switch (width) {
    case 4: find_ends_32(data, count, low, high); break;
    case 2: find_ends_16(data, count, low, high); break;
    default: find_ends_8(data, count, low, high); break;
    }
}

SIMD_LEVELS(extremes, (Py_ssize_t width, const void *data, size_t count, int32_t *low, int32_t *high),
            (width, data, count, low, high))

static bool find_kind(const char *name, int *kind)
{
    for (*kind = 0; *kind < KINDS && strcmp(kinds[*kind].name, name); ++*kind)
        continue;
    if (*kind == KINDS)
        PyErr_Format(PyExc_ValueError, "no float kind '%s'", name);
    return *kind < KINDS;
}

/* Whether there is such a kind and the two buffers hold equally many of it and of float32. */
static bool check(const char *name, const Py_buffer *small, const Py_buffer *wide, int *kind)
{
    if (!find_kind(name, kind))
        return false;
    if (wide->len % 4 || small->len % kinds[*kind].width || small->len / kinds[*kind].width != wide->len / 4) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of %s and %zd bytes of f32 are not equally many elements", small->len,
                     name, wide->len);
        return false;
    }
    return true;
}

PyObject *kernel_widen(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    Py_buffer data, out;
    if (!PyArg_ParseTuple(arguments, "sy*w*:widen", &name, &data, &out))
        return NULL;
    int kind;
    bool valid = check(name, &data, &out, &kind);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        widen[simd_level](kind, data.buf, out.buf, (size_t)out.len / 4);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}

PyObject *kernel_narrow(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    Py_buffer data, out;
    if (!PyArg_ParseTuple(arguments, "sy*w*:narrow", &name, &data, &out))
        return NULL;
    int kind;
    bool valid = check(name, &out, &data, &kind);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        narrow[simd_level](kind, data.buf, out.buf, (size_t)data.len / 4);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}

PyObject *kernel_extremes(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "sy*:extremes", &name, &data))
        return NULL;
    const bool wide = !strcmp(name, "f32");
    int kind = KINDS;
    bool valid = wide || find_kind(name, &kind);
    const Py_ssize_t width = wide || !valid ? 4 : kinds[kind].width;
    if (valid && (!data.len || data.len % width)) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no elements of %s", data.len, name);
        valid = false;
    }
    float ends[2] = {0, 0};
    if (valid) {
        int32_t low, high;
        Py_BEGIN_ALLOW_THREADS
        extremes[simd_level](width, data.buf, (size_t)(data.len / width), &low, &high);
        Py_END_ALLOW_THREADS
        if (wide)
            ends[0] = as_float(low), ends[1] = as_float(high);
        else {
            const uint16_t words[2] = {(uint16_t)low, (uint16_t)high};
            const uint8_t bytes[2] = {(uint8_t)low, (uint8_t)high};
            widen[0](kind, width == 2 ? (const void *)words : (const void *)bytes, ends, 2);
        }
    }
    PyBuffer_Release(&data);
    return valid ? Py_BuildValue("dd", (double)ends[0], (double)ends[1]) : NULL;
}
