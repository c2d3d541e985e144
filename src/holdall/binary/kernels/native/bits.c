/* Elements of 1, 2, 3, 4 or 6 bits, least significant bit first, to and from one byte each. Eight elements are exactly
 * `bits` bytes, so a 64-bit word holds a group of eight as eight byte lanes and each kernel moves whole groups. */
#include "kernels.h"
#include "simd.h"

#include <stdbool.h>

#define LANES_8 0x0101010101010101u
#define LANES_16 0x0001000100010001u
#define LANES_32 0x0000000100000001u

/* 8 * bits adjacent bits to eight byte lanes: halve three times, each time moving the upper half to its own lane. */
INLINE uint64_t spread(uint64_t word, int bits)
{
    const uint64_t four = (1u << 4 * bits) - 1;
    const uint64_t two = ((1u << 2 * bits) - 1) * LANES_32;
    const uint64_t one = ((1u << bits) - 1) * LANES_16;
    word = (word & four) | (word >> 4 * bits & four) << 32;
    word = (word & two) | (word >> 2 * bits & two) << 16;
    return (word & one) | (word >> bits & one) << 8;
}

/* The inverse of spread; bits of a lane above `bits` are dropped. */
INLINE uint64_t squeeze(uint64_t word, int bits)
{
    const uint64_t four = (1u << 4 * bits) - 1;
    const uint64_t two = ((1u << 2 * bits) - 1) * LANES_32;
    const uint64_t one = ((1u << bits) - 1) * LANES_16;
    word = (word & one) | (word >> 8 & one) << bits;
    word = (word & two) | (word >> 16 & two) << 2 * bits;
    return (word & four) | (word >> 32 & four) << 4 * bits;
}

/* What a code means: value = ((code << scale) ^ flip) - flip - minus, in each lane.
 *   unsigned           the code itself
 *   two's complement   flip is the sign bit: flipping and subtracting it extends the sign
 *   sign bit           twice the code, minus one */
struct meaning {
    int scale;
    uint64_t flip, minus;
};

INLINE uint64_t apply(struct meaning m, uint64_t codes)
{
    /* Setting the top bit of every lane first keeps a borrow inside its lane; codes never reach that bit. */
    const uint64_t top = 0x80 * LANES_8;
    return (((codes << m.scale ^ m.flip) | top) - m.flip - m.minus) ^ top;
}

INLINE void unpack_groups(const uint8_t *stream, size_t size, int shift, struct meaning m, uint8_t *out, size_t count,
                          int bits)
{
    const size_t step = (size_t)bits;
    /* Groups whose 8-byte load stays inside the stream; 8 * 6 bits plus the shift never need a ninth byte. */
    const size_t whole = size < 8 ? 0 : min_size(count / 8, (size - 8) / step + 1);
    if (shift == 0 && (bits == 1 || bits == 2 || bits == 4))
        /* Loads of just the group's bytes follow each other without gaps: this loop vectorizes. */
        for (size_t group = 0; group < whole; group++)
            store_u64(out + 8 * group, apply(m, spread(load_uint(stream + group * step, bits), bits)));
    else
        for (size_t group = 0; group < whole; group++)
            store_u64(out + 8 * group, apply(m, spread(load_u64(stream + group * step) >> shift, bits)));
    for (size_t group = whole; 8 * group < count; group++) {
        uint64_t word = 0;
        memcpy(&word, stream + group * step, min_size(8, size - group * step));
        word = apply(m, spread(word >> shift, bits));
        memcpy(out + 8 * group, &word, min_size(8, count - 8 * group));
    }
}

INLINE void pack_groups(const uint8_t *codes, size_t count, uint8_t *out, int bits)
{
    const size_t step = (size_t)bits, whole = count / 8, left = count % 8;
    for (size_t group = 0; group < whole; group++) {
        uint64_t word = squeeze(load_u64(codes + 8 * group), bits);
        memcpy(out + group * step, &word, step);
    }
    uint64_t word = 0;
    memcpy(&word, codes + 8 * whole, left);
    word = squeeze(word, bits);
    memcpy(out + whole * step, &word, (left * step + 7) / 8);
}

/* The switches make `bits` a constant of each loop. */
INLINE void unpack_body(const uint8_t *stream, size_t size, int shift, struct meaning m, uint8_t *out, size_t count,
                        int bits)
{
    switch (bits) {
    case 1: unpack_groups(stream, size, shift, m, out, count, 1); break;
    case 2: unpack_groups(stream, size, shift, m, out, count, 2); break;
    case 3: unpack_groups(stream, size, shift, m, out, count, 3); break;
    case 4: unpack_groups(stream, size, shift, m, out, count, 4); break;
    default: unpack_groups(stream, size, shift, m, out, count, 6); break;
    }
}

INLINE void pack_body(const uint8_t *codes, size_t count, uint8_t *out, int bits)
{
    switch (bits) {
    case 1: pack_groups(codes, count, out, 1); break;
    case 2: pack_groups(codes, count, out, 2); break;
    case 3: pack_groups(codes, count, out, 3); break;
    case 4: pack_groups(codes, count, out, 4); break;
    default: pack_groups(codes, count, out, 6); break;
    }
}

SIMD_LEVELS(unpack,
            (const uint8_t *stream, size_t size, int shift, struct meaning m, uint8_t *out, size_t count, int bits),
            (stream, size, shift, m, out, count, bits))
SIMD_LEVELS(pack, (const uint8_t *codes, size_t count, uint8_t *out, int bits), (codes, count, out, bits))

static bool check_bits(Py_ssize_t bits)
{
    if (bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 6)
        return true;
    PyErr_Format(PyExc_ValueError, "bits must be 1, 2, 3, 4 or 6, not %zd", bits);
    return false;
}

static bool find_meaning(Py_ssize_t kind, Py_ssize_t bits, struct meaning *m)
{
    const uint64_t sign = (1u << (bits - 1)) * LANES_8;
    if (kind == 0)
        *m = (struct meaning){0, 0, 0};
    else if (kind == 1)
        *m = (struct meaning){0, sign, 0};
    else if (kind == 2 && bits == 1)
        *m = (struct meaning){1, 0, LANES_8};
    else {
        PyErr_Format(PyExc_ValueError, "no kind %zd of %zd bits", kind, bits);
        return false;
    }
    return true;
}

/* Whether elements [0, count) from bit `offset` lie within `size` bytes, without computing a sum that may overflow. */
static bool stream_holds(size_t size, size_t offset, size_t count, size_t bits)
{
    uint64_t need, end;
    return multiply_u64(bits, count, &need) && add_u64(need, offset, &end) && end / 8 + (end % 8 != 0) <= size;
}

PyObject *kernel_unpack(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, out;
    Py_ssize_t offset, bits, count, kind;
    if (!PyArg_ParseTuple(arguments, "y*O&O&O&O&w*:unpack", &data, to_size, &offset, to_size, &bits, to_size, &count,
                          to_size, &kind, &out))
        return NULL;
    struct meaning m;
    bool valid = check_bits(bits) && find_meaning(kind, bits, &m);
    if (valid && out.len != count) {
        PyErr_Format(PyExc_ValueError, "%zd elements need as many bytes, not %zd", count, out.len);
        valid = false;
    }
    if (valid && !stream_holds((size_t)data.len, (size_t)offset, (size_t)count, (size_t)bits)) {
        PyErr_Format(PyExc_ValueError, "%zd elements of %zd bits from bit %zd do not lie within %zd bytes", count, bits,
                     offset, data.len);
        valid = false;
    }
    if (valid) {
        const uint8_t *stream = (const uint8_t *)data.buf + offset / 8;
        size_t size = (size_t)(data.len - offset / 8);
        Py_BEGIN_ALLOW_THREADS
        unpack[simd_level](stream, size, (int)(offset % 8), m, out.buf, (size_t)count, (int)bits);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}

PyObject *kernel_pack(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer codes, out;
    Py_ssize_t bits;
    if (!PyArg_ParseTuple(arguments, "y*O&w*:pack", &codes, to_size, &bits, &out))
        return NULL;
    bool valid = check_bits(bits);
    if (valid && out.len != codes.len / 8 * bits + (codes.len % 8 * bits + 7) / 8) {
        PyErr_Format(PyExc_ValueError, "%zd elements of %zd bits do not fill %zd bytes", codes.len, bits, out.len);
        valid = false;
    }
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        pack[simd_level](codes.buf, (size_t)codes.len, out.buf, (int)bits);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}
