#include "kernels.h"
#include "simd.h"

#include <stdbool.h>

/* Hashes of many short texts: 32-bit FNV-1a, and the first 16 bytes of BLAKE3.
 *
 * BLAKE3 runs on eight texts at once, one a lane of a vector: names are nearly always a single block of 64 bytes. A
 * longer text takes lane 0 alone, block by block and chunk by chunk. */

struct pieces {
    const uint8_t *data;
    const char *positions, *lengths;
    Py_ssize_t count;
};

INLINE const uint8_t *piece(const struct pieces *p, Py_ssize_t i, size_t *length)
{
    *length = (size_t)load_u64(p->lengths + 8 * i);
    return p->data + load_u64(p->positions + 8 * i);
}

static void fnv1a(const struct pieces *p, uint8_t *out)
{
    for (Py_ssize_t i = 0; i < p->count; i++) {
        size_t length;
        const uint8_t *text = piece(p, i, &length);
        uint32_t hash = 0x811C9DC5u;
        for (size_t k = 0; k < length; k++)
            hash = (hash ^ text[k]) * 0x01000193u;
        *(u32_any *)(out + 4 * i) = hash;
    }
}

/* BLAKE3 */

enum { LANES = 8, BLOCK = 64, CHUNK = 1024, CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

static const uint32_t IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                               0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};

static const uint8_t SCHEDULE[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1}, {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4}, {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13},
};

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))

#define MIX(a, b, c, d, x, y)                                                                                          \
    do {                                                                                                               \
        a += b + (x), d ^= a, d = ROTATE(d, 16);                                                                       \
        c += d, b ^= c, b = ROTATE(b, 12);                                                                             \
        a += b + (y), d ^= a, d = ROTATE(d, 8);                                                                        \
        c += d, b ^= c, b = ROTATE(b, 7);                                                                              \
    } while (0)

/* One compression in every lane; `chain` is replaced by the new chaining value. */
INLINE void compress(lanes chain[8], const lanes m[16], uint64_t counter, lanes length, lanes flags)
{
    const lanes zero = {0};
    lanes v0 = chain[0], v1 = chain[1], v2 = chain[2], v3 = chain[3];
    lanes v4 = chain[4], v5 = chain[5], v6 = chain[6], v7 = chain[7];
    lanes v8 = zero + IV[0], v9 = zero + IV[1], v10 = zero + IV[2], v11 = zero + IV[3];
    lanes v12 = zero + (uint32_t)counter, v13 = zero + (uint32_t)(counter >> 32), v14 = length, v15 = flags;
#pragma GCC unroll 7
    for (int round = 0; round < 7; round++) {
        const uint8_t *s = SCHEDULE[round];
        MIX(v0, v4, v8, v12, m[s[0]], m[s[1]]);
        MIX(v1, v5, v9, v13, m[s[2]], m[s[3]]);
        MIX(v2, v6, v10, v14, m[s[4]], m[s[5]]);
        MIX(v3, v7, v11, v15, m[s[6]], m[s[7]]);
        MIX(v0, v5, v10, v15, m[s[8]], m[s[9]]);
        MIX(v1, v6, v11, v12, m[s[10]], m[s[11]]);
        MIX(v2, v7, v8, v13, m[s[12]], m[s[13]]);
        MIX(v3, v4, v9, v14, m[s[14]], m[s[15]]);
    }
    chain[0] = v0 ^ v8, chain[1] = v1 ^ v9, chain[2] = v2 ^ v10, chain[3] = v3 ^ v11;
    chain[4] = v4 ^ v12, chain[5] = v5 ^ v13, chain[6] = v6 ^ v14, chain[7] = v7 ^ v15;
}

INLINE void start(lanes chain[8])
{
    const lanes zero = {0};
    for (int i = 0; i < 8; i++)
        chain[i] = zero + IV[i];
}

/* A compression in lane 0 alone. */
static void compress_one(uint32_t chain[8], const uint32_t words[16], uint64_t counter, uint32_t length, uint32_t flags)
{
    const lanes zero = {0};
    lanes state[8], m[16];
    for (int i = 0; i < 8; i++)
        state[i] = zero + chain[i];
    for (int i = 0; i < 16; i++)
        m[i] = zero + words[i];
    compress(state, m, counter, zero + length, zero + flags);
    for (int i = 0; i < 8; i++)
        chain[i] = state[i][0];
}

/* The chaining value of one chunk of up to 1024 bytes; `root` is ROOT when it is the whole text. */
static void chunk(uint32_t chain[8], const uint8_t *text, size_t length, uint64_t counter, uint32_t root)
{
    memcpy(chain, IV, sizeof IV);
    for (size_t at = 0; at < length; at += BLOCK) {
        uint32_t words[16] = {0};
        size_t size = min_size(BLOCK, length - at);
        memcpy(words, text + at, size);
        uint32_t flags = (at == 0 ? CHUNK_START : 0) | (at + size == length ? CHUNK_END | root : 0);
        compress_one(chain, words, counter, (uint32_t)size, flags);
    }
}

static void parent(uint32_t right[8], const uint32_t left[8], uint32_t root)
{
    uint32_t words[16];
    memcpy(words, left, 32);
    memcpy(words + 8, right, 32);
    memcpy(right, IV, sizeof IV);
    compress_one(right, words, 0, BLOCK, PARENT | root);
}

static void hash_long(uint8_t *out, const uint8_t *text, size_t length)
{
    uint32_t stack[54][8], chain[8]; /* 2^64 bytes are 2^54 chunks */
    int depth = 0;
    uint64_t chunks = 0;
    for (; length > CHUNK; text += CHUNK, length -= CHUNK) {
        chunk(chain, text, CHUNK, chunks, 0);
        for (uint64_t total = ++chunks; !(total & 1); total >>= 1)
            parent(chain, stack[--depth], 0);
        memcpy(stack[depth++], chain, sizeof chain);
    }
    chunk(chain, text, length, chunks, depth ? 0 : ROOT);
    while (depth) {
        depth--;
        parent(chain, stack[depth], depth ? 0 : ROOT);
    }
    memcpy(out, chain, 16);
}

/* Up to eight texts of at most one block each. */
INLINE void hash_blocks(const uint8_t *const texts[LANES], const uint32_t sizes[LANES], uint8_t *const outs[LANES],
                        int used)
{
    uint32_t words[16][LANES] = {{0}};
    lanes chain[8], m[16], length = {0}, flags = {0};
    for (int lane = 0; lane < used; lane++) {
        uint32_t block[16] = {0};
        memcpy(block, texts[lane], sizes[lane]);
        for (int i = 0; i < 16; i++)
            words[i][lane] = block[i];
        length[lane] = sizes[lane];
    }
    flags += CHUNK_START | CHUNK_END | ROOT;
    memcpy(m, words, sizeof m);
    start(chain);
    compress(chain, m, 0, length, flags);
    for (int lane = 0; lane < used; lane++)
        for (int i = 0; i < 4; i++)
            *(u32_any *)(outs[lane] + 4 * i) = chain[i][lane];
}

INLINE void blake3_body(const struct pieces *p, uint8_t *out)
{
    const uint8_t *texts[LANES];
    uint32_t sizes[LANES];
    uint8_t *outs[LANES];
    int used = 0;
    for (Py_ssize_t i = 0; i < p->count; i++) {
        size_t length;
        const uint8_t *text = piece(p, i, &length);
        if (length > BLOCK) {
            hash_long(out + 16 * i, text, length);
            continue;
        }
        texts[used] = text, sizes[used] = (uint32_t)length, outs[used] = out + 16 * i;
        if (++used == LANES) {
            hash_blocks(texts, sizes, outs, LANES);
            used = 0;
        }
    }
    if (used)
        hash_blocks(texts, sizes, outs, used);
}

SIMD_LEVELS(blake3, (const struct pieces *p, uint8_t *out), (p, out))

/* Python */

static bool within(const struct pieces *p, size_t size)
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

/* Whether two buffers share no byte. Hashes written over positions would be taken for positions, unproven ones. */
static bool apart(const Py_buffer *a, const Py_buffer *b)
{
    const uintptr_t x = (uintptr_t)a->buf, y = (uintptr_t)b->buf;
    return x < y ? y - x >= (uintptr_t)a->len : x - y >= (uintptr_t)b->len;
}

static PyObject *hash_all(PyObject *arguments, const char *format, Py_ssize_t width,
                          void (*run)(const struct pieces *, uint8_t *))
{
    Py_buffer data, positions, lengths, out;
    if (!PyArg_ParseTuple(arguments, format, &data, &positions, &lengths, &out))
        return NULL;
    struct pieces pieces = {data.buf, positions.buf, lengths.buf, positions.len / 8};
    bool valid = false;
    if (positions.len % 8 || lengths.len != positions.len)
        PyErr_SetString(PyExc_ValueError, "positions and lengths must be uint64, as many of one as of the other");
    else if (out.len != width * pieces.count)
        PyErr_Format(PyExc_ValueError, "%zd hashes take %zd bytes each, not %zd in all", pieces.count, width, out.len);
    else if (!apart(&out, &positions) || !apart(&out, &lengths))
        PyErr_SetString(PyExc_ValueError, "hashes cannot be written over positions or lengths");
    else
        valid = within(&pieces, (size_t)data.len);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        run(&pieces, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&positions);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&out);
    return valid ? Py_NewRef(Py_None) : NULL;
}

PyObject *kernel_fnv1a(PyObject *module, PyObject *arguments)
{
    (void)module;
    return hash_all(arguments, "y*y*y*w*:fnv1a", 4, fnv1a);
}

PyObject *kernel_blake3_16(PyObject *module, PyObject *arguments)
{
    (void)module;
    return hash_all(arguments, "y*y*y*w*:blake3_16", 16, blake3[simd_level]);
}
