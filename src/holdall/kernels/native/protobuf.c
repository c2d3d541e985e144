/* The records of a protobuf message as rows. The bytes at hand are a window on the file: a field may begin or go on
 * outside of it. Every number read is hostile until it is proven to fit into its message. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

enum kind { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum why { END, WINDOW, ROOM, WIRE };

/* Columns of a row before those of the fields. */
enum column { FIELD, START, STOP, ODD, COUNT, FIRST };

struct window {
    const uint8_t *data;
    uint64_t base, end; /* the part of the file that is at hand */
};

struct field {
    uint64_t number, kind;
    uint64_t first, last; /* where its bytes begin and end; a varint's value, and where it ends */
};

struct wanted {
    uint64_t record, repeated;
    const uint8_t *singles, *odd; /* tags of one byte; numbers */
    uint64_t single_count, odd_count;
};

struct output {
    uint64_t *rows, *values;
    uint64_t row_room, value_room, width, count, used;
};

/* The number at `at` in a message that ends at `stop`. */
INLINE enum why varint(const struct window *w, uint64_t at, uint64_t stop, uint64_t *value, uint64_t *after)
{
    *value = 0;
    for (uint64_t i = 0; i < 10; i++) {
        if (i >= stop - at)
            return WIRE;
        if (at < w->base || at >= w->end || i >= w->end - at)
            return WINDOW;
        uint64_t byte = w->data[at - w->base + i];
        if (i == 9 && byte > 1) /* the tenth has one bit left */
            return WIRE;
        *value |= (byte & 0x7F) << 7 * i;
        if (byte < 0x80) {
            *after = at + i + 1;
            return END;
        }
    }
    return WIRE;
}

INLINE enum why read_field(const struct window *w, uint64_t at, uint64_t stop, struct field *f)
{
    uint64_t tag, size, after;
    enum why why = varint(w, at, stop, &tag, &after);
    if (why != END)
        return why;
    f->number = tag >> 3;
    f->kind = tag & 7;
    switch (f->kind) {
    case VARINT: return varint(w, after, stop, &f->first, &f->last);
    case FIXED64: size = 8; break;
    case FIXED32: size = 4; break;
    case BYTES:
        why = varint(w, after, stop, &size, &after);
        if (why != END)
            return why;
        break;
    default: return WIRE;
    }
    if (f->number == 0 || size > stop - after)
        return WIRE;
    f->first = after;
    f->last = after + size;
    return END;
}

/* Adds the value, or the values packed into bytes. */
static enum why repeated(const struct window *w, const struct field *f, struct output *out)
{
    uint64_t at = f->kind == BYTES ? f->first : 0, stop = f->kind == BYTES ? f->last : 1, value = f->first;
    if (f->kind != VARINT && f->kind != BYTES)
        return WIRE;
    while (at < stop) {
        enum why why = f->kind == BYTES ? varint(w, at, stop, &value, &at) : (at = stop, END);
        if (why != END)
            return why;
        if (out->used >= out->value_room)
            return ROOM;
        out->values[out->used++] = value;
    }
    return END;
}

/* One field of a record into its row. WIRE: it is out of the ordinary. */
INLINE enum why take(const struct window *w, const struct wanted *k, const struct field *f, uint64_t *row,
                     struct output *out)
{
    if (f->number == k->repeated)
        return repeated(w, f, out);
    for (uint64_t i = 0; i < k->single_count; i++) {
        if (f->number != (uint64_t)(k->singles[i] >> 3))
            continue;
        uint64_t *pair = row + FIRST + 2 * i;
        if (pair[1] || f->kind != (k->singles[i] & 7))
            return WIRE;
        pair[0] = f->first;
        pair[1] = f->last;
        return END;
    }
    for (uint64_t i = 0; i < k->odd_count; i++)
        if (f->number == k->odd[i])
            return WIRE;
    return END;
}

static enum why read_record(const struct window *w, const struct wanted *k, uint64_t *row, struct output *out)
{
    uint64_t at = row[START], before = out->used;
    struct field f;
    memset(row + ODD, 0, 8 * (out->width - ODD));
    while (at < row[STOP]) {
        enum why why = read_field(w, at, row[STOP], &f);
        if (why == END)
            why = take(w, k, &f, row, out);
        if (why != END) {
            out->used = before;
            return why;
        }
        at = f.last;
    }
    row[COUNT] = out->used - before;
    return END;
}

static enum why walk(const struct window *w, const struct wanted *k, uint64_t *at, uint64_t stop, struct output *out)
{
    struct field f;
    while (*at < stop) {
        enum why why = read_field(w, *at, stop, &f);
        if (why != END)
            return why;
        if (f.number == k->record && f.kind == BYTES) {
            if (out->count >= out->row_room)
                return ROOM;
            uint64_t *row = out->rows + out->count * out->width;
            row[FIELD] = *at;
            row[START] = f.first;
            row[STOP] = f.last;
            why = read_record(w, k, row, out);
            /* Another window helps a record that this one does not begin with, more room one that is not the first. */
            if ((why == WINDOW && *at != w->base) || (why == ROOM && out->count))
                return why;
            if (why != END) {
                memset(row + ODD, 0, 8 * (out->width - ODD));
                row[ODD] = 1;
            }
            out->count++;
        }
        *at = f.last;
    }
    return END;
}

static bool is_sound(const Py_buffer *data, uint64_t base, uint64_t at, uint64_t stop, const struct wanted *k,
                     const Py_buffer *rows, const Py_buffer *values)
{
    uint64_t end;
    if (__builtin_add_overflow(base, (uint64_t)data->len, &end) || at < base || at > stop) {
        PyErr_SetString(PyExc_ValueError, "the walk begins inside the window, and before its end");
        return false;
    }
    for (uint64_t i = 0; i < k->single_count; i++)
        if (k->singles[i] >= 0x80) {
            PyErr_SetString(PyExc_ValueError, "tags have one byte");
            return false;
        }
    uint64_t width = FIRST + 2 * k->single_count;
    if ((uint64_t)rows->len % (8 * width) || values->len % 8 || (uintptr_t)rows->buf % 8 || (uintptr_t)values->buf % 8) {
        PyErr_Format(PyExc_ValueError, "rows are %d uint64 each, values uint64", (int)width);
        return false;
    }
    return true;
}

PyObject *kernel_protobuf_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, singles, odd, rows, values;
    Py_ssize_t base, at, stop, record, repeated_number;
    if (!PyArg_ParseTuple(arguments, "y*O&O&O&O&O&y*y*w*w*:protobuf_records", &data, to_size, &base, to_size, &at,
                          to_size, &stop, to_size, &record, to_size, &repeated_number, &singles, &odd, &rows, &values))
        return NULL;
    struct wanted wanted = {(uint64_t)record,       (uint64_t)repeated_number, singles.buf, odd.buf,
                            (uint64_t)singles.len, (uint64_t)odd.len};
    uint64_t width = FIRST + 2 * wanted.single_count, reached = (uint64_t)at;
    struct output out = {rows.buf, values.buf, (uint64_t)rows.len / (8 * width), (uint64_t)values.len / 8, width, 0, 0};
    enum why why = END;
    bool valid = is_sound(&data, (uint64_t)base, reached, (uint64_t)stop, &wanted, &rows, &values);
    if (valid) {
        struct window window = {data.buf, (uint64_t)base, (uint64_t)base + (uint64_t)data.len};
        Py_BEGIN_ALLOW_THREADS
        why = walk(&window, &wanted, &reached, (uint64_t)stop, &out);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&singles);
    PyBuffer_Release(&odd);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&values);
    if (!valid)
        return NULL;
    return Py_BuildValue("(KKKi)", (unsigned long long)out.count, (unsigned long long)out.used,
                         (unsigned long long)reached, (int)why);
}
