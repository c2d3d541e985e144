/* The scanner for tables whose entries have variable length. A program, five int64 per step, describes an entry. No
 * number read from the data is used before it is known to fit before `stop`. */
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

enum op { INT, RAW, TEXT, ARRAY, BLOB, ELEMENTS, SKIP };

/* Far above any real table; keeps one entry's values on the stack. */
#define MAX_STEPS 64
#define MAX_COLUMNS (2 * MAX_STEPS)

struct step {
    int64_t op, a, b, c, d;
    int column; /* the first one this step fills */
};

struct program {
    int steps, columns;
    struct step step[MAX_STEPS];
};

struct table {
    const uint8_t *data;
    uint64_t start, stop, count;
    uint8_t *columns, *starts; /* uint64 at any alignment */
};

struct outcome {
    uint64_t done, at;
    int failed_step;
};

static bool is_width(int64_t width) { return width == 1 || width == 2 || width == 4 || width == 8; }

/* Whether an earlier step fills the column with a number of the file: an INT, or the length of a TEXT. */
static bool is_number(const struct program *p, int64_t column)
{
    for (const struct step *s = p->step; s < p->step + p->steps; s++)
        if ((s->op == INT && s->column == column) || (s->op == TEXT && s->column + 1 == column))
            return true;
    return false;
}

/* The earlier ARRAY step that fills the column, or NULL. */
static const struct step *array_step(const struct program *p, int64_t column)
{
    for (const struct step *s = p->step; s < p->step + p->steps; s++)
        if (s->op == ARRAY && s->column == column)
            return s;
    return NULL;
}

/* The number of columns that the step fills, or -1 for a step that is not valid after those before it. */
static int check_step(const struct program *p, const struct step *s)
{
    switch (s->op) {
    case INT: return is_width(s->a) ? 1 : -1;
    case RAW: return s->a >= 0 ? 1 : -1;
    case TEXT: return is_width(s->a) && s->b >= 1 ? 2 : -1;
    case ARRAY: return s->a >= 1 && is_number(p, s->b) ? 1 : -1;
    case BLOB: return is_number(p, s->a) ? 1 : -1;
    case ELEMENTS: {
        /* The walk reads the dimensions again without a bounds check, so they must be the array that was checked. */
        const struct step *dims = array_step(p, s->b);
        return dims && dims->a == s->c && dims->b == s->a && (s->c == 4 || s->c == 8) && s->d >= 1 ? 1 : -1;
    }
    case SKIP: return s->a >= 0 ? 0 : -1;
    default: return -1;
    }
}

static bool read_program(const Py_buffer *words, struct program *p)
{
    *p = (struct program){0};
    if (words->len % 40 || words->len / 40 > MAX_STEPS) {
        PyErr_Format(PyExc_ValueError, "a program is up to %d steps of 5 int64, not %zd bytes", MAX_STEPS, words->len);
        return false;
    }
    while (p->steps < words->len / 40) {
        struct step *s = &p->step[p->steps];
        memcpy(s, (const char *)words->buf + 40 * p->steps, 40);
        s->column = p->columns;
        int columns = check_step(p, s);
        if (columns < 0) {
            PyErr_Format(PyExc_ValueError, "step %d of the program is not valid", p->steps);
            return false;
        }
        p->columns += columns;
        p->steps++;
    }
    return true;
}

/* product(dims) * item bytes; false when it does not fit 64 bits. One dim of 0 makes it 0, however large the others. */
static bool elements_size(const uint8_t *dims, uint64_t count, int width, uint64_t item, uint64_t *size)
{
    bool fits = true;
    *size = item;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t dim = load_uint(dims + i * (uint64_t)width, width);
        if (dim == 0) {
            *size = 0;
            return true;
        }
        fits = fits && multiply_u64(*size, dim, size);
    }
    return fits;
}

/* Fills the step's columns of the row and its size in bytes; false when the step does not fit into the bytes left. */
INLINE bool take(const struct step *s, const uint8_t *data, uint64_t at, uint64_t left, uint64_t *row, uint64_t *size)
{
    uint64_t a = (uint64_t)s->a, b = (uint64_t)s->b;
    uint64_t *column = row + s->column;
    *column = at;
    switch (s->op) {
    case INT:
        if (left < a)
            return false;
        *column = load_uint(data + at, (int)a);
        *size = a;
        return true;
    case TEXT:
        if (left < a)
            return false;
        column[0] = at + a;
        column[1] = load_uint(data + at, (int)a);
        if (column[1] > left - a)
            return false;
        *size = a + column[1];
        if (b > 1 && *size % b) {
            uint64_t padding = b - *size % b;
            if (padding > left - *size)
                return false;
            *size += padding;
        }
        return true;
    case ARRAY: return multiply_u64(a, row[b], size) && *size <= left;
    case BLOB: *size = row[a]; return *size <= left;
    case ELEMENTS: return elements_size(data + row[b], row[a], (int)s->c, (uint64_t)s->d, size) && *size <= left;
    default: *size = a; return *size <= left; /* RAW and SKIP */
    }
}

static struct outcome walk(const struct program *p, const struct table *t)
{
    uint64_t row[MAX_COLUMNS + 1]; /* one more: a last SKIP has no column, but the loop writes one */
    uint64_t at = t->start;
    for (uint64_t entry = 0; entry < t->count; entry++) {
        store_u64(t->starts + 8 * entry, at);
        for (int i = 0; i < p->steps; i++) {
            uint64_t size;
            if (!take(&p->step[i], t->data, at, t->stop - at, row, &size))
                return (struct outcome){entry, at, i};
            at += size;
        }
        for (int column = 0; column < p->columns; column++)
            store_u64(t->columns + 8 * ((uint64_t)column * t->count + entry), row[column]);
    }
    return (struct outcome){t->count, at, -1};
}

/* Whether the buffer is exactly rows * count uint64. The product may overflow, so it is not computed. */
static bool holds(const Py_buffer *buffer, int rows, Py_ssize_t count)
{
    uint64_t size;
    return multiply_u64(8 * (uint64_t)rows, (uint64_t)count, &size) && size == (uint64_t)buffer->len;
}

PyObject *kernel_scan(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, words, columns, starts;
    Py_ssize_t start, stop, count;
    if (!PyArg_ParseTuple(arguments, "y*O&O&O&y*w*w*:scan", &data, to_size, &start, to_size, &stop, to_size, &count,
                          &words, &columns, &starts))
        return NULL;
    struct program program;
    bool valid = read_program(&words, &program);
    if (valid && (start > stop || stop > data.len)) {
        PyErr_Format(PyExc_ValueError, "no range %zd to %zd in %zd bytes", start, stop, data.len);
        valid = false;
    }
    if (valid && !(holds(&columns, program.columns, count) && holds(&starts, 1, count))) {
        PyErr_Format(PyExc_ValueError, "columns and starts must be uint64[%d][%zd] and uint64[%zd]", program.columns,
                     count, count);
        valid = false;
    }
    struct outcome end = {0};
    if (valid) {
        struct table table = {data.buf, (uint64_t)start, (uint64_t)stop, (uint64_t)count, columns.buf, starts.buf};
        Py_BEGIN_ALLOW_THREADS
        end = walk(&program, &table);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&words);
    PyBuffer_Release(&columns);
    PyBuffer_Release(&starts);
    if (!valid)
        return NULL;
    return Py_BuildValue("(KiK)", (unsigned long long)end.done, end.failed_step, (unsigned long long)end.at);
}
