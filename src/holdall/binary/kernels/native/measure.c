/* What the values of a tensor are like, in one pass: extremes, moments, and how often each code occurs.
 *
 * Elements of four or eight bytes are measured in blocks that stay in the first cache: what is not finite is taken out,
 * then the elements become distances from an origin, in float64. The sums of a block go into eight lanes, element i
 * into lane i % 8, and the lanes are added in order; blocks are merged in order. So every instruction set and the twin
 * in numpy give the same bits.
 */
#include <Python.h>

#include "kernels.h"
#include "simd.h"

#include <stdbool.h>

enum { LANES = 8, BLOCK = 1024, CODES = 65536 };

enum kind { KIND_F32, KIND_F64, KIND_I32, KIND_U32, KIND_I64, KIND_U64, KINDS };

static const char *const kinds[KINDS] = {"f32", "f64", "i32", "u32", "i64", "u64"};

#define IS_WIDE(kind) ((kind) == KIND_F64 || (kind) == KIND_I64 || (kind) == KIND_U64)
#define IS_FLOAT(kind) ((kind) == KIND_F32 || (kind) == KIND_F64)

/* Bits without the sign, from those of infinity on: not finite. */
#define F32_SPECIAL 0x7f800000u
#define F64_SPECIAL 0x7ff0000000000000u
#define SIGN_32 0x80000000u
#define SIGN_64 0x8000000000000000u

typedef struct {
    uint64_t count, nan, inf, zeros; /* the first without what is not finite */
    int64_t low, high;               /* numbers in the order of the elements */
    double mean, spread;             /* of the distances; the sum of squared distances from that mean */
} measures;

INLINE double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float narrow_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A signed number with the order of the elements, and back: a float below zero has all bits but the sign turned. */
INLINE int32_t order_32(int kind, uint32_t bits)
{
    if (kind == KIND_F32)
        return (int32_t)(bits ^ ((uint32_t)((int32_t)bits >> 31) & ~SIGN_32));
    return (int32_t)(kind == KIND_U32 ? bits ^ SIGN_32 : bits);
}

INLINE int64_t order_64(int kind, uint64_t bits)
{
    if (kind == KIND_F64)
        return (int64_t)(bits ^ ((uint64_t)((int64_t)bits >> 63) & ~SIGN_64));
    return (int64_t)(kind == KIND_U64 ? bits ^ SIGN_64 : bits);
}

/* An unsigned integer as the nearest float64: its halves become floats by their place in a mantissa, and the one sum
 * rounds. Unlike a cast this is a few instructions in every vector. */
INLINE double double_of(uint64_t x)
{
    const double low = as_double((x & 0xffffffffu) | 0x4330000000000000u);          /* 2**52 + lower half */
    const double high = as_double(x >> 32 | 0x4530000000000000u) - 0x1.00000001p84; /* minus 2**84 and 2**52 */
    return high + low;
}

/* How far an element is from the origin. Integers of 64 bits are subtracted exactly before they are rounded. */
INLINE double distance_32(int kind, uint32_t bits, double scale, double origin)
{
    if (kind == KIND_F32)
        return (double)narrow_bits(bits) * scale - origin;
    /* As a signed integer, which every instruction set converts; the origin of u32 is as far below. */
    return (double)order_32(kind, bits) - origin;
}

INLINE double distance_64(int kind, uint64_t bits, double scale, double origin, int64_t first)
{
    if (kind == KIND_F64)
        return as_double(bits) * scale - origin;
    const int64_t x = order_64(kind, bits);
    const bool below = x < first;
    const double size = double_of(below ? (uint64_t)first - (uint64_t)x : (uint64_t)x - (uint64_t)first);
    return as_double(bits_of(size) | (below ? SIGN_64 : 0));
}

/* The code of a distance: the sign, and the upper bits of a float that has 8 bits of exponent and 7 of mantissa.
 * Distances below the range have the code of zero, those above it the last one. */
INLINE uint32_t code_of(double distance)
{
    const uint64_t bits = bits_of(distance);
    const int32_t upper = (int32_t)(bits >> 45 & 0x3ffff) - (896 << 7);
    const int32_t above = upper < 0 ? 0 : upper;
    return (uint32_t)(above > 0x7fff ? 0x7fff : above) | (uint32_t)(bits >> 48 & 0x8000);
}

/* What is not finite in a block, and how much of it is NaN. */
INLINE uint32_t count_special(int kind, const void *at, size_t count, uint32_t *nan)
{
    uint32_t special = 0, nans = 0;
    if (kind == KIND_F32)
        for (size_t i = 0; i < count; i++) {
            const uint32_t rest = ((const u32_any *)at)[i] & ~SIGN_32;
            special += rest >= F32_SPECIAL;
            nans += rest > F32_SPECIAL;
        }
    else
        for (size_t i = 0; i < count; i++) {
            const uint64_t rest = ((const u64_any *)at)[i] & ~SIGN_64;
            special += rest >= F64_SPECIAL;
            nans += rest > F64_SPECIAL;
        }
    *nan = nans;
    return special;
}

/* Copies the finite elements of a block. */
INLINE size_t copy_finite(int kind, const void *at, size_t count, uint64_t *out)
{
    size_t kept = 0;
    if (kind == KIND_F32)
        for (size_t i = 0; i < count; i++) {
            const uint32_t bits = ((const u32_any *)at)[i];
            ((u32_any *)out)[kept] = bits;
            kept += (bits & ~SIGN_32) < F32_SPECIAL;
        }
    else
        for (size_t i = 0; i < count; i++) {
            out[kept] = ((const u64_any *)at)[i];
            kept += (out[kept] & ~SIGN_64) < F64_SPECIAL;
        }
    return kept;
}

INLINE void find_extremes(int kind, const void *at, size_t count, measures *m)
{
    uint32_t zeros = 0;
    if (IS_WIDE(kind)) {
        int64_t low = INT64_MAX, high = INT64_MIN;
        for (size_t i = 0; i < count; i++) {
            const uint64_t bits = ((const u64_any *)at)[i];
            const int64_t order = order_64(kind, bits);
            low = order < low ? order : low;
            high = order > high ? order : high;
            zeros += (IS_FLOAT(kind) ? bits << 1 : bits) == 0;
        }
        m->low = low < m->low ? low : m->low;
        m->high = high > m->high ? high : m->high;
    } else {
        int32_t low = INT32_MAX, high = INT32_MIN;
        for (size_t i = 0; i < count; i++) {
            const uint32_t bits = ((const u32_any *)at)[i];
            const int32_t order = order_32(kind, bits);
            low = order < low ? order : low;
            high = order > high ? order : high;
            zeros += (IS_FLOAT(kind) ? bits << 1 : bits) == 0;
        }
        m->low = low < m->low ? low : m->low;
        m->high = high > m->high ? high : m->high;
    }
    m->zeros += zeros;
}

INLINE double distance_at(int kind, const void *at, size_t i, double scale, double origin, int64_t first)
{
    if (IS_WIDE(kind))
        return distance_64(kind, ((const u64_any *)at)[i], scale, origin, first);
    return distance_32(kind, ((const u32_any *)at)[i], scale, origin);
}

INLINE double total(const double *lanes)
{
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

/* Adds the block to the moments (Chan's formula). Squares are those of distances from its first element, which also
 * fills the last lanes: its own distance from itself adds nothing. */
INLINE void add_moments(double *distances, size_t count, measures *m)
{
    double sums[LANES] ALIGNED = {0}, squares[LANES] ALIGNED = {0};
    const double from = distances[0];
    for (size_t i = count; i % LANES; i++)
        distances[i] = from;
    for (size_t i = 0; i < count; i += LANES) {
        KEEP_LOOP for (int lane = 0; lane < LANES; lane++)
        {
            const double apart = distances[i + lane] - from;
            sums[lane] += apart;
            squares[lane] += apart * apart;
        }
        KEEP_NESTED;
    }
    const double sum = total(sums), here = (double)count, middle = sum / here;
    const double spread = total(squares) - sum * middle, before = (double)m->count, share = here / (before + here);
    const double apart = from + middle - m->mean;
    m->mean += apart * share;
    m->spread += (spread > 0 ? spread : 0) + apart * apart * (before * share);
    m->count += count;
}

INLINE void measure_blocks(int kind, const uint8_t *data, size_t count, double scale, const void *origin,
                           u64_any *counts, measures *m)
{
    const size_t width = IS_WIDE(kind) ? 8 : 4;
    const int64_t first = IS_WIDE(kind) ? order_64(kind, load_u64(origin)) : 0;
    const double from = distance_at(kind, origin, 0, scale, 0, 0);
    uint64_t finite[BLOCK];
    double distances[BLOCK] ALIGNED;
    uint32_t codes[BLOCK] ALIGNED;
    for (size_t start = 0; start < count; start += BLOCK) {
        const void *at = data + start * width;
        size_t here = min_size(BLOCK, count - start);
        if (IS_FLOAT(kind)) {
            uint32_t nan, special = count_special(kind, at, here, &nan);
            if (special) {
                m->nan += nan;
                m->inf += special - nan;
                here = copy_finite(kind, at, here, finite);
                at = finite;
                if (!here)
                    continue;
            }
        }
        find_extremes(kind, at, here, m);
        for (size_t i = 0; i < here; i++)
            distances[i] = distance_at(kind, at, i, scale, from, first);
        add_moments(distances, here, m);
        if (!counts)
            continue;
        for (size_t i = 0; i < here; i++)
            codes[i] = code_of(distances[i]);
        for (size_t i = 0; i < here; i++)
            counts[codes[i]]++;
    }
}

/* The switch makes the kind a constant of each loop. */
INLINE void measure_body(int kind, const uint8_t *data, size_t count, double scale, const void *origin,
                         u64_any *counts, measures *m)
{
    switch (kind) {
    case KIND_F32: measure_blocks(KIND_F32, data, count, scale, origin, counts, m); break;
    case KIND_F64: measure_blocks(KIND_F64, data, count, scale, origin, counts, m); break;
    case KIND_I32: measure_blocks(KIND_I32, data, count, scale, origin, counts, m); break;
    case KIND_U32: measure_blocks(KIND_U32, data, count, scale, origin, counts, m); break;
    case KIND_I64: measure_blocks(KIND_I64, data, count, scale, origin, counts, m); break;
    default: measure_blocks(KIND_U64, data, count, scale, origin, counts, m); break;
    }
}

SIMD_LEVELS(measure,
            (int kind, const uint8_t *data, size_t count, double scale, const void *origin, u64_any *counts,
             measures *m),
            (kind, data, count, scale, origin, counts, m))

/* Counts the codes of one byte. Equal neighbours would wait for each other, so each place in a word has a table. */
static void count_bytes(const uint8_t *data, size_t count, u64_any *counts)
{
    for (size_t start = 0; start < count; start += 1u << 30) { /* the tables hold that many */
        uint32_t tables[8][256] = {0};
        const size_t stop = min_size(count, start + (1u << 30));
        size_t i = start;
        for (; i + 8 <= stop; i += 8) {
            const uint64_t word = load_u64(data + i);
            for (int place = 0; place < 8; place++)
                tables[place][word >> 8 * place & 0xff]++;
        }
        for (; i < stop; i++)
            tables[0][data[i]]++;
        for (int place = 0; place < 8; place++)
            for (int code = 0; code < 256; code++)
                counts[code] += tables[place][code];
    }
}

/* Counts the codes of two bytes. Words that repeat, as in zeros, are counted once, since equal neighbours wait for each
 * other. */
static void count_pairs(const uint8_t *data, size_t count, u64_any *counts)
{
    size_t i = 0;
    while (i + 4 <= count) {
        const uint64_t word = load_u64(data + 2 * i);
        uint64_t times = 1;
        for (i += 4; i + 4 <= count && load_u64(data + 2 * i) == word; i += 4)
            times++;
        counts[word & 0xffff] += times;
        counts[word >> 16 & 0xffff] += times;
        counts[word >> 32 & 0xffff] += times;
        counts[word >> 48] += times;
    }
    for (; i < count; i++)
        counts[((const u16_any *)data)[i]]++;
}

/* Whether element `i` is at or above border `edge`; a NaN never is. */
INLINE bool reaches(int kind, const void *at, size_t i, const void *borders, size_t edge)
{
    if (kind == KIND_F32)
        return ((const f32_any *)at)[i] >= ((const f32_any *)borders)[edge];
    if (kind == KIND_F64)
        return ((const f64_any *)at)[i] >= ((const f64_any *)borders)[edge];
    if (IS_WIDE(kind))
        return order_64(kind, ((const u64_any *)at)[i]) >= order_64(kind, ((const u64_any *)borders)[edge]);
    return order_32(kind, ((const u32_any *)at)[i]) >= order_32(kind, ((const u32_any *)borders)[edge]);
}

INLINE void count_edges(int kind, const uint8_t *data, size_t count, const uint8_t *borders, size_t edges,
                        u64_any *counts)
{
    for (size_t start = 0; start < count; start += BLOCK) {
        const void *at = data + start * (IS_WIDE(kind) ? 8 : 4);
        const size_t here = min_size(BLOCK, count - start);
        for (size_t edge = 0; edge < edges; edge++) {
            uint32_t above = 0;
            for (size_t i = 0; i < here; i++)
                above += reaches(kind, at, i, borders, edge);
            counts[edge] += above;
        }
    }
}

INLINE void reach_body(int kind, const uint8_t *data, size_t count, const uint8_t *borders, size_t edges,
                       u64_any *counts)
{
    switch (kind) {
    case KIND_F32: count_edges(KIND_F32, data, count, borders, edges, counts); break;
    case KIND_F64: count_edges(KIND_F64, data, count, borders, edges, counts); break;
    case KIND_I32: count_edges(KIND_I32, data, count, borders, edges, counts); break;
    case KIND_U32: count_edges(KIND_U32, data, count, borders, edges, counts); break;
    case KIND_I64: count_edges(KIND_I64, data, count, borders, edges, counts); break;
    default: count_edges(KIND_U64, data, count, borders, edges, counts); break;
    }
}

SIMD_LEVELS(reach,
            (int kind, const uint8_t *data, size_t count, const uint8_t *borders, size_t edges, u64_any *counts),
            (kind, data, count, borders, edges, counts))

static bool check_counts(const Py_buffer *counts, size_t codes, bool optional)
{
    if ((size_t)counts->len == 8 * codes || (optional && counts->len == 0))
        return true;
    PyErr_Format(PyExc_ValueError, "%zd counts need %zd bytes, not %zd", codes, 8 * codes, counts->len);
    return false;
}

static bool find_kind(const char *name, int *kind)
{
    for (*kind = 0; *kind < KINDS && strcmp(kinds[*kind], name); ++*kind)
        continue;
    if (*kind < KINDS)
        return true;
    PyErr_Format(PyExc_ValueError, "no kind '%s' is measured", name);
    return false;
}

static bool check_elements(const char *name, const Py_buffer *data, const Py_buffer *origin, int *kind)
{
    if (!find_kind(name, kind))
        return false;
    const Py_ssize_t width = IS_WIDE(*kind) ? 8 : 4;
    if (data->len % width || origin->len != width) {
        PyErr_Format(PyExc_ValueError, "%zd bytes and an origin of %zd are not elements of %zd bytes", data->len,
                     origin->len, width);
        return false;
    }
    uint32_t nan;
    if (IS_FLOAT(*kind) && count_special(*kind, origin->buf, 1, &nan)) {
        PyErr_SetString(PyExc_ValueError, "an origin must be finite");
        return false;
    }
    return true;
}

/* An element as Python has it, from its number in the order of elements: that is turned into bits as they into it. The
 * sum takes the sign from a zero. */
static PyObject *number_of(int kind, int64_t order)
{
    if (kind == KIND_F32)
        return PyFloat_FromDouble((double)narrow_bits((uint32_t)order_32(KIND_F32, (uint32_t)order)) + 0.0);
    if (kind == KIND_F64)
        return PyFloat_FromDouble(as_double((uint64_t)order_64(KIND_F64, (uint64_t)order)) + 0.0);
    if (kind == KIND_U32)
        return PyLong_FromLongLong(order + (int64_t)SIGN_32);
    if (kind == KIND_U64)
        return PyLong_FromUnsignedLongLong((uint64_t)order ^ SIGN_64);
    return PyLong_FromLongLong(order);
}

PyObject *kernel_measure(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    Py_buffer data, origin, counts;
    double scale;
    if (!PyArg_ParseTuple(arguments, "sy*y*dw*:measure", &name, &data, &origin, &scale, &counts))
        return NULL;
    int kind;
    PyObject *result = NULL;
    if (check_elements(name, &data, &origin, &kind) && check_counts(&counts, CODES, true)) {
        measures m = {.low = INT64_MAX, .high = INT64_MIN};
        Py_BEGIN_ALLOW_THREADS
        measure[simd_level](kind, data.buf, (size_t)data.len / (IS_WIDE(kind) ? 8 : 4), scale, origin.buf,
                            counts.len ? counts.buf : NULL, &m);
        Py_END_ALLOW_THREADS
        PyObject *low = m.count ? number_of(kind, m.low) : Py_BuildValue("");
        PyObject *high = m.count ? number_of(kind, m.high) : Py_BuildValue("");
        if (low && high)
            result = Py_BuildValue("KKKKOOdd", (unsigned long long)m.count, (unsigned long long)m.nan,
                                   (unsigned long long)m.inf, (unsigned long long)m.zeros, low, high, m.mean, m.spread);
        Py_XDECREF(low);
        Py_XDECREF(high);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&origin);
    PyBuffer_Release(&counts);
    return result;
}

PyObject *kernel_count_codes(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, counts;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(arguments, "y*O&w*:count_codes", &data, to_size, &width, &counts))
        return NULL;
    bool valid = true;
    if ((width != 1 && width != 2) || data.len % width) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not codes of %zd bytes, which may be 1 or 2", data.len, width);
        valid = false;
    }
    valid = valid && check_counts(&counts, width == 1 ? 256 : CODES, false);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        if (width == 1)
            count_bytes(data.buf, (size_t)data.len, counts.buf);
        else
            count_pairs(data.buf, (size_t)data.len / 2, counts.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&counts);
    return valid ? Py_BuildValue("") : NULL;
}

PyObject *kernel_count_reached(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    Py_buffer data, borders, counts;
    if (!PyArg_ParseTuple(arguments, "sy*y*w*:count_reached", &name, &data, &borders, &counts))
        return NULL;
    int kind;
    bool valid = find_kind(name, &kind);
    const Py_ssize_t width = valid && IS_WIDE(kind) ? 8 : 4;
    if (valid && (data.len % width || borders.len % width)) {
        PyErr_Format(PyExc_ValueError, "%zd bytes and borders of %zd are not elements of %zd bytes", data.len,
                     borders.len, width);
        valid = false;
    }
    valid = valid && check_counts(&counts, (size_t)(borders.len / width), false);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        reach[simd_level](kind, data.buf, (size_t)(data.len / width), borders.buf, (size_t)(borders.len / width),
                          counts.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&borders);
    PyBuffer_Release(&counts);
    return valid ? Py_BuildValue("") : NULL;
}
