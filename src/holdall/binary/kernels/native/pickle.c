/* Finds the tensors of a state dict in its pickle, without running the pickle. Only the opcodes that torch.save writes
 * for a dict of tensors are known, in the order in which it writes them. At any other opcode the walk goes back to the
 * last place between two batches of items, where the machine of format/torch/pickle.py takes over. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

enum opcode {
    PROTO = 0x80, LONG1 = 0x8a, NEW_TRUE = 0x88, NEW_FALSE = 0x89, TUPLE1 = 0x85, TUPLE3 = 0x87, MARK = '(', TUPLE = 't',
    EMPTY_TUPLE = ')', EMPTY_DICT = '}', UINT8 = 'K', UINT16 = 'M', INT32 = 'J', UNICODE = 'X', GLOBAL = 'c', GET = 'h',
    LONG_GET = 'j', PUT = 'q', LONG_PUT = 'r', PERSISTENT = 'Q', REDUCE = 'R', SET_ITEM = 's', SET_ITEMS = 'u',
};

/* The kind of a remembered value: the low three bits. Above them is the place of a text, a word or a row. */
enum kind { OTHER, TEXT, WORD, TENSOR, ROOT };

enum column { NAME_AT, NAME_SIZE, KEY_AT, KEY_SIZE, STORAGE, ELEMENTS, FIRST, DIMS, RANK, PLACE, COLUMNS };

enum { ORDERED_DICT, REBUILD, FIRST_STORAGE }; /* the words that every caller begins with */

/* Picklers write batches of a thousand items. Far larger ones are left to the machine, which limits its stack. */
#define MAX_WORDS 64
#define MAX_BATCH (1 << 18)
#define MAX_RANK 4096

struct piece {
    const char *data;
    Py_ssize_t size;
};

/* Filled from the front; `room` is the number of values that fit. */
struct column_of {
    uint8_t *data; /* uint64 at any alignment */
    uint64_t count, room;
};

struct walk {
    const uint8_t *data;
    uint64_t at, stop, made, most; /* made: opcodes so far, most: those that are allowed */
    struct column_of memo, rows, values;
    struct piece word[MAX_WORDS];
    int words;
};

INLINE bool append(struct column_of *c, uint64_t value)
{
    if (c->count >= c->room)
        return false;
    store_u64(c->data + 8 * c->count++, value);
    return true;
}

INLINE uint64_t bytes_left(const struct walk *w) { return w->stop - w->at; }

/* The next opcode, not yet taken; -1 at the end. */
INLINE int peek(const struct walk *w) { return bytes_left(w) && w->made < w->most ? w->data[w->at] : -1; }

INLINE bool take(struct walk *w, int opcode)
{
    if (peek(w) != opcode)
        return false;
    w->at++;
    w->made++;
    return true;
}

INLINE bool read_number(struct walk *w, int width, uint64_t *value)
{
    if (bytes_left(w) < (uint64_t)width)
        return false;
    *value = load_uint(w->data + w->at, width);
    w->at += (uint64_t)width;
    return true;
}

/* Remembers the last value, if the pickle asks for it and uses the next free number, as every pickler does. */
INLINE bool remember(struct walk *w, enum kind kind, uint64_t what)
{
    uint64_t index;
    int opcode = peek(w);
    if (opcode != PUT && opcode != LONG_PUT)
        return true;
    return take(w, opcode) && read_number(w, opcode == PUT ? 1 : 4, &index) && index == w->memo.count &&
           append(&w->memo, what << 3 | kind);
}

/* Recalls a remembered value of this kind; takes nothing when the next opcode does something else. */
INLINE bool recall(struct walk *w, enum kind kind, uint64_t *what)
{
    uint64_t index, before = w->at;
    int opcode = peek(w);
    if ((opcode == GET || opcode == LONG_GET) && take(w, opcode)) {
        if (read_number(w, opcode == GET ? 1 : 4, &index) && index < w->memo.count) {
            uint64_t value = load_u64(w->memo.data + 8 * index);
            *what = value >> 3;
            if ((value & 7) == kind)
                return true;
        }
        w->at = before;
        w->made--;
    }
    return false;
}

/* Reads or recalls a text: the place and number of its bytes. */
INLINE bool read_text(struct walk *w, uint64_t *at, uint64_t *size)
{
    uint64_t place = w->at;
    if (recall(w, TEXT, &place)) {
        *size = load_uint(w->data + place + 1, 4);
        *at = place + 5;
        return true;
    }
    if (!take(w, UNICODE) || !read_number(w, 4, size) || *size > bytes_left(w))
        return false;
    *at = w->at;
    w->at += *size;
    return remember(w, TEXT, place);
}

INLINE bool is_text(struct walk *w, const char *wanted)
{
    uint64_t at, size;
    return read_text(w, &at, &size) && size == strlen(wanted) && !memcmp(w->data + at, wanted, size);
}

/* Reads the name of a device. It is not used, so any ASCII text will do. */
INLINE bool read_device(struct walk *w)
{
    uint64_t at, size;
    if (!read_text(w, &at, &size))
        return false;
    for (uint64_t i = 0; i < size; i++)
        if (w->data[at + i] >= 0x80)
            return false;
    return true;
}

/* Reads or recalls a global: its place among the words. */
INLINE bool read_global(struct walk *w, uint64_t *which)
{
    if (recall(w, WORD, which))
        return true;
    if (!take(w, GLOBAL))
        return false;
    for (int i = 0; i < w->words; i++) {
        uint64_t size = (uint64_t)w->word[i].size;
        if (size <= bytes_left(w) && !memcmp(w->data + w->at, w->word[i].data, size)) {
            w->at += size;
            *which = (uint64_t)i;
            return remember(w, WORD, *which);
        }
    }
    return false;
}

/* Reads an integer from 0 to 2**63 - 1. Where it fails, the walk may be anywhere. */
INLINE bool read_integer(struct walk *w, uint64_t *value)
{
    uint64_t bytes;
    switch (peek(w)) {
    case UINT8: return take(w, UINT8) && read_number(w, 1, value);
    case UINT16: return take(w, UINT16) && read_number(w, 2, value);
    case INT32: return take(w, INT32) && read_number(w, 4, value) && *value >> 31 == 0;
    case LONG1:
        if (!take(w, LONG1) || !read_number(w, 1, &bytes) || bytes > 8 || bytes > bytes_left(w))
            return false;
        *value = 0;
        for (uint64_t i = 0; i < bytes; i++)
            *value |= (uint64_t)w->data[w->at + i] << 8 * i;
        if (bytes && w->data[w->at + bytes - 1] >= 0x80)
            return false; /* negative */
        w->at += bytes;
        return true;
    default: return false;
    }
}

/* Reads an integer from 0 to 2**63 - 1, or stays where it is: what follows a list of sizes is read from there. */
INLINE bool read_size(struct walk *w, uint64_t *value)
{
    uint64_t at = w->at, made = w->made;
    if (read_integer(w, value))
        return true;
    w->at = at;
    w->made = made;
    return false;
}

/* Reads a tuple of sizes and appends them to the values. */
static bool read_sizes(struct walk *w, uint64_t *count)
{
    uint64_t value = 0;
    *count = 0;
    if (take(w, EMPTY_TUPLE))
        return remember(w, OTHER, 0);
    bool marked = take(w, MARK);
    while (*count < MAX_RANK && read_size(w, &value)) {
        if (!append(&w->values, value))
            return false;
        ++*count;
    }
    if (marked ? !take(w, TUPLE) : *count < 1 || *count > 3 || !take(w, TUPLE1 + (int)*count - 1))
        return false;
    return remember(w, OTHER, 0);
}

/* Reads the call that makes an empty OrderedDict. */
static bool read_empty_ordered_dict(struct walk *w, enum kind kind)
{
    uint64_t which;
    return read_global(w, &which) && which == ORDERED_DICT && take(w, EMPTY_TUPLE) && take(w, REDUCE) &&
           remember(w, kind, 0);
}

/* Reads a call of _rebuild_tensor_v2 with a typed storage, flags and no hooks, or recalls a tensor. */
static bool read_tensor(struct walk *w, uint64_t *row)
{
    uint64_t which, known, rank;
    if (recall(w, TENSOR, &known)) {
        if (known >= w->rows.count / COLUMNS)
            return false;
        memcpy(row + KEY_AT, w->rows.data + 8 * (known * COLUMNS + KEY_AT), 8 * (COLUMNS - KEY_AT));
        return true;
    }
    if (!read_global(w, &which) || which != REBUILD || !take(w, MARK) || !take(w, MARK) || !is_text(w, "storage") ||
        !read_global(w, &row[STORAGE]) || row[STORAGE] < FIRST_STORAGE || !read_text(w, &row[KEY_AT], &row[KEY_SIZE]) ||
        !read_device(w) || !read_size(w, &row[ELEMENTS]) || !take(w, TUPLE) || !remember(w, OTHER, 0) ||
        !take(w, PERSISTENT))
        return false;
    row[DIMS] = w->values.count;
    if (!read_size(w, &row[FIRST]) || !read_sizes(w, &row[RANK]) || !read_sizes(w, &rank) || rank != row[RANK] ||
        !(take(w, NEW_FALSE) || take(w, NEW_TRUE)) || !read_empty_ordered_dict(w, OTHER) || !take(w, TUPLE) ||
        !remember(w, OTHER, 0))
        return false;
    row[PLACE] = w->at;
    return take(w, REDUCE) && remember(w, TENSOR, w->rows.count / COLUMNS);
}

static bool read_item(struct walk *w)
{
    uint64_t row[COLUMNS];
    if (w->rows.room - w->rows.count < COLUMNS || !read_text(w, &row[NAME_AT], &row[NAME_SIZE]) || !read_tensor(w, row))
        return false;
    for (int column = 0; column < COLUMNS; column++)
        append(&w->rows, row[column]);
    return true;
}

/* Reads a batch of items: several after a mark, or one without a mark. */
static bool walk_batch(struct walk *w)
{
    if (!take(w, MARK))
        return read_item(w) && take(w, SET_ITEM);
    for (int items = 0; items < MAX_BATCH; items++) {
        if (take(w, SET_ITEMS))
            return true;
        if (!read_item(w))
            return false;
    }
    return false;
}

/* Walks as far as it can and leaves `w` at the last place between two batches. Returns whether the dict is an
 * OrderedDict, or -1 when there is no dict. */
static int walk_state_dict(struct walk *w)
{
    uint64_t protocol;
    if (!take(w, PROTO) || !read_number(w, 1, &protocol))
        return -1;
    int ordered = peek(w) != EMPTY_DICT;
    if (ordered ? !read_empty_ordered_dict(w, ROOT) : !take(w, EMPTY_DICT) || !remember(w, ROOT, 0))
        return -1;
    struct walk sound;
    do
        sound = *w;
    while (walk_batch(w));
    *w = sound;
    return ordered;
}

static bool read_words(PyObject *list, struct walk *w)
{
    Py_ssize_t count = PyTuple_Check(list) ? PyTuple_Size(list) : -1;
    if (count < FIRST_STORAGE || count > MAX_WORDS) {
        PyErr_Format(PyExc_ValueError, "words are a tuple of %d to %d", FIRST_STORAGE, MAX_WORDS);
        return false;
    }
    for (w->words = 0; w->words < count; w->words++) {
        char *data;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(list, w->words), &data, &w->word[w->words].size) < 0)
            return false;
        w->word[w->words].data = data;
    }
    return true;
}

/* pickle_tensors(data, words, most, memo, rows, values)
 *
 * `words` are globals as the pickle has them, "module\nname\n": OrderedDict, _rebuild_tensor_v2, then the classes of
 * storages. `memo` and `values` are uint64, `rows` is uint64[][10]: what is remembered, the dims and strides, and the
 * columns of each tensor. At most `most` opcodes are read.
 *
 * Returns whether the dict is an OrderedDict (-1: there is none), the number of rows, of remembered values and of
 * opcodes, and the place in `data`, all after the last whole batch of items: the machine in Python goes on from
 * there. */
PyObject *kernel_pickle_tensors(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, memo, rows, values;
    Py_ssize_t most;
    PyObject *words;
    if (!PyArg_ParseTuple(arguments, "y*OO&w*w*w*:pickle_tensors", &data, &words, to_size, &most, &memo, &rows, &values))
        return NULL;
    struct walk walk = {
        .data = data.buf, .stop = (uint64_t)data.len, .most = (uint64_t)most,
        .memo = {memo.buf, 0, (uint64_t)memo.len / 8},
        .rows = {rows.buf, 0, (uint64_t)rows.len / 8},
        .values = {values.buf, 0, (uint64_t)values.len / 8},
    };
    bool valid = read_words(words, &walk);
    if (valid && (memo.len % 8 || rows.len % (8 * COLUMNS) || values.len % 8)) {
        PyErr_Format(PyExc_ValueError, "memo and values are uint64, rows are uint64[][%d]", COLUMNS);
        valid = false;
    }
    int ordered = -1;
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        ordered = walk_state_dict(&walk);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&memo);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&values);
    if (!valid)
        return NULL;
    return Py_BuildValue("(iKKKK)", ordered, (unsigned long long)(walk.rows.count / COLUMNS),
                         (unsigned long long)walk.memo.count, (unsigned long long)walk.made,
                         (unsigned long long)walk.at);
}
