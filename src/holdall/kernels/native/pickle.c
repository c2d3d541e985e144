/* The tensors of a state dict, straight from its pickle. Nothing is run and nothing is built: only the opcodes that
 * torch.save writes for a dict of tensors are known here, in the order in which it writes them. At anything else the
 * walk goes back to the last place between two batches of items, where the machine in Python takes over. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

enum opcode {
    PROTO = 0x80, LONG1 = 0x8a, NEW_TRUE = 0x88, NEW_FALSE = 0x89, TUPLE1 = 0x85, TUPLE3 = 0x87, MARK = '(', TUPLE = 't',
    EMPTY_TUPLE = ')', EMPTY_DICT = '}', UINT8 = 'K', UINT16 = 'M', INT32 = 'J', UNICODE = 'X', GLOBAL = 'c', GET = 'h',
    LONG_GET = 'j', PUT = 'q', LONG_PUT = 'r', PERSISTENT = 'Q', REDUCE = 'R', SET_ITEM = 's', SET_ITEMS = 'u',
};

/* What is remembered: the kind in the low three bits, above them the place of a text, a word or a row. */
enum kind { OTHER, TEXT, WORD, TENSOR, ROOT };

enum column { NAME_AT, NAME_SIZE, KEY_AT, KEY_SIZE, STORAGE, ELEMENTS, FIRST, DIMS, RANK, PLACE, COLUMNS };

enum { ORDERED_DICT, REBUILD, FIRST_STORAGE }; /* the words that every caller begins with */

/* A batch is a thousand items; far more would meet the machine's cap on values that wait, which is its to judge. */
#define MAX_WORDS 64
#define MAX_BATCH (1 << 18)
#define MAX_RANK 4096

struct piece {
    const char *data;
    Py_ssize_t size;
};

/* Filled front to back; `room` is how many fit. */
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

INLINE uint64_t left(const struct walk *w) { return w->stop - w->at; }

/* The next opcode, not yet taken; -1 at the end. */
INLINE int peek(const struct walk *w) { return left(w) && w->made < w->most ? w->data[w->at] : -1; }

INLINE bool take(struct walk *w, int opcode)
{
    if (peek(w) != opcode)
        return false;
    w->at++;
    w->made++;
    return true;
}

INLINE bool number(struct walk *w, int width, uint64_t *value)
{
    if (left(w) < (uint64_t)width)
        return false;
    *value = load_uint(w->data + w->at, width);
    w->at += (uint64_t)width;
    return true;
}

/* The value made last is remembered, if the pickle says so: under the next free number, as every pickler does. */
INLINE bool put(struct walk *w, enum kind kind, uint64_t what)
{
    uint64_t index;
    int opcode = peek(w);
    if (opcode != PUT && opcode != LONG_PUT)
        return true;
    return take(w, opcode) && number(w, opcode == PUT ? 1 : 4, &index) && index == w->memo.count &&
           append(&w->memo, what << 3 | kind);
}

/* What is remembered of this kind under the number that follows; at anything else nothing is taken. */
INLINE bool get(struct walk *w, enum kind kind, uint64_t *what)
{
    uint64_t index, before = w->at;
    int opcode = peek(w);
    if ((opcode == GET || opcode == LONG_GET) && take(w, opcode)) {
        if (number(w, opcode == GET ? 1 : 4, &index) && index < w->memo.count) {
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

/* A text, here or remembered: where its bytes are, and how many. */
INLINE bool text(struct walk *w, uint64_t *at, uint64_t *size)
{
    uint64_t place = w->at;
    if (get(w, TEXT, &place)) {
        *size = load_uint(w->data + place + 1, 4);
        *at = place + 5;
        return true;
    }
    if (!take(w, UNICODE) || !number(w, 4, size) || *size > left(w))
        return false;
    *at = w->at;
    w->at += *size;
    return put(w, TEXT, place);
}

INLINE bool is_text(struct walk *w, const char *wanted)
{
    uint64_t at, size;
    return text(w, &at, &size) && size == strlen(wanted) && !memcmp(w->data + at, wanted, size);
}

/* The name of a device, which nothing depends on: any ASCII text. */
INLINE bool device(struct walk *w)
{
    uint64_t at, size;
    if (!text(w, &at, &size))
        return false;
    for (uint64_t i = 0; i < size; i++)
        if (w->data[at + i] >= 0x80)
            return false;
    return true;
}

/* A global: its place among the words. */
INLINE bool global(struct walk *w, uint64_t *which)
{
    if (get(w, WORD, which))
        return true;
    if (!take(w, GLOBAL))
        return false;
    for (int i = 0; i < w->words; i++) {
        uint64_t size = (uint64_t)w->word[i].size;
        if (size <= left(w) && !memcmp(w->data + w->at, w->word[i].data, size)) {
            w->at += size;
            *which = (uint64_t)i;
            return put(w, WORD, *which);
        }
    }
    return false;
}

/* A whole number from 0 to 2**63 - 1. */
INLINE bool size_value(struct walk *w, uint64_t *value)
{
    uint64_t bytes;
    switch (peek(w)) {
    case UINT8: return take(w, UINT8) && number(w, 1, value);
    case UINT16: return take(w, UINT16) && number(w, 2, value);
    case INT32: return take(w, INT32) && number(w, 4, value) && *value >> 31 == 0;
    case LONG1:
        if (!take(w, LONG1) || !number(w, 1, &bytes) || bytes > 8 || bytes > left(w))
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

/* A tuple of sizes, appended to the values. */
static bool sizes(struct walk *w, uint64_t *count)
{
    uint64_t value;
    *count = 0;
    if (take(w, EMPTY_TUPLE))
        return put(w, OTHER, 0);
    bool marked = take(w, MARK);
    while (*count < MAX_RANK && size_value(w, &value)) {
        if (!append(&w->values, value))
            return false;
        ++*count;
    }
    if (marked ? !take(w, TUPLE) : *count < 1 || *count > 3 || !take(w, TUPLE1 + (int)*count - 1))
        return false;
    return put(w, OTHER, 0);
}

/* An OrderedDict with nothing in it. */
static bool empty_ordered(struct walk *w, enum kind kind)
{
    uint64_t which;
    return global(w, &which) && which == ORDERED_DICT && take(w, EMPTY_TUPLE) && take(w, REDUCE) && put(w, kind, 0);
}

/* A call of _rebuild_tensor_v2 with a typed storage, flags and no hooks, or a tensor that was met before. */
static bool tensor(struct walk *w, uint64_t *row)
{
    uint64_t which, known, rank;
    if (get(w, TENSOR, &known)) {
        if (known >= w->rows.count / COLUMNS)
            return false;
        memcpy(row + KEY_AT, w->rows.data + 8 * (known * COLUMNS + KEY_AT), 8 * (COLUMNS - KEY_AT));
        return true;
    }
    if (!global(w, &which) || which != REBUILD || !take(w, MARK) || !take(w, MARK) || !is_text(w, "storage") ||
        !global(w, &row[STORAGE]) || row[STORAGE] < FIRST_STORAGE || !text(w, &row[KEY_AT], &row[KEY_SIZE]) ||
        !device(w) || !size_value(w, &row[ELEMENTS]) || !take(w, TUPLE) || !put(w, OTHER, 0) || !take(w, PERSISTENT))
        return false;
    row[DIMS] = w->values.count;
    if (!size_value(w, &row[FIRST]) || !sizes(w, &row[RANK]) || !sizes(w, &rank) || rank != row[RANK] ||
        !(take(w, NEW_FALSE) || take(w, NEW_TRUE)) || !empty_ordered(w, OTHER) || !take(w, TUPLE) || !put(w, OTHER, 0))
        return false;
    row[PLACE] = w->at;
    return take(w, REDUCE) && put(w, TENSOR, w->rows.count / COLUMNS);
}

static bool item(struct walk *w)
{
    uint64_t row[COLUMNS];
    if (w->rows.room - w->rows.count < COLUMNS || !text(w, &row[NAME_AT], &row[NAME_SIZE]) || !tensor(w, row))
        return false;
    for (int column = 0; column < COLUMNS; column++)
        append(&w->rows, row[column]);
    return true;
}

/* Items with a mark before them, or a single one without. */
static bool batch(struct walk *w)
{
    if (!take(w, MARK))
        return item(w) && take(w, SET_ITEM);
    for (int items = 0; items < MAX_BATCH; items++) {
        if (take(w, SET_ITEMS))
            return true;
        if (!item(w))
            return false;
    }
    return false;
}

/* Walks as far as it can; what is left in `w` is the place between two batches where it ends. Whether the dict is an
 * OrderedDict, or -1 when not even the dict was met. */
static int state_dict(struct walk *w)
{
    uint64_t protocol;
    if (!take(w, PROTO) || !number(w, 1, &protocol))
        return -1;
    int ordered = peek(w) != EMPTY_DICT;
    if (ordered ? !empty_ordered(w, ROOT) : !take(w, EMPTY_DICT) || !put(w, ROOT, 0))
        return -1;
    struct walk sound;
    do
        sound = *w;
    while (batch(w));
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
        ordered = state_dict(&walk);
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
