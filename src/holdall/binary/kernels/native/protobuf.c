/* The records in a protobuf message, at any depth, as rows. The data are a window on the file: a field may begin or go
 * on outside of it. No number read is trusted before it is known to fit into its message. Without this kernel
 * format/onnx/wire.py looks at every record. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

enum kind { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum why { END, WINDOW, ROOM, WIRE, DEEP };

/* Columns of a row before those of the fields. A row of frames ends before ODD. */
enum column { FIELD, START, STOP, PARENT, NUMBER, ORDINAL, ODD, COUNT, FIRST };

enum { FRAME = ODD, SLOTS = 8, RECORD = 255 };

/* One message on the way down to where the walk is. */
struct level {
    uint64_t field, start, stop; /* where its field begins, and its bytes */
    uint64_t number, ordinal;    /* its field in the message around it, and how many of that number come before */
    uint64_t kind;               /* which rows of the grammar it obeys */
    uint64_t id;                 /* 1 + the number of its frame; 0 before a record is found in it */
    uint64_t seen[SLOTS];        /* fields met so far, by row of the grammar */
};

struct stack {
    uint64_t *depth, *ids; /* levels in use, frames numbered so far */
    struct level *levels;
    uint64_t room;
};

/* What a message of a kind has in a field: a message of the kind `child`, or a record. */
struct rule {
    uint8_t kind, number, child;
};

struct window {
    const uint8_t *data;
    uint64_t base, end; /* its range of the file */
};

struct field {
    uint64_t number, kind;
    uint64_t first, last; /* where its bytes begin and end; a varint's value, and where it ends */
};

struct wanted {
    const struct rule *rules;
    uint64_t rule_count, repeated;
    const uint8_t *singles, *odd; /* tags of one byte; numbers */
    uint64_t single_count, odd_count;
};

struct output {
    uint64_t *rows, *frames, *values;
    uint64_t row_room, frame_room, value_room, width, count, framed, used;
};

/* The number at `at` in a message that ends at `stop`. */
INLINE enum why read_varint(const struct window *w, uint64_t at, uint64_t stop, uint64_t *value, uint64_t *after)
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
    enum why why = read_varint(w, at, stop, &tag, &after);
    if (why != END)
        return why;
    f->number = tag >> 3;
    f->kind = tag & 7;
    if (f->number == 0)
        return WIRE;
    switch (f->kind) {
    case VARINT: return read_varint(w, after, stop, &f->first, &f->last);
    case FIXED64: size = 8; break;
    case FIXED32: size = 4; break;
    case BYTES:
        why = read_varint(w, after, stop, &size, &after);
        if (why != END)
            return why;
        break;
    default: return WIRE;
    }
    if (size > stop - after)
        return WIRE;
    f->first = after;
    f->last = after + size;
    return END;
}

/* Adds the value, or the values packed into bytes. */
static enum why add_values(const struct window *w, const struct field *f, struct output *out)
{
    uint64_t at = f->kind == BYTES ? f->first : 0, stop = f->kind == BYTES ? f->last : 1, value = f->first;
    if (f->kind != VARINT && f->kind != BYTES)
        return WIRE;
    while (at < stop) {
        enum why why = f->kind == BYTES ? read_varint(w, at, stop, &value, &at) : (at = stop, END);
        if (why != END)
            return why;
        if (out->used >= out->value_room)
            return ROOM;
        out->values[out->used++] = value;
    }
    return END;
}

/* Puts one field of a record into its row. WIRE: the record is odd. */
INLINE enum why take_field(const struct window *w, const struct wanted *k, const struct field *f, uint64_t *row,
                     struct output *out)
{
    if (f->number == k->repeated)
        return add_values(w, f, out);
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
            why = take_field(w, k, &f, row, out);
        if (why != END) {
            out->used = before;
            return why;
        }
        at = f.last;
    }
    row[COUNT] = out->used - before;
    return END;
}

/* Gives a frame to each message around the record that has none yet. */
static enum why add_frames(struct stack *stack, struct output *out)
{
    for (uint64_t i = 1; i < *stack->depth; i++) {
        struct level *level = stack->levels + i;
        if (level->id)
            continue;
        if (out->framed >= out->frame_room)
            return ROOM;
        uint64_t *frame = out->frames + FRAME * out->framed++;
        frame[FIELD] = level->field;
        frame[START] = level->start;
        frame[STOP] = level->stop;
        frame[PARENT] = level[-1].id - 1;
        frame[NUMBER] = level->number;
        frame[ORDINAL] = level->ordinal;
        level->id = ++*stack->ids;
    }
    return END;
}

/* Makes a row of the record in the field `f`, which begins at `at`. */
static enum why add_record(const struct window *w, const struct wanted *k, uint64_t at, const struct field *f,
                           struct stack *stack, uint64_t ordinal, struct output *out)
{
    enum why why = add_frames(stack, out);
    if (why != END)
        return why;
    if (out->count >= out->row_room)
        return ROOM;
    uint64_t *row = out->rows + out->count * out->width;
    row[FIELD] = at;
    row[START] = f->first;
    row[STOP] = f->last;
    row[PARENT] = stack->levels[*stack->depth - 1].id - 1;
    row[NUMBER] = f->number;
    row[ORDINAL] = ordinal;
    why = read_record(w, k, row, out);
    /* Another window helps a record that this one does not begin with, more room one that is not the first. */
    if ((why == WINDOW && at != w->base) || (why == ROOM && out->count))
        return why;
    if (why != END) {
        memset(row + ODD, 0, 8 * (out->width - ODD));
        row[ODD] = 1;
    }
    out->count++;
    return END;
}

static enum why walk(const struct window *w, const struct wanted *k, uint64_t *at, struct stack *stack,
                     struct output *out)
{
    struct field f;
    while (*stack->depth) {
        struct level *level = stack->levels + *stack->depth - 1;
        if (*at >= level->stop) {
            --*stack->depth;
            continue;
        }
        enum why why = read_field(w, *at, level->stop, &f);
        if (why != END)
            return why;
        const struct rule *rule = k->rules, *end = k->rules + k->rule_count;
        uint64_t slot = 0;
        for (; rule < end && (rule->kind != level->kind || rule->number != f.number || f.kind != BYTES); rule++)
            slot += rule->kind == level->kind;
        if (rule == end) {
            *at = f.last;
        } else if (rule->child == RECORD) {
            why = add_record(w, k, *at, &f, stack, level->seen[slot], out);
            if (why != END)
                return why;
            level->seen[slot]++;
            *at = f.last;
        } else {
            if (*stack->depth >= stack->room)
                return DEEP;
            struct level inner = {*at, f.first, f.last, f.number, level->seen[slot]++, rule->child, 0, {0}};
            stack->levels[(*stack->depth)++] = inner;
            *at = f.first;
        }
    }
    return END;
}

static bool has_sound_rules(const struct wanted *k)
{
    uint64_t counts[256] = {0};
    for (uint64_t i = 0; i < k->rule_count; i++)
        if (++counts[k->rules[i].kind] > SLOTS)
            return false;
    return true;
}

static bool has_sound_tags(const struct wanted *k)
{
    for (uint64_t i = 0; i < k->single_count; i++)
        if (k->singles[i] >= 0x80)
            return false;
    return true;
}

static bool holds_words(const Py_buffer *buffer, uint64_t width)
{
    return (uint64_t)buffer->len % (8 * width) == 0 && (uintptr_t)buffer->buf % 8 == 0;
}

/* Says what is wrong with the arguments; NULL when nothing is. */
static const char *find_fault(const Py_buffer *data, uint64_t base, uint64_t at, const struct wanted *k,
                              const Py_buffer *grammar, const struct stack *stack)
{
    uint64_t end;
    if (!add_u64(base, (uint64_t)data->len, &end) || at < base)
        return "the walk begins inside the window";
    if (grammar->len % 3 || !has_sound_rules(k))
        return "a rule has three bytes, and a kind of message at most 8 rules";
    if (!has_sound_tags(k))
        return "tags have one byte";
    return *stack->depth > stack->room ? "the stack has more levels than room" : NULL;
}

/* protobuf_records(data, base, at, grammar, repeated, singles, odd, stack, frames, rows, values)
 *
 * Walks a message and those inside it from `at` on. `data` are the bytes of the file from `base` on. `grammar` has three
 * bytes a rule: a kind of message, the number of a field in it, and the kind of that field's message, or 255 for a
 * record, which makes a row. `stack` is uint64: the number of levels, the number of frames given so far, and 15 for each
 * level (struct level); the caller puts the outermost message there, with the id 1, and hands the stack from one window
 * to the next.
 *
 * A row is uint64: where the field begins, where the record starts and stops, the frame of the message around it, its
 * number and ordinal there, whether it is odd, how many `values` its varints in the field `repeated` added, and two for
 * each of `singles`, tags of one byte: where its bytes start and stop, or a varint's value and where it stops; 0 and 0
 * when it is absent. A frame is a message with records inside, and has the first six columns of a row; the outermost
 * message is frame 0, and is not among `frames`.
 *
 * Sets ODD, and zeroes the columns after it, for a record that is broken, has a single field twice or of another kind,
 * or a field whose number is in `odd`; also for one that does not fit although it is the first of the window or of the
 * values.
 *
 * Returns the number of rows, frames and values, where the walk stopped and why: END, or what is missing there is a
 * WINDOW that begins there, more ROOM, or a sound field (WIRE); or messages lie too DEEP for the stack. */
PyObject *kernel_protobuf_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, grammar, singles, odd, levels, frames, rows, values;
    Py_ssize_t base, at, repeated_number;
    if (!PyArg_ParseTuple(arguments, "y*O&O&y*O&y*y*w*w*w*w*:protobuf_records", &data, to_size, &base, to_size, &at,
                          &grammar, to_size, &repeated_number, &singles, &odd, &levels, &frames, &rows, &values))
        return NULL;
    struct wanted wanted = {grammar.buf, (uint64_t)grammar.len / 3, (uint64_t)repeated_number, singles.buf, odd.buf,
                            (uint64_t)singles.len, (uint64_t)odd.len};
    uint64_t width = FIRST + 2 * wanted.single_count, reached = (uint64_t)at;
    struct output out = {rows.buf, frames.buf, values.buf, (uint64_t)rows.len / (8 * width),
                         (uint64_t)frames.len / (8 * FRAME), (uint64_t)values.len / 8, width, 0, 0, 0};
    const char *fault = "stack, frames, rows and values are whole rows of uint64";
    enum why why = END;
    if (holds_words(&rows, width) && holds_words(&frames, FRAME) && holds_words(&values, 1) && levels.len >= 16 &&
        holds_words(&levels, 1) && ((uint64_t)levels.len - 16) % sizeof(struct level) == 0) {
        uint64_t *words = levels.buf;
        struct stack stack = {words, words + 1, (struct level *)(words + 2),
                              ((uint64_t)levels.len - 16) / sizeof(struct level)};
        fault = find_fault(&data, (uint64_t)base, reached, &wanted, &grammar, &stack);
        if (!fault) {
            struct window window = {data.buf, (uint64_t)base, (uint64_t)base + (uint64_t)data.len};
            Py_BEGIN_ALLOW_THREADS
            why = walk(&window, &wanted, &reached, &stack, &out);
            Py_END_ALLOW_THREADS
        }
    }
    if (fault)
        PyErr_SetString(PyExc_ValueError, fault);
    Py_buffer *given[] = {&data, &grammar, &singles, &odd, &levels, &frames, &rows, &values};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        PyBuffer_Release(given[i]);
    if (fault)
        return NULL;
    return Py_BuildValue("(KKKKi)", (unsigned long long)out.count, (unsigned long long)out.framed,
                         (unsigned long long)out.used, (unsigned long long)reached, (int)why);
}
