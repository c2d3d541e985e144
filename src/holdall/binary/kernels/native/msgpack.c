/* Strict MessagePack: a walk that checks every byte, and a list of maps as columns. No count is trusted: it must be at
 * most the number of bytes that are left. Text must be UTF-8; map keys must be text and differ from each other.
 * msgpack_reference.py is the Python twin. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>
#include <stdlib.h>

enum kind { NIL, FALSE_, TRUE_, UINT, NEGATIVE, FLOAT, STR, BIN, EXT, ARRAY, MAP, ABSENT = 255 };
enum status { FINE, CUT, RESERVED, DEEP, KEY, TWICE, TEXT, NOT_MAP, MANY, MEMORY };

#define MAX_DEPTH 1024
#define MAX_KEYS 32
#define FEW 16 /* map keys up to this are compared pair by pair, more are sorted */

struct token {
    int kind;
    uint64_t value; /* the number, or how many bytes, items or pairs */
    uint64_t at;    /* the first byte of text or bytes, else of the token itself */
};

struct key {
    uint64_t at, length;
};

struct frame {
    bool map, wants_key;
    uint64_t left;  /* items or pairs to come, the current one included */
    uint64_t index; /* of the current item */
    size_t keys;    /* where this map's keys begin on the stack of keys */
    size_t sorted;  /* how many of them were found to differ */
};

struct walk {
    const uint8_t *data;
    uint64_t at, stop;
    uint64_t left; /* values that may still come */
    int limit, depth;
    struct frame frame[MAX_DEPTH];
    struct key *keys;
    size_t count, room;
};

static uint64_t read_big_endian(const uint8_t *at, int width)
{
    uint64_t value = 0;
    while (width--)
        value = value << 8 | *at++;
    return value;
}

/* Reads one token without its items; moves past it and past the content of text or bytes. */
static int take(struct walk *w, struct token *t)
{
    if (w->at >= w->stop)
        return CUT;
    if (!w->left)
        return MANY;
    w->left--;
    const uint8_t *data = w->data + w->at;
    uint64_t left = w->stop - w->at - 1;
    uint8_t head = data[0];
    int width = 0; /* bytes of the number after the head */
    uint64_t value = 0, extra = 0;
    t->at = w->at;
    if (head < 0x80) {
        t->kind = UINT, value = head;
    } else if (head < 0x90) {
        t->kind = MAP, value = head & 15;
    } else if (head < 0xa0) {
        t->kind = ARRAY, value = head & 15;
    } else if (head < 0xc0) {
        t->kind = STR, value = head & 31;
    } else if (head >= 0xe0) {
        t->kind = NEGATIVE, value = (uint64_t)(int64_t)(int8_t)head;
    } else {
        switch (head) {
        case 0xc0: t->kind = NIL; break;
        case 0xc1: return RESERVED;
        case 0xc2: t->kind = FALSE_; break;
        case 0xc3: t->kind = TRUE_; break;
        case 0xc4: case 0xc5: case 0xc6: t->kind = BIN, width = 1 << (head - 0xc4); break;
        case 0xc7: case 0xc8: case 0xc9: t->kind = EXT, width = 1 << (head - 0xc7), extra = 1; break;
        case 0xca: case 0xcb: t->kind = FLOAT, width = 4 << (head - 0xca); break;
        case 0xcc: case 0xcd: case 0xce: case 0xcf: t->kind = UINT, width = 1 << (head - 0xcc); break;
        case 0xd0: case 0xd1: case 0xd2: case 0xd3: t->kind = NEGATIVE, width = 1 << (head - 0xd0); break;
        case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
            t->kind = EXT, value = (uint64_t)1 << (head - 0xd4), extra = 1;
            break;
        case 0xd9: case 0xda: case 0xdb: t->kind = STR, width = 1 << (head - 0xd9); break;
        case 0xdc: case 0xdd: t->kind = ARRAY, width = 2 << (head - 0xdc); break;
        default: t->kind = MAP, width = 2 << (head - 0xde); break; /* 0xde, 0xdf */
        }
    }
    if ((uint64_t)width > left)
        return CUT;
    if (width)
        value = read_big_endian(data + 1, width);
    left -= (uint64_t)width;
    w->at += 1 + (uint64_t)width;
    if (t->kind == NEGATIVE && width) {
        int shift = 64 - 8 * width;
        int64_t number = (int64_t)(value << shift) >> shift;
        value = (uint64_t)number;
        if (number >= 0)
            t->kind = UINT;
    } else if (t->kind == FLOAT && width == 4) {
        uint32_t bits = (uint32_t)value;
        float narrow;
        memcpy(&narrow, &bits, 4);
        double wide = (double)narrow;
        memcpy(&value, &wide, 8);
    } else if (t->kind == STR || t->kind == BIN || t->kind == EXT) {
        if (extra > left || value > left - extra)
            return CUT;
        t->at = w->at + extra;
        w->at = t->at + value;
    } else if ((t->kind == ARRAY && value > left) || (t->kind == MAP && value > left / 2)) {
        return CUT; /* every item takes at least a byte */
    }
    t->value = value;
    return FINE;
}

static bool is_utf8(const uint8_t *s, uint64_t n)
{
    const uint8_t *end = s + n;
    while (s < end) {
        if (end - s >= 8 && !(load_u64(s) & 0x8080808080808080u)) {
            s += 8;
            continue;
        }
        uint8_t c = *s++;
        if (c < 0x80)
            continue;
        int more = c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : 0;
        if (!more || end - s < more)
            return false;
        uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        for (; more; more--, s++, low = 0x80, high = 0xbf)
            if (*s < low || *s > high)
                return false;
    }
    return true;
}

static bool are_equal(const uint8_t *data, const struct key *a, const struct key *b)
{
    return a->length == b->length && !memcmp(data + a->at, data + b->at, a->length);
}

static int compare(const uint8_t *data, const struct key *a, const struct key *b)
{
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    int content = memcmp(data + a->at, data + b->at, a->length);
    return content ? content : a->at < b->at ? -1 : a->at > b->at;
}

static void sift(const uint8_t *data, struct key *keys, size_t root, size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare(data, &keys[child], &keys[child + 1]) < 0)
            child++;
        if (compare(data, &keys[root], &keys[child]) >= 0)
            return;
        struct key swap = keys[root];
        keys[root] = keys[child], keys[child] = swap;
    }
}

/* Sorts the keys (by a heap: no recursion, no bad case). Returns a key that is there twice, or NULL. */
static const struct key *find_twice(const uint8_t *data, struct key *keys, size_t count)
{
    for (size_t root = count / 2; root--;)
        sift(data, keys, root, count);
    for (size_t last = count; last > 1;) {
        struct key swap = keys[0];
        keys[0] = keys[--last], keys[last] = swap;
        sift(data, keys, 0, last);
    }
    for (size_t i = 1; i < count; i++)
        if (are_equal(data, &keys[i - 1], &keys[i]))
            return &keys[i];
    return NULL;
}

/* Adds a key of the innermost map. Many keys are checked each time their number has doubled, so that a map of millions
 * of equal keys ends early. */
static int add_key(struct walk *w, struct frame *f, const struct token *t, uint64_t *bad)
{
    struct key key = {t->at, t->value};
    size_t held = w->count - f->keys;
    if (held <= FEW)
        for (size_t i = f->keys; i < w->count; i++)
            if (are_equal(w->data, &w->keys[i], &key)) {
                *bad = t->at;
                f->sorted = 1; /* the last key is not the one at fault */
                return TWICE;
            }
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 64;
        struct key *keys = room > SIZE_MAX / sizeof *keys ? NULL : realloc(w->keys, room * sizeof *keys);
        if (!keys)
            return MEMORY;
        w->keys = keys, w->room = room;
    }
    w->keys[w->count++] = key;
    held++;
    if (held > FEW && held >= 2 * f->sorted) {
        const struct key *twice = find_twice(w->data, w->keys + f->keys, held);
        f->sorted = held;
        if (twice) {
            *bad = twice->at;
            return TWICE;
        }
    }
    return FINE;
}

static int end_map(struct walk *w, struct frame *f, uint64_t *bad)
{
    size_t held = w->count - f->keys;
    const struct key *twice = held > FEW && held > f->sorted ? find_twice(w->data, w->keys + f->keys, held) : NULL;
    if (twice)
        *bad = twice->at;
    w->count = f->keys;
    return twice ? TWICE : FINE;
}

static int push(struct walk *w, const struct token *t)
{
    if (w->depth >= w->limit)
        return DEEP;
    w->frame[w->depth++] = (struct frame){t->kind == MAP, t->kind == MAP, t->value, 0, w->count, 0};
    return FINE;
}

/* Walks everything inside the value whose first token is `t`. */
static int walk_inside(struct walk *w, struct token t, uint64_t *bad)
{
    int base = w->depth, status = FINE;
    *bad = t.at;
    if (t.kind == STR && !is_utf8(w->data + t.at, t.value))
        return TEXT;
    if ((t.kind == ARRAY || t.kind == MAP) && (status = push(w, &t)))
        return status;
    while (w->depth > base) {
        struct frame *f = &w->frame[w->depth - 1];
        if (!f->left) {
            if (f->map && (status = end_map(w, f, bad)))
                return status;
            if (--w->depth > base) { /* that was an item of the one around it */
                f = &w->frame[w->depth - 1];
                f->left--, f->index++, f->wants_key = f->map;
            }
            continue;
        }
        *bad = w->at;
        if ((status = take(w, &t)))
            return status;
        *bad = t.at;
        if (t.kind == STR && !is_utf8(w->data + t.at, t.value))
            return TEXT;
        if (f->wants_key) {
            if (t.kind != STR)
                return KEY;
            if ((status = add_key(w, f, &t, bad)))
                return status;
            f->wants_key = false;
            continue;
        }
        if (t.kind == ARRAY || t.kind == MAP) {
            if ((status = push(w, &t)))
                return status;
            continue;
        }
        f->left--, f->index++, f->wants_key = f->map;
    }
    return FINE;
}

struct schema {
    int count;
    const char *key[MAX_KEYS];
    size_t length[MAX_KEYS];
};

struct columns {
    uint64_t rows;
    uint8_t *kinds, *extras;
    uint8_t *ats, *values, *ends, *starts; /* uint64 at any alignment */
};

static int find_key(const struct schema *s, const uint8_t *name, uint64_t length, int guess)
{
    if (guess < s->count && s->length[guess] == length && !memcmp(s->key[guess], name, length))
        return guess; /* entries mostly have their keys in the same order */
    for (int i = 0; i < s->count; i++)
        if (s->length[i] == length && !memcmp(s->key[i], name, length))
            return i;
    return -1;
}

/* Reads one map into one row. `column` is the known key whose value has the error, or -1. */
static int take_row(struct walk *w, const struct schema *s, const struct columns *c, uint64_t row, int *column,
                    uint64_t *bad)
{
    struct token t;
    int status, guess = 0;
    *column = -1;
    *bad = w->at;
    store_u64(c->starts + 8 * row, w->at);
    c->extras[row] = 0;
    for (int i = 0; i < s->count; i++)
        c->kinds[(uint64_t)i * c->rows + row] = ABSENT;
    if ((status = take(w, &t)))
        return status;
    if (t.kind != MAP)
        return NOT_MAP;
    if ((status = push(w, &t)))
        return status;
    struct frame *f = &w->frame[w->depth - 1];
    for (; f->left; f->left--, f->index++) {
        *bad = w->at;
        *column = -1;
        if ((status = take(w, &t)))
            return status;
        *bad = t.at;
        if (t.kind != STR)
            return KEY;
        if (!is_utf8(w->data + t.at, t.value))
            return TEXT;
        int found = find_key(s, w->data + t.at, t.value, guess);
        guess = found + 1;
        uint64_t cell = (uint64_t)(found < 0 ? 0 : found) * c->rows + row;
        *column = found;
        if (found < 0) {
            c->extras[row] = 1;
            if ((status = add_key(w, f, &t, bad)))
                return status;
        } else if (c->kinds[cell] != ABSENT) {
            return TWICE;
        }
        *bad = w->at;
        if ((status = take(w, &t)) || (status = walk_inside(w, t, bad)))
            return status;
        if (found >= 0) {
            c->kinds[cell] = (uint8_t)t.kind;
            store_u64(c->ats + 8 * cell, t.at);
            store_u64(c->values + 8 * cell, t.value);
            store_u64(c->ends + 8 * cell, w->at);
        }
    }
    status = end_map(w, f, bad);
    w->depth--;
    return status;
}

static bool read_schema(const Py_buffer *names, struct schema *s)
{
    const char *at = names->buf, *end = at + names->len;
    s->count = 0;
    while (at < end) {
        const char *stop = memchr(at, 0, (size_t)(end - at));
        if (!stop || s->count == MAX_KEYS) {
            PyErr_Format(PyExc_ValueError, "keys are up to %d names, each ended by a NUL", MAX_KEYS);
            return false;
        }
        s->key[s->count] = at;
        s->length[s->count++] = (size_t)(stop - at);
        at = stop + 1;
    }
    return true;
}

/* The path to the place of the walk: a list of indexes (arrays) and (position, length) pairs of keys (maps). */
static PyObject *path_of(const struct walk *w, int skip)
{
    PyObject *path = PyList_New(0);
    for (int i = skip; path && i < w->depth; i++) {
        const struct frame *f = &w->frame[i];
        struct key key = {0, 0};
        size_t next = i + 1 < w->depth ? w->frame[i + 1].keys : w->count;
        if (f->map && next > f->keys && !f->sorted)
            key = w->keys[next - 1]; /* sorted keys lost their order, so there is none to name */
        PyObject *step = f->map ? Py_BuildValue("(KK)", (unsigned long long)key.at, (unsigned long long)key.length)
                                : PyLong_FromUnsignedLongLong(f->index);
        if (!step || PyList_Append(path, step)) {
            Py_XDECREF(step);
            Py_DECREF(path);
            return NULL;
        }
        Py_DECREF(step);
    }
    return path;
}

static bool holds(const Py_buffer *buffer, uint64_t count, uint64_t width)
{
    uint64_t size;
    return multiply_u64(width, count, &size) && size == (uint64_t)buffer->len;
}

PyObject *kernel_msgpack_table(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer b[8]; /* data, keys, kinds, ats, values, ends, starts, extras */
    Py_ssize_t start, stop, count;
    int depth;
    if (!PyArg_ParseTuple(arguments, "y*O&O&O&iy*w*w*w*w*w*w*:msgpack_table", &b[0], to_size, &start, to_size, &stop,
                          to_size, &count, &depth, &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7]))
        return NULL;
    struct schema schema;
    bool valid = read_schema(&b[1], &schema);
    if (valid && (start > stop || stop > b[0].len || depth < 1)) {
        PyErr_Format(PyExc_ValueError, "no range %zd to %zd in %zd bytes, or no depth", start, stop, b[0].len);
        valid = false;
    }
    uint64_t rows = (uint64_t)count, cells = valid ? (uint64_t)schema.count * rows : 0;
    if (valid && !(holds(&b[2], cells, 1) && holds(&b[3], cells, 8) && holds(&b[4], cells, 8) &&
                   holds(&b[5], cells, 8) && holds(&b[6], rows, 8) && holds(&b[7], rows, 1))) {
        PyErr_Format(PyExc_ValueError, "the columns do not hold %zd rows of %d keys", count, schema.count);
        valid = false;
    }
    struct walk *w = valid ? malloc(sizeof *w) : NULL;
    PyObject *result = valid && !w ? PyErr_NoMemory() : NULL;
    if (w) {
        struct columns c = {rows, b[2].buf, b[7].buf, b[3].buf, b[4].buf, b[5].buf, b[6].buf};
        *w = (struct walk){.data = b[0].buf, .at = (uint64_t)start, .stop = (uint64_t)stop, .left = UINT64_MAX,
                           .limit = depth < MAX_DEPTH ? depth : MAX_DEPTH};
        int status = FINE, column = -1;
        uint64_t row = 0, bad = 0;
        Py_BEGIN_ALLOW_THREADS
        while (row < rows && !(status = take_row(w, &schema, &c, row, &column, &bad)))
            row++;
        Py_END_ALLOW_THREADS
        PyObject *path = status == MEMORY ? PyErr_NoMemory() : path_of(w, column < 0 ? 0 : 1);
        if (path)
            result = Py_BuildValue("(KiKKiN)", (unsigned long long)row, status,
                                   (unsigned long long)(status ? bad : w->at), (unsigned long long)(status ? bad : 0),
                                   status ? column : -1, path);
        free(w->keys);
        free(w);
    }
    for (int i = 0; i < 8; i++)
        PyBuffer_Release(&b[i]);
    return result;
}

PyObject *kernel_msgpack_walk(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t start, stop, most;
    int depth;
    if (!PyArg_ParseTuple(arguments, "y*O&O&iO&:msgpack_walk", &data, to_size, &start, to_size, &stop, &depth, to_size,
                          &most))
        return NULL;
    struct walk *w = NULL;
    PyObject *result = NULL;
    if (start > stop || stop > data.len || depth < 1)
        PyErr_Format(PyExc_ValueError, "no range %zd to %zd in %zd bytes, or no depth", start, stop, data.len);
    else if (!(w = malloc(sizeof *w)))
        PyErr_NoMemory();
    if (w) {
        *w = (struct walk){.data = data.buf, .at = (uint64_t)start, .stop = (uint64_t)stop, .left = (uint64_t)most,
                           .limit = depth < MAX_DEPTH ? depth : MAX_DEPTH};
        struct token t;
        uint64_t bad = w->at;
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = take(w, &t);
        if (!status)
            status = walk_inside(w, t, &bad);
        Py_END_ALLOW_THREADS
        PyObject *path = status == MEMORY ? PyErr_NoMemory() : path_of(w, 0);
        if (path)
            result = Py_BuildValue("(iKKN)", status, (unsigned long long)(status ? bad : w->at),
                                   (unsigned long long)(status ? bad : 0), path);
        free(w->keys);
        free(w);
    }
    PyBuffer_Release(&data);
    return result;
}

/* Reads the items of many arrays of integers below 2^63. `positions` are those of the arrays. */
PyObject *kernel_msgpack_dims(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, positions, counts, out;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*:msgpack_dims", &data, &positions, &counts, &out))
        return NULL;
    Py_ssize_t rows = positions.len / 8, bad = -1;
    uint64_t room = (uint64_t)out.len / 8, done = 0, at = 0;
    bool valid = positions.len % 8 == 0 && counts.len == positions.len;
    struct walk *w = valid ? malloc(sizeof *w) : NULL;
    if (w) {
        *w = (struct walk){.data = data.buf, .stop = (uint64_t)data.len, .left = UINT64_MAX};
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < rows && bad < 0; row++) {
            struct token t;
            w->at = load_u64((const char *)positions.buf + 8 * row);
            uint64_t count = load_u64((const char *)counts.buf + 8 * row);
            at = w->at;
            if (take(w, &t) || t.kind != ARRAY || t.value != count || count > room - done) {
                bad = row;
                break;
            }
            for (uint64_t i = 0; i < count && bad < 0; i++) {
                at = w->at;
                if (take(w, &t) || t.kind != UINT || t.value >> 63)
                    bad = row;
                else
                    store_u64((char *)out.buf + 8 * done++, t.value);
            }
        }
        Py_END_ALLOW_THREADS
        free(w);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&positions);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&out);
    if (!valid)
        return PyErr_Format(PyExc_ValueError, "positions and counts must be uint64, as many of one as of the other");
    return w ? Py_BuildValue("(nK)", bad, (unsigned long long)at) : PyErr_NoMemory();
}
