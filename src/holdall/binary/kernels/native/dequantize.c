/* Codes and scales to float32: row after row, block after block, eight codes from one 32-bit word. */
#include "quant.h"
#include "simd.h"

/* Eight codes of `bits` bits out of the bytes that hold them: shift each to the top of its lane, then back down with
 * its sign. */
INLINE void eight(const uint8_t *at, int bits, float scale, f32_any *out)
{
    /* Six bits: four codes in three bytes, so the second word starts there; below that eight fit one word. The word of
     * a last group would reach past the codes, so it takes only its own bytes. */
    uint32_t first = 0, second = 0;
    if (bits == 6) {
        uint16_t low, high;
        memcpy(&low, at, 2);
        memcpy(&high, at + 3, 2);
        first = low | (uint32_t)at[2] << 16;
        second = high | (uint32_t)at[5] << 16;
    } else if (bits == 4) {
        memcpy(&first, at, 4);
    } else if (bits == 3) {
        uint16_t low;
        memcpy(&low, at, 2);
        first = low | (uint32_t)at[2] << 16;
    } else {
        uint16_t low;
        memcpy(&low, at, 2);
        first = low;
    }
    if (bits != 6)
        second = first >> 4 * bits;
    for (int i = 0; i < 8; i++) {
        const uint32_t word = i < 4 ? first : second;
        const int32_t code = (int32_t)(word << (32 - bits - bits * (i & 3))) >> (32 - bits);
        out[i] = (float)code * scale;
    }
}

INLINE void block(const uint8_t *codes, int bits, float scale, f32_any *out)
{
    if (scale == 0.0f) {
        memset(out, 0, BLOCK * sizeof *out);
    } else if (bits == 8 || bits == 4) {
        int8_t wide[BLOCK];
        for (int i = 0; bits == 4 && i < BLOCK / 2; i++) {
            wide[2 * i] = (int8_t)((int8_t)(codes[i] << 4) >> 4);
            wide[2 * i + 1] = (int8_t)((int8_t)codes[i] >> 4);
        }
        const int8_t *from = bits == 4 ? wide : (const int8_t *)codes;
        for (int i = 0; i < BLOCK; i++)
            out[i] = (float)from[i] * scale;
    } else {
        for (int i = 0; i < BLOCK; i += 8)
            eight(codes + i / 8 * bits, bits, scale, out + i);
    }
}

INLINE float scale_of(const struct geometry *g, const u16_any *scales, const uint8_t *subs, size_t number)
{
    if (!g->group)
        return from_half(scales[number]);
    const int sub = subs[number] & 63;
    return sub ? from_half(scales[number / SUPER]) * ((float)sub / 32.0f) : 0; /* infinity times 0 would be NaN */
}

INLINE void rows_of(const struct geometry *g, const u16_any *scales, const uint8_t *subs, const uint8_t *codes,
                    f32_any *out, int bits)
{
    const size_t whole = g->cols / BLOCK, left = g->cols % BLOCK;
    for (size_t row = 0; row < g->rows; row++) {
        for (size_t b = 0; b < whole; b++)
            block(codes + b * g->block_bytes, bits, scale_of(g, scales, subs, b), out + b * BLOCK);
        if (left) {
            float last[BLOCK];
            block(codes + whole * g->block_bytes, bits, scale_of(g, scales, subs, whole), last);
            memcpy(out + whole * BLOCK, last, left * sizeof *last);
        }
        scales += g->group ? g->supers : g->blocks;
        subs += g->group ? g->blocks : 0;
        codes += g->blocks * g->block_bytes;
        out += g->cols;
    }
}

INLINE void dequantize_body(const struct geometry *g, const void *scales, const void *subs, const void *codes,
                            void *out)
{
    switch (g->bits) { /* makes the bits a constant of each loop */
    case 8: rows_of(g, scales, subs, codes, out, 8); break;
    case 6: rows_of(g, scales, subs, codes, out, 6); break;
    case 4: rows_of(g, scales, subs, codes, out, 4); break;
    case 3: rows_of(g, scales, subs, codes, out, 3); break;
    default: rows_of(g, scales, subs, codes, out, 2); break;
    }
}

INLINE void flat_body(int bits, size_t count, float scale, float zero, const uint8_t *codes, f32_any *out)
{
    if (bits == 8) {
        for (size_t i = 0; i < count; i++)
            out[i] = scale * ((float)(int8_t)codes[i] - zero);
        return;
    }
    for (size_t i = 0; i < count / 2; i++) {
        out[2 * i] = scale * ((float)((int8_t)(codes[i] << 4) >> 4) - zero);
        out[2 * i + 1] = scale * ((float)((int8_t)codes[i] >> 4) - zero);
    }
    if (count % 2)
        out[count - 1] = scale * ((float)((int8_t)(codes[count / 2] << 4) >> 4) - zero);
}

SIMD_LEVELS(dequantize,
            (const struct geometry *g, const void *scales, const void *subs, const void *codes, void *out),
            (g, scales, subs, codes, out))
SIMD_LEVELS(flat, (int bits, size_t count, float scale, float zero, const uint8_t *codes, f32_any *out),
            (bits, count, scale, zero, codes, out))

PyObject *kernel_dequantize_blocks(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t bits, group, rows, cols;
    Py_buffer scales, subs, codes, out;
    if (!PyArg_ParseTuple(arguments, "O&O&O&O&y*y*y*w*:dequantize_blocks", to_size, &bits, to_size, &group, to_size,
                          &rows, to_size, &cols, &scales, &subs, &codes, &out))
        return NULL;
    struct geometry g;
    const bool valid = quant_geometry(bits, group, rows, cols, &g) && quant_regions(&g, &out, &scales, &subs, &codes);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        dequantize[simd_level](&g, scales.buf, subs.buf, codes.buf, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&scales);
    PyBuffer_Release(&subs);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}

PyObject *kernel_dequantize_flat(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t bits, count;
    float scale, zero;
    Py_buffer codes, out;
    if (!PyArg_ParseTuple(arguments, "O&O&ffy*w*:dequantize_flat", to_size, &bits, to_size, &count, &scale, &zero,
                          &codes, &out))
        return NULL;
    bool valid = quant_flat(bits, count) && quant_holds(&out, (size_t)count, 4, "values") &&
                 quant_holds(&codes, ((size_t)count * (size_t)bits + 7) / 8, 1, "code bytes");
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        flat[simd_level]((int)bits, (size_t)count, scale, zero, codes.buf, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}
