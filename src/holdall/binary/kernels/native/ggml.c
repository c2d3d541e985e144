/* Blocks of ggml to float32. Each type is a function over one block; the tables in docs/formats/gguf.md say where the
 * scales and the codes of a block are.
 *
 * Every value is a product, or a product and one addition or subtraction, each operation rounded. Where the offset of a
 * block is NaN, its scale counts as 0, so that no operation meets two NaNs: of two, a processor returns the one that
 * the compiler happened to put first. */
#include "lanes.h"
#include "simd.h"

enum { SMALL = 32, MIDDLE = 64, LARGE = 256, CHUNK = 32, CHUNKS = LARGE / CHUNK, HALF_CHUNK = 16, SCALE_BYTES = 12 };

struct kind {
    int id, bytes, elements;
};

enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q8_1 = 9, Q2_0 = 42 };
enum { Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14, Q8_K = 15 };

static const struct kind KINDS[] = {
    {Q4_0, 18, SMALL},  {Q4_1, 20, SMALL},  {Q5_0, 22, SMALL},  {Q5_1, 24, SMALL},
    {Q8_0, 34, SMALL},  {Q8_1, 40, SMALL},  {Q2_K, 84, LARGE},  {Q3_K, 110, LARGE},
    {Q4_K, 144, LARGE}, {Q5_K, 176, LARGE}, {Q6_K, 210, LARGE}, {Q8_K, 292, LARGE},
    {Q2_0, 18, MIDDLE},
};

INLINE float read_half(const uint8_t *at) { return from_half(*(const u16_any *)at); }

INLINE float drop_nan(float scale, float offset) { return offset != offset ? 0.0f : scale; }

/* The loops below run over local arrays, which alias nothing, so that the compiler vectorizes them. */

/* 32 codes out of 16 bytes: all low halves, then all high ones. */
INLINE void read_nibbles(const uint8_t *at, uint8_t codes[SMALL])
{
    uint8_t packed[SMALL / 2];
    memcpy(packed, at, sizeof packed);
    KEEP_LOOP
    for (int i = 0; i < SMALL / 2; i++)
        codes[i] = packed[i] & 15;
    KEEP_LOOP
    for (int i = 0; i < SMALL / 2; i++)
        codes[i + SMALL / 2] = packed[i] >> 4;
}

/* The fifth bit of each code, from one word. */
INLINE void add_fifth_bits(const uint8_t *at, uint8_t codes[SMALL])
{
    const uint32_t word = *(const u32_any *)at;
    uint8_t spread[SMALL];
    KEEP_LOOP
    for (int i = 0; i < SMALL; i++)
        spread[i] = (uint8_t)(word >> (i & 24));
    KEEP_LOOP
    for (int i = 0; i < SMALL; i++)
        codes[i] |= (spread[i] & (1 << (i & 7))) ? 16 : 0;
}

INLINE void scale_codes(const uint8_t *codes, int count, int middle, float scale, f32_any *out)
{
    for (int i = 0; i < count; i++)
        out[i] = scale * (float)((int)codes[i] - middle);
}

INLINE void add_offset(const uint8_t *codes, int count, float scale, float offset, f32_any *out)
{
    KEEP_LOOP
    for (int i = 0; i < count; i++)
        out[i] = scale * (float)codes[i] + offset;
}

INLINE void subtract_offset(const uint8_t *codes, int count, float scale, float offset, f32_any *out)
{
    KEEP_LOOP
    for (int i = 0; i < count; i++)
        out[i] = scale * (float)codes[i] - offset;
}

INLINE void q4_0(const uint8_t *block, f32_any *out)
{
    uint8_t codes[SMALL];
    read_nibbles(block + 2, codes);
    scale_codes(codes, SMALL, 8, read_half(block), out);
}

INLINE void q4_1(const uint8_t *block, f32_any *out)
{
    uint8_t codes[SMALL];
    const float offset = read_half(block + 2);
    read_nibbles(block + 4, codes);
    add_offset(codes, SMALL, drop_nan(read_half(block), offset), offset, out);
}

INLINE void q5_0(const uint8_t *block, f32_any *out)
{
    uint8_t codes[SMALL];
    read_nibbles(block + 6, codes);
    add_fifth_bits(block + 2, codes);
    scale_codes(codes, SMALL, 16, read_half(block), out);
}

INLINE void q5_1(const uint8_t *block, f32_any *out)
{
    uint8_t codes[SMALL];
    const float offset = read_half(block + 2);
    read_nibbles(block + 8, codes);
    add_fifth_bits(block + 4, codes);
    add_offset(codes, SMALL, drop_nan(read_half(block), offset), offset, out);
}

/* 32 codes of a whole byte each. */
INLINE void scale_bytes(const uint8_t *at, float scale, f32_any *out)
{
    int8_t codes[SMALL];
    memcpy(codes, at, sizeof codes);
    for (int i = 0; i < SMALL; i++)
        out[i] = scale * (float)codes[i];
}

INLINE void q8_0(const uint8_t *block, f32_any *out) { scale_bytes(block + 2, read_half(block), out); }

INLINE void q8_1(const uint8_t *block, f32_any *out) { scale_bytes(block + 8, *(const f32_any *)block, out); }

INLINE void q8_k(const uint8_t *block, f32_any *out)
{
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        scale_bytes(block + 4 + chunk * CHUNK, *(const f32_any *)block, out + chunk * CHUNK);
}

/* 64 codes of two bits: four out of each byte, lowest bits first. */
INLINE void q2_0(const uint8_t *block, f32_any *out)
{
    uint8_t packed[MIDDLE / 4], codes[MIDDLE];
    memcpy(packed, block + 2, sizeof packed);
    for (int i = 0; i < MIDDLE; i++)
        codes[i] = packed[i / 4] >> i % 4 * 2 & 3;
    scale_codes(codes, MIDDLE, 1, read_half(block), out);
}

/* A block of 256 is eight chunks of 32. Codes of two bits: a chunk is one pair of bits of 32 bytes. */
INLINE void read_pairs(const uint8_t *at, int chunk, uint8_t codes[CHUNK])
{
    uint8_t packed[CHUNK];
    memcpy(packed, at + chunk / 4 * CHUNK, sizeof packed);
    for (int i = 0; i < CHUNK; i++)
        codes[i] = packed[i] >> chunk % 4 * 2 & 3;
}

INLINE void q2_k(const uint8_t *block, f32_any *out)
{
    const uint8_t *scales = block, *quants = block + 16;
    const float d = read_half(block + 80), dmin = read_half(block + 82);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        uint8_t codes[CHUNK];
        read_pairs(quants, chunk, codes);
        for (int half = 0; half < 2; half++) {
            const uint8_t both = scales[2 * chunk + half];
            const float offset = dmin * (float)(both >> 4);
            subtract_offset(codes + half * HALF_CHUNK, HALF_CHUNK, drop_nan(d * (float)(both & 15), offset), offset,
                    out + chunk * CHUNK + half * HALF_CHUNK);
        }
    }
}

INLINE void q3_k(const uint8_t *block, f32_any *out)
{
    const uint8_t *quants = block + 32, *scales = block + 96;
    const float d = read_half(block + 108);
    uint8_t high[CHUNK];
    memcpy(high, block, sizeof high);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        uint8_t codes[CHUNK];
        read_pairs(quants, chunk, codes);
        for (int i = 0; i < CHUNK; i++)
            codes[i] |= (high[i] >> chunk & 1) << 2;
        for (int half = 0; half < 2; half++) {
            const int n = 2 * chunk + half;
            const int low = n < 8 ? scales[n] & 15 : scales[n - 8] >> 4;
            const int scale = low | (scales[8 + n % 4] >> n / 4 * 2 & 3) << 4;
            scale_codes(codes + half * HALF_CHUNK, HALF_CHUNK, 4, d * (float)(scale - 32),
                   out + chunk * CHUNK + half * HALF_CHUNK);
        }
    }
}

/* Scale and offset of a chunk, six bits each, out of twelve bytes: those of the first four chunks lie in the low bits
 * of the first eight bytes, and the spare bits above them complete the nibbles of the others. */
INLINE void read_six_bits(const uint8_t *at, int chunk, int *scale, int *offset)
{
    if (chunk < 4) {
        *scale = at[chunk] & 63;
        *offset = at[chunk + 4] & 63;
    } else {
        *scale = (at[chunk + 4] & 15) | at[chunk - 4] >> 6 << 4;
        *offset = at[chunk + 4] >> 4 | at[chunk] >> 6 << 4;
    }
}

INLINE void q45_k(const uint8_t *block, f32_any *out, const uint8_t *quants, const uint8_t *fifth)
{
    const float d = read_half(block), dmin = read_half(block + 2);
    uint8_t high[CHUNK] = {0};
    if (fifth)
        memcpy(high, fifth, sizeof high);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        uint8_t codes[CHUNK];
        memcpy(codes, quants + chunk / 2 * CHUNK, sizeof codes);
        for (int i = 0; i < CHUNK; i++)
            codes[i] = codes[i] >> chunk % 2 * 4 & 15;
        if (fifth)
            for (int i = 0; i < CHUNK; i++)
                codes[i] |= (high[i] >> chunk & 1) << 4;
        int scale, offset;
        read_six_bits(block + 4, chunk, &scale, &offset);
        const float low = dmin * (float)offset;
        subtract_offset(codes, CHUNK, drop_nan(d * (float)scale, low), low, out + chunk * CHUNK);
    }
}

INLINE void q4_k(const uint8_t *block, f32_any *out) { q45_k(block, out, block + 4 + SCALE_BYTES, NULL); }

INLINE void q5_k(const uint8_t *block, f32_any *out)
{
    const uint8_t *fifth = block + 4 + SCALE_BYTES;
    q45_k(block, out, fifth + CHUNK, fifth);
}

INLINE void q6_k(const uint8_t *block, f32_any *out)
{
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float d = read_half(block + 208);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const int side = chunk / 4, place = chunk % 4;
        uint8_t codes[CHUNK], upper[CHUNK];
        memcpy(codes, low + side * 64 + place % 2 * CHUNK, sizeof codes);
        memcpy(upper, high + side * CHUNK, sizeof upper);
        for (int i = 0; i < CHUNK; i++)
            codes[i] = (codes[i] >> place / 2 * 4 & 15) | (upper[i] >> place * 2 & 3) << 4;
        for (int half = 0; half < 2; half++)
            scale_codes(codes + half * HALF_CHUNK, HALF_CHUNK, 32, d * (float)(int8_t)scales[2 * chunk + half],
                   out + chunk * CHUNK + half * HALF_CHUNK);
    }
}

#define EVERY(decode)                                                                                                  \
    for (size_t n = 0; n < blocks; n++)                                                                                \
        decode(data + n * (size_t)kind->bytes, out + n * (size_t)kind->elements);                                      \
    break

INLINE void ggml_body(const struct kind *kind, size_t blocks, const uint8_t *data, f32_any *out)
{
    switch (kind->id) {
    case Q4_0: EVERY(q4_0);
    case Q4_1: EVERY(q4_1);
    case Q5_0: EVERY(q5_0);
    case Q5_1: EVERY(q5_1);
    case Q8_0: EVERY(q8_0);
    case Q8_1: EVERY(q8_1);
    case Q2_K: EVERY(q2_k);
    case Q3_K: EVERY(q3_k);
    case Q4_K: EVERY(q4_k);
    case Q5_K: EVERY(q5_k);
    case Q6_K: EVERY(q6_k);
    case Q2_0: EVERY(q2_0);
    default: EVERY(q8_k);
    }
}

SIMD_LEVELS(ggml, (const struct kind *kind, size_t blocks, const uint8_t *data, f32_any *out),
            (kind, blocks, data, out))

PyObject *kernel_ggml_decode(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t id;
    Py_buffer data, out;
    if (!PyArg_ParseTuple(arguments, "O&y*w*:ggml_decode", to_size, &id, &data, &out))
        return NULL;
    const struct kind *kind = NULL;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].id == id)
            kind = &KINDS[i];
    bool valid = false;
    if (!kind)
        PyErr_Format(PyExc_ValueError, "there is no decoder for ggml type %zd", id);
    else if (data.len % kind->bytes || out.len / kind->elements / 4 != data.len / kind->bytes ||
             out.len % (kind->elements * 4))
        PyErr_Format(PyExc_ValueError, "%zd bytes of blocks of %d do not make %zd bytes of float32", data.len,
                     kind->bytes, out.len);
    else
        valid = true;
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        ggml[simd_level](kind, (size_t)(data.len / kind->bytes), data.buf, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return valid ? Py_BuildValue("") : NULL;
}
