/* Columns read from the tape of a JSON document: records, arrays of integers, words. The tape is not trusted: every
 * index and place in it is checked again. */
#include "json.h"
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

struct tape {
    const uint8_t *data;
    uint64_t size;
    const struct token *token;
    uint64_t count;
};

static struct tape tape_of(const Py_buffer *data, const Py_buffer *tokens)
{
    return (struct tape){data->buf, (uint64_t)data->len, tokens->buf, (uint64_t)tokens->len / sizeof(struct token)};
}

static bool is_tape(const Py_buffer *tokens)
{
    if (tokens->len % sizeof(struct token) == 0 && (uintptr_t)tokens->buf % _Alignof(struct token) == 0)
        return true;
    PyErr_SetString(PyExc_ValueError, "a tape is made of tokens of 4 uint32");
    return false;
}

/* The token at the index when it is of the kind and lies inside the data, else NULL. */
INLINE const struct token *token_at(const struct tape *t, uint64_t index, uint32_t kind)
{
    if (index >= t->count)
        return NULL;
    const struct token *k = &t->token[index];
    return (k->kind & KIND) == kind && k->start <= k->end && k->end <= t->size ? k : NULL;
}

struct words {
    int count;
    const char *text[64];
    Py_ssize_t length[64];
};

static bool read_words(PyObject *list, struct words *words)
{
    Py_ssize_t count = PyTuple_Check(list) ? PyTuple_Size(list) : -1;
    if (count < 0 || count > 64) {
        PyErr_SetString(PyExc_ValueError, "words are a tuple of up to 64 bytes objects");
        return false;
    }
    words->count = (int)count;
    for (int i = 0; i < words->count; i++) {
        char *text;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(list, i), &text, &words->length[i]))
            return false;
        words->text[i] = text;
    }
    return true;
}

/* The place of the string among the words, or -1. A string with escapes is none of them. */
INLINE int word_of(const struct tape *t, const struct token *k, const struct words *words)
{
    uint64_t length = k->end - k->start;
    if (!(k->kind & ESCAPED))
        for (int i = 0; i < words->count; i++)
            if (length == (uint64_t)words->length[i] && !memcmp(t->data + k->start, words->text[i], length))
                return i;
    return -1;
}

/* Fills one row of json_records: the key, the value, the value of each field, and the first odd token, or 0. */
static void fill_row(const struct tape *t, const struct words *fields, uint64_t key, uint64_t value, uint32_t *row)
{
    row[0] = (uint32_t)key;
    row[1] = (uint32_t)value;
    uint32_t *field = row + 2, *odd = field + fields->count;
    memset(field, 0, 4 * ((size_t)fields->count + 1));
    const struct token *object = token_at(t, value, OBJECT);
    if (!object) {
        *odd = (uint32_t)value;
        return;
    }
    uint64_t at = value + 1, end = object->link;
    while (at < end) {
        const struct token *k = token_at(t, at, KEY);
        if (!k || at + 1 >= t->count)
            return;
        int which = word_of(t, k, fields);
        if (which < 0 || field[which]) {
            if (!*odd)
                *odd = (uint32_t)at;
        } else {
            field[which] = (uint32_t)at + 1;
        }
        uint64_t next = t->token[at + 1].link;
        if (next <= at + 1)
            return;
        at = next;
    }
}

/* Counts the rows; also writes them where `rows` is not NULL and has room. */
static uint64_t fill_rows(const struct tape *t, const struct words *fields, uint64_t at, uint32_t *rows, uint64_t room)
{
    const struct token *object = token_at(t, at, OBJECT);
    uint64_t count = 0, end = object ? object->link : 0;
    for (at++; at < end && at + 1 < t->count && token_at(t, at, KEY); count++) {
        if (rows && count < room)
            fill_row(t, fields, at, at + 1, rows + count * ((uint64_t)fields->count + 3));
        uint64_t next = t->token[at + 1].link;
        if (next <= at + 1)
            return count + 1;
        at = next;
    }
    return count;
}

PyObject *kernel_json_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, tokens;
    Py_ssize_t at;
    PyObject *list, *out = NULL;
    struct words fields;
    if (!PyArg_ParseTuple(arguments, "y*y*O&O:json_records", &data, &tokens, to_size, &at, &list))
        return NULL;
    if (is_tape(&tokens) && read_words(list, &fields)) {
        struct tape tape = tape_of(&data, &tokens);
        uint64_t count = fill_rows(&tape, &fields, (uint64_t)at, NULL, 0);
        const Py_ssize_t size = bytes_of(count, 4 * ((uint64_t)fields.count + 3));
        out = size < 0 ? NULL : PyByteArray_FromStringAndSize(NULL, size);
        if (out)
            fill_rows(&tape, &fields, (uint64_t)at, (uint32_t *)PyByteArray_AsString(out), count);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&tokens);
    return out;
}

/* A plain non-negative integer below 2**64. */
static bool parse_uint(const uint8_t *p, uint64_t length, uint64_t *value)
{
    *value = 0;
    for (uint64_t i = 0; i < length; i++)
        if (p[i] < '0' || p[i] > '9' || !multiply_u64(10, *value, value) ||
            !add_u64(*value, (uint64_t)(p[i] - '0'), value))
            return false;
    return length > 0;
}

/* Reads the integers of one array. Returns their number, or -1 when it has other items or there is no room. */
static int64_t read_uints(const struct tape *t, uint64_t index, uint64_t *values, uint64_t room)
{
    const struct token *array = token_at(t, index, ARRAY);
    if (!array || array->link <= index || array->link > t->count || array->link - index - 1 > room)
        return -1;
    uint64_t count = array->link - index - 1;
    for (uint64_t i = 0; i < count; i++) {
        const struct token *k = token_at(t, index + 1 + i, INT);
        if (!k || !parse_uint(t->data + k->start, k->end - k->start, &values[i]))
            return -1;
    }
    return (int64_t)count;
}

PyObject *kernel_json_uints(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, tokens, indexes, counts, values;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*w*:json_uints", &data, &tokens, &indexes, &counts, &values))
        return NULL;
    uint64_t rows = (uint64_t)indexes.len / 4, row = 0, used = 0, room = (uint64_t)values.len / 8;
    bool valid = is_tape(&tokens);
    if (valid && (indexes.len % 4 || (uint64_t)counts.len != 8 * rows || values.len % 8 ||
                  (uintptr_t)values.buf % 8)) {
        PyErr_SetString(PyExc_ValueError, "indexes are uint32, counts as many uint64, values uint64");
        valid = false;
    }
    if (valid) {
        struct tape tape = tape_of(&data, &tokens);
        for (; row < rows; row++) {
            uint64_t index = load_uint((const uint8_t *)indexes.buf + 4 * row, 4);
            int64_t count = read_uints(&tape, index, (uint64_t *)values.buf + used, room - used);
            if (count < 0)
                break;
            store_u64((uint8_t *)counts.buf + 8 * row, (uint64_t)count);
            used += (uint64_t)count;
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&tokens);
    PyBuffer_Release(&indexes);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&values);
    if (!valid)
        return NULL;
    return Py_BuildValue("(KL)", (unsigned long long)used, row < rows ? (long long)row : -1LL);
}

PyObject *kernel_json_words(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, tokens, indexes, out;
    PyObject *list;
    struct words words;
    if (!PyArg_ParseTuple(arguments, "y*y*y*Ow*:json_words", &data, &tokens, &indexes, &list, &out))
        return NULL;
    bool valid = is_tape(&tokens) && read_words(list, &words);
    if (valid && (indexes.len % 4 || out.len != indexes.len / 4)) {
        PyErr_SetString(PyExc_ValueError, "indexes are uint32, and codes as many bytes");
        valid = false;
    }
    if (valid) {
        struct tape tape = tape_of(&data, &tokens);
        for (Py_ssize_t row = 0; row < out.len; row++) {
            const struct token *k = token_at(&tape, load_uint((const uint8_t *)indexes.buf + 4 * row, 4), STRING);
            ((uint8_t *)out.buf)[row] = (uint8_t)(k ? word_of(&tape, k, &words) : -1);
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&tokens);
    PyBuffer_Release(&indexes);
    PyBuffer_Release(&out);
    if (!valid)
        return NULL;
    Py_RETURN_NONE;
}
