/* float32 to codes and scales, sixteen blocks at a time. */
#include "lanes.h"
#include "simd.h"

enum mode { REFERENCE, IEEE, BEST, GIVEN, MODES };

struct job {
    struct geometry g;
    int mode;
    const f32_any *values;
    float low, high;
    bool cut;                  /* whether low and high matter */
    const f32_any *importance; /* one weight a column, or NULL */
    u16_any *scales;
    uint8_t *subs, *codes;
    int32_t largest; /* magnitude of all values, as an integer: found on the way */
};

/* Sixteen blocks: where they are, and what is found out about them. */
struct batch {
    table v, a, w;
    size_t number[LANES];  /* of the block, counted over all rows; SIZE_MAX: an empty lane */
    size_t scale_at[LANES]; /* of its scale or super-scale */
    int count[LANES];      /* of its real values */
    lanes amax;            /* the largest magnitude */
    lanes step;            /* what makes the codes */
    lanes u;
    int32_t half[LANES];
};

/* -- in ----------------------------------------------------------------------------------------------------------- */

/* Four values of four blocks change places. */
INLINE void transpose(const f32_any *const from[4], int i, table to, int l)
{
#if HOLDALL_GNU
    four a, b, c, d;
    memcpy(&a, from[0] + i, sizeof a);
    memcpy(&b, from[1] + i, sizeof b);
    memcpy(&c, from[2] + i, sizeof c);
    memcpy(&d, from[3] + i, sizeof d);
    const four ab = PICK(a, b, 0, 4, 1, 5), cd = PICK(c, d, 0, 4, 1, 5);
    const four ba = PICK(a, b, 2, 6, 3, 7), dc = PICK(c, d, 2, 6, 3, 7);
    const four rows[4] = {PICK(ab, cd, 0, 1, 4, 5), PICK(ab, cd, 2, 3, 6, 7), PICK(ba, dc, 0, 1, 4, 5),
                          PICK(ba, dc, 2, 3, 6, 7)};
    for (int row = 0; row < 4; row++)
        memcpy(&to[i + row][l], &rows[row], sizeof rows[row]);
#else
    for (int row = 0; row < 4; row++)
        for (int block = 0; block < 4; block++)
            to[i + row][l + block] = from[block][i + row];
#endif
}

/* Lane by lane: blocks that end a row are filled up with zeros, super-blocks that do with empty lanes. */
INLINE void place_blocks(const struct job *job, struct batch *batch, size_t first)
{
    const struct geometry *g = &job->g;
    const size_t width = g->group ? g->supers * SUPER : g->blocks; /* lanes of one row */
    const size_t start = g->group ? first * SUPER : first;
    size_t row = start / width, at = start % width;
    const f32_any *from[LANES];
    float padded[LANES][BLOCK];
    for (int l = 0; l < LANES; l++) {
        const bool real = row < g->rows && at < g->blocks;
        const size_t left = real ? g->cols - at * BLOCK : 0;
        batch->count[l] = (int)min_size(left, BLOCK);
        batch->number[l] = real ? row * g->blocks + at : SIZE_MAX;
        batch->scale_at[l] = g->group ? row * g->supers + at / SUPER : batch->number[l];
        from[l] = real ? job->values + row * g->cols + at * BLOCK : NULL;
        if (batch->count[l] < BLOCK) {
            memset(padded[l], 0, sizeof padded[l]);
            if (real)
                memcpy(padded[l], from[l], left * sizeof **padded);
            from[l] = padded[l];
        }
        if (job->importance)
            for (int i = 0; i < BLOCK; i++)
                batch->w[i][l] = i < batch->count[l] ? job->importance[at * BLOCK + (size_t)i] : 0;
        if (++at == width)
            at = 0, row++;
    }
    for (int l = 0; l < LANES; l += 4)
        for (int i = 0; i < BLOCK; i += 4)
            transpose(from + l, i, batch->v, l);
    if (job->cut)
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < batch->count[l]; i++) {
                const float x = batch->v[i][l];
                batch->v[i][l] = x < job->low ? job->low : x > job->high ? job->high : x;
            }
    for (int i = 0; i < BLOCK; i++) {
        KEEP_LOOP for (int l = 0; l < LANES; l++)
            batch->a[i][l] = as_float(as_bits(batch->v[i][l]) & F32_REST);
        KEEP_NESTED;
    }
    largest_of(batch->a, batch->amax);
}

/* -- scales ------------------------------------------------------------------------------------------------------- */

INLINE void find_block_scales(const struct job *job, struct batch *batch, int qmax)
{
    lanes scale;
    for (int l = 0; l < LANES; l++)
        scale[l] = batch->amax[l] / (float)qmax;
    if (job->mode == REFERENCE) {
        for (int l = 0; l < LANES; l++)
            batch->step[l] = scale[l], batch->half[l] = half_truncated(scale[l]);
        return;
    }
    for (int l = 0; l < LANES; l++)
        batch->step[l] = as_half(scale[l]);
    if (job->mode == BEST)
        search_blocks(batch->a, job->importance ? batch->w : NULL, qmax, batch->step);
    for (int l = 0; l < LANES; l++)
        batch->half[l] = half_to_nearest(batch->step[l]);
}

INLINE void find_super_scales(const struct job *job, struct batch *batch, int qmax)
{
    lanes scale, top;
    for (int l = 0; l < LANES; l++)
        scale[l] = batch->amax[l] / (float)qmax;
    super_largest(scale, top);
    for (int l = 0; l < LANES; l++) {
        const float u = round_away(smaller(scale[l] / top[l] * 32, LARGEST_SUB));
        batch->u[l] = scale[l] > 0 ? larger(u, 1) : 0;
    }
    if (job->mode == REFERENCE) {
        for (int l = 0; l < LANES; l++)
            batch->step[l] = top[l] * (batch->u[l] / 32), batch->half[l] = half_truncated(top[l]);
        return;
    }
    for (int l = 0; l < LANES; l++)
        top[l] = as_half(top[l]);
    if (job->mode == BEST)
        search_supers(batch->a, job->importance ? batch->w : NULL, qmax, top, batch->u);
    for (int l = 0; l < LANES; l++)
        batch->step[l] = top[l] * (batch->u[l] / 32), batch->half[l] = half_to_nearest(top[l]);
}

INLINE void take_scales(const struct job *job, struct batch *batch)
{
    for (int l = 0; l < LANES; l++) {
        const bool real = batch->number[l] != SIZE_MAX;
        const float scale = real ? from_half(job->scales[batch->scale_at[l]]) : 0;
        const float u = real && job->g.group ? (float)(job->subs[batch->number[l]] & 63) : 0;
        batch->step[l] = job->g.group ? scale * (u / 32) : scale;
    }
}

INLINE void put_scales(const struct job *job, const struct batch *batch)
{
    for (int l = 0; l < LANES; l++) {
        if (batch->number[l] == SIZE_MAX)
            continue;
        job->scales[batch->scale_at[l]] = (uint16_t)batch->half[l];
        if (job->g.group)
            job->subs[batch->number[l]] = (uint8_t)batch->u[l];
    }
}

/* -- codes -------------------------------------------------------------------------------------------------------- */

typedef uint32_t words[8][LANES]; /* the packed codes of a block, down its lane */

INLINE void make_codes(const struct batch *batch, int bits, words out)
{
    const float qmax = (float)((1 << (bits - 1)) - 1);
    const uint32_t mask = (1u << bits) - 1;
    lanes inverse;
    uint32_t code[LANES], word[LANES] = {0};
    for (int l = 0; l < LANES; l++)
        inverse[l] = inverse_of(1, batch->step[l]);
    int filled = 0; /* bits of the word */
    for (int i = 0; i < BLOCK; i++) {
        for (int l = 0; l < LANES; l++) {
            const int32_t sign = as_bits(batch->v[i][l]) >> 31;
            const int32_t size = (int32_t)(smaller(batch->a[i][l] * inverse[l], qmax) + ALMOST_HALF);
            code[l] = (uint32_t)((size ^ sign) - sign) & mask;
            word[l] |= code[l] << filled;
        }
        filled += bits;
        if (filled < 32)
            continue;
        memcpy(*out++, word, sizeof word);
        filled -= 32;
        for (int l = 0; l < LANES; l++)
            word[l] = code[l] >> (bits - filled); /* what did not fit; nothing when all did */
    }
}

/* A scale with no finite reciprocal: the reference then writes the lowest code everywhere; only its 4-bit blocks (q4)
 * leave the padding at 0. */
static void write_lowest(const struct geometry *g, const struct batch *batch, int l, words out)
{
    const bool padding = !(g->bits == 4 && !g->group);
    const uint64_t code = (1u << (g->bits - 1)) + 1;
    uint64_t stream[4] = {0};
    for (int i = 0; i < (padding ? BLOCK : batch->count[l]); i++) {
        const int at = i * g->bits;
        stream[at / 64] |= code << at % 64;
        if (at % 64 + g->bits > 64)
            stream[at / 64 + 1] |= code >> (64 - at % 64);
    }
    for (int word = 0; word < g->bits; word++)
        out[word][l] = (uint32_t)(stream[word / 2] >> word % 2 * 32);
}

INLINE void quantize_body(struct job *job)
{
    const struct geometry *g = &job->g;
    const int bits = g->bits;
    const bool supers = g->group != 0;
    const int qmax = (1 << (bits - 1)) - 1;
    const size_t total = g->rows * (supers ? g->supers : g->blocks);
    struct batch batch;
    for (size_t first = 0; first < total; first += supers ? SUPERS : LANES) {
        place_blocks(job, &batch, first);
        for (int l = 0; l < LANES; l++) {
            const int32_t bits = as_bits(batch.amax[l]);
            job->largest = bits > job->largest ? bits : job->largest;
        }
        if (job->mode == GIVEN)
            take_scales(job, &batch);
        else if (supers)
            find_super_scales(job, &batch, qmax);
        else
            find_block_scales(job, &batch, qmax);
        if (job->mode != GIVEN)
            put_scales(job, &batch);
        words out;
        make_codes(&batch, bits, out);
        if (job->mode == REFERENCE)
            for (int l = 0; l < LANES; l++)
                if (batch.step[l] > 0 && batch.step[l] <= 0x1p-128f)
                    write_lowest(g, &batch, l, out);
        for (int l = 0; l < LANES; l++) {
            if (batch.number[l] == SIZE_MAX)
                continue;
            uint8_t *to = job->codes + batch.number[l] * g->block_bytes;
            for (int word = 0; word < bits; word++)
                memcpy(to + 4 * word, &out[word][l], 4);
        }
    }
}

SIMD_LEVELS(quantize, (struct job *job), (job))

/* -- one scale for the tensor ------------------------------------------------------------------------------------- */

struct flat_job {
    int bits;
    size_t count;
    float inverse, zero, lowest, low, high;
    const f32_any *values;
    uint8_t *codes;
};

INLINE int32_t flat_code(const struct flat_job *job, float value)
{
    value = value < job->low ? job->low : value > job->high ? job->high : value;
    float x = value * job->inverse + job->zero;
    x = x > job->lowest ? x : job->lowest;
    x = smaller(x, (float)((1 << (job->bits - 1)) - 1));
    const int32_t half = (as_bits(x) & ~F32_REST) | as_bits(ALMOST_HALF);
    return (int32_t)(x + as_float(half));
}

INLINE void flat_body(const struct flat_job *job)
{
    const struct flat_job j = *job;
    if (j.bits == 8) {
        for (size_t i = 0; i < j.count; i++)
            j.codes[i] = (uint8_t)flat_code(&j, j.values[i]);
        return;
    }
    for (size_t i = 0; i < j.count / 2; i++)
        j.codes[i] = (uint8_t)((flat_code(&j, j.values[2 * i]) & 15) | (flat_code(&j, j.values[2 * i + 1]) & 15) << 4);
    if (j.count % 2)
        j.codes[j.count / 2] = (uint8_t)(flat_code(&j, j.values[j.count - 1]) & 15);
}

SIMD_LEVELS(flat, (const struct flat_job *job), (job))

/* -- Python ------------------------------------------------------------------------------------------------------- */

PyObject *kernel_quantize_blocks(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t bits, group, mode, rows, cols;
    Py_buffer values, importance, scales, subs, codes;
    struct job job;
    if (!PyArg_ParseTuple(arguments, "O&O&O&O&O&y*ffy*w*w*w*:quantize_blocks", to_size, &bits, to_size, &group, to_size,
                          &mode, to_size, &rows, to_size, &cols, &values, &job.low, &job.high, &importance, &scales,
                          &subs, &codes))
        return NULL;
    bool valid = quant_geometry(bits, group, rows, cols, &job.g);
    if (valid && mode >= MODES) {
        PyErr_Format(PyExc_ValueError, "no mode %zd", mode);
        valid = false;
    }
    valid = valid && quant_regions(&job.g, &values, &scales, &subs, &codes) &&
            (!importance.len || quant_holds(&importance, job.g.cols, 4, "weights"));
    if (valid) {
        const float infinity = as_float(F32_INFINITY);
        job.mode = (int)mode, job.largest = 0;
        job.values = values.buf;
        job.cut = job.low != -infinity || job.high != infinity;
        job.importance = importance.len ? importance.buf : NULL;
        job.scales = scales.buf, job.subs = subs.buf, job.codes = codes.buf;
        Py_BEGIN_ALLOW_THREADS
        quantize[simd_level](&job);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&importance);
    PyBuffer_Release(&scales);
    PyBuffer_Release(&subs);
    PyBuffer_Release(&codes);
    return valid ? PyFloat_FromDouble((double)as_float(job.largest)) : NULL;
}

PyObject *kernel_quantize_flat(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t bits, count;
    int lowest;
    Py_buffer values, codes;
    struct flat_job job;
    if (!PyArg_ParseTuple(arguments, "O&O&ffiy*ffw*:quantize_flat", to_size, &bits, to_size, &count, &job.inverse,
                          &job.zero, &lowest, &values, &job.low, &job.high, &codes))
        return NULL;
    const bool valid = quant_flat(bits, count) && quant_holds(&values, (size_t)count, 4, "values") &&
                       quant_holds(&codes, ((size_t)count * (size_t)bits + 7) / 8, 1, "code bytes");
    if (valid) {
        job.bits = (int)bits, job.count = (size_t)count, job.lowest = (float)lowest;
        job.values = values.buf, job.codes = codes.buf;
        Py_BEGIN_ALLOW_THREADS
        flat[simd_level](&job);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&codes);
    return valid ? Py_BuildValue("") : NULL;
}
