/* Strict JSON (RFC 8259) without a tree: one pass leaves a tape of tokens in document order. No recursion: while a
 * container is open, its `link` is the index of the container around it. */
#include "json.h"
#include "kernels.h"
#include "memory.h"

#include <stdbool.h>

#define DEPTH_SHIFT 8
#define MAX_DEPTH ((1 << 24) - 2)

/* What may come next. */
enum state { VALUE, FIRST_VALUE, FIRST_KEY, NEXT_KEY, COMMA, DONE };
enum outcome { COMPLETE, FULL, WRONG };

struct walk {
    const uint8_t *data;
    uint64_t at, stop;
    struct token *tape;
    uint64_t count, capacity;
    uint32_t open, depth, max_depth; /* open: index of the innermost open container */
    enum state state;
    const char *reason;
};

static enum outcome fail(struct walk *w, uint64_t at, const char *reason)
{
    w->at = at;
    w->reason = reason;
    return WRONG;
}

static const char *const EARLY = "the document ends too early";

INLINE struct token *put(struct walk *w, uint32_t kind, uint64_t start, uint64_t end)
{
    struct token *t = &w->tape[w->count++];
    *t = (struct token){kind | w->depth << DEPTH_SHIFT, (uint32_t)start, (uint32_t)end, (uint32_t)w->count};
    return t;
}

/* The length of the UTF-8 sequence at `p`, or 0 when it is not valid. */
static int utf8_length(const uint8_t *p, uint64_t left)
{
    uint8_t first = p[0];
    int length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (!length || left < (uint64_t)length)
        return 0;
    /* The second byte rules out overlong forms, surrogates and what lies above U+10FFFF. */
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high)
        return 0;
    for (int i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/* The four hex digits at `p`, or -1. */
static int hex4(const uint8_t *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i], digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* The length of the escape whose backslash is at `at`; 0, with the reason set, when it is not valid. */
static int escape_length(struct walk *w, uint64_t at)
{
    const uint8_t *p = w->data + at;
    uint64_t left = w->stop - at;
    if (left < 2)
        return fail(w, w->stop, EARLY), 0;
    switch (p[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': return 2;
    case 'u': break;
    default: return fail(w, at, "no such escape"), 0;
    }
    if (left < 6)
        return fail(w, w->stop, EARLY), 0;
    int unit = hex4(p + 2);
    if (unit < 0)
        return fail(w, at, "no such escape"), 0;
    if (unit < 0xD800 || unit > 0xDFFF)
        return 6;
    int second = unit < 0xDC00 && left >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (second < 0xDC00 || second > 0xDFFF)
        return fail(w, at, "half of a surrogate pair"), 0;
    return 12;
}

/* Eight bytes that are plain text: no quote, no backslash, no control character, ASCII. */
INLINE bool plain8(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
    uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
    return !(((word - ones * 0x20) | (quote - ones) | (slash - ones) | word) & tops);
}

/* A string whose opening quote is at w->at. */
static bool take_string(struct walk *w, uint32_t kind)
{
    const uint8_t *data = w->data;
    uint64_t start = w->at + 1, at = start, stop = w->stop;
    for (;;) {
        while (stop - at >= 8 && plain8(load_u64(data + at)))
            at += 8;
        if (at >= stop)
            return fail(w, stop, EARLY), false;
        uint8_t c = data[at];
        if (c == '"')
            break;
        if (c == '\\') {
            int length = escape_length(w, at);
            if (!length)
                return false;
            kind |= ESCAPED;
            at += (uint64_t)length;
        } else if (c < 0x20) {
            return fail(w, at, "a control character in a string"), false;
        } else if (c >= 0x80) {
            int length = utf8_length(data + at, stop - at);
            if (!length)
                return fail(w, at, "not UTF-8"), false;
            at += (uint64_t)length;
        } else {
            at++;
        }
    }
    put(w, kind, start, at);
    w->at = at + 1;
    return true;
}

static uint64_t skip_digits(const struct walk *w, uint64_t at)
{
    while (at < w->stop && w->data[at] >= '0' && w->data[at] <= '9')
        at++;
    return at;
}

static bool take_number(struct walk *w)
{
    const uint8_t *data = w->data;
    uint64_t start = w->at, at = start + (data[start] == '-'), whole = at, stop = w->stop;
    uint32_t kind = INT;
    at = at < stop && data[at] == '0' ? at + 1 : skip_digits(w, at);
    bool good = at > whole;
    if (good && at < stop && data[at] == '.') {
        uint64_t first = ++at;
        at = skip_digits(w, at);
        good = at > first;
        kind = FLOAT;
    }
    if (good && at < stop && (data[at] | 32) == 'e') {
        at++;
        at += at < stop && (data[at] == '+' || data[at] == '-');
        uint64_t first = at;
        at = skip_digits(w, at);
        good = at > first;
        kind = FLOAT;
    }
    if (!good)
        return fail(w, at, at >= stop ? EARLY : "a digit is expected"), false;
    put(w, kind, start, at);
    w->at = at;
    return true;
}

static bool take_word(struct walk *w, const char *word, uint32_t kind)
{
    size_t length = strlen(word);
    if (w->stop - w->at < length || memcmp(w->data + w->at, word, length))
        return fail(w, w->at, "a value is expected"), false;
    put(w, kind, w->at, w->at + length);
    w->at += length;
    return true;
}

static bool take_open(struct walk *w, uint32_t kind)
{
    if (w->depth >= w->max_depth)
        return fail(w, w->at, "nested too deep"), false;
    uint32_t around = w->open;
    w->open = (uint32_t)w->count;
    put(w, kind, w->at, 0)->link = around;
    w->depth++;
    w->at++;
    w->state = kind == OBJECT ? FIRST_KEY : FIRST_VALUE;
    return true;
}

static void close_container(struct walk *w)
{
    struct token *t = &w->tape[w->open];
    w->open = t->link;
    t->link = (uint32_t)w->count;
    t->end = (uint32_t)++w->at;
    w->state = --w->depth ? COMMA : DONE;
}

static bool take_value(struct walk *w)
{
    bool good;
    switch (w->data[w->at]) {
    case '{': return take_open(w, OBJECT);
    case '[': return take_open(w, ARRAY);
    case '"': good = take_string(w, STRING); break;
    case 't': good = take_word(w, "true", TRUE); break;
    case 'f': good = take_word(w, "false", FALSE); break;
    case 'n': good = take_word(w, "null", NONE); break;
    case '-': case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9': good = take_number(w); break;
    default: return fail(w, w->at, "a value is expected"), false;
    }
    w->state = w->depth ? COMMA : DONE;
    return good;
}

INLINE void skip_space(struct walk *w)
{
    while (w->at < w->stop) {
        uint8_t c = w->data[w->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return;
        w->at++;
    }
}

/* Walks until the document ends, the tape is full, or there is an error. A step adds one token at most. */
static enum outcome walk(struct walk *w)
{
    for (;;) {
        skip_space(w);
        if (w->at >= w->stop)
            return w->state == DONE ? COMPLETE : fail(w, w->stop, EARLY);
        if (w->count == w->capacity)
            return FULL;
        uint8_t c = w->data[w->at];
        switch (w->state) {
        case DONE: return fail(w, w->at, "something follows the document");
        case COMMA: {
            bool object = (w->tape[w->open].kind & KIND) == OBJECT;
            if (c == ',') {
                w->at++;
                w->state = object ? NEXT_KEY : VALUE;
            } else if (c == (object ? '}' : ']')) {
                close_container(w);
            } else {
                return fail(w, w->at, object ? "a comma or } is expected" : "a comma or ] is expected");
            }
            break;
        }
        case FIRST_VALUE:
            if (c == ']') {
                close_container(w);
                break;
            }
            /* fall through */
        case VALUE:
            if (!take_value(w))
                return WRONG;
            break;
        case FIRST_KEY:
            if (c == '}') {
                close_container(w);
                break;
            }
            /* fall through */
        case NEXT_KEY:
            if (c != '"')
                return fail(w, w->at, "a key is expected");
            if (!take_string(w, KEY))
                return WRONG;
            skip_space(w);
            if (w->at >= w->stop)
                return fail(w, w->stop, EARLY);
            if (w->data[w->at] != ':')
                return fail(w, w->at, "a colon is expected");
            w->at++;
            w->state = VALUE;
            break;
        }
    }
}

/* Lets the tape grow. There are never more tokens than bytes. */
static bool grow(struct walk *w, PyObject *tape)
{
    uint64_t most = w->stop + 1, wanted = w->capacity ? 2 * w->capacity : 64 + (w->stop - w->at) / 6;
    w->capacity = wanted < most ? wanted : most;
    const Py_ssize_t size = bytes_of(w->capacity, sizeof(struct token));
    if (size < 0 || PyByteArray_Resize(tape, size))
        return false;
    w->tape = (struct token *)PyByteArray_AsString(tape);
    return true;
}

static PyObject *make_tape(const Py_buffer *data, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t depth)
{
    if (start > stop || stop > data->len)
        return PyErr_Format(PyExc_ValueError, "no range %zd to %zd in %zd bytes", start, stop, data->len);
    if ((uint64_t)stop >= UINT32_MAX || depth > MAX_DEPTH)
        return PyErr_Format(PyExc_ValueError, "a document is below 4 GiB and a depth below 2**24");
    PyObject *tape = PyByteArray_FromStringAndSize(NULL, 0);
    if (!tape)
        return NULL;
    struct walk w = {.data = data->buf, .at = (uint64_t)start, .stop = (uint64_t)stop, .max_depth = (uint32_t)depth};
    enum outcome outcome;
    if (stop - start >= 3 && !memcmp(w.data + start, "\xEF\xBB\xBF", 3)) {
        outcome = fail(&w, w.at, "a byte order mark");
    } else {
        do {
            if (!grow(&w, tape)) {
                Py_DECREF(tape);
                return NULL;
            }
            Py_BEGIN_ALLOW_THREADS
            outcome = walk(&w);
            Py_END_ALLOW_THREADS
        } while (outcome == FULL);
    }
    if (PyByteArray_Resize(tape, (Py_ssize_t)(w.count * sizeof(struct token)))) {
        Py_DECREF(tape);
        return NULL;
    }
    return Py_BuildValue("(NKz)", tape, (unsigned long long)w.at, outcome == WRONG ? w.reason : NULL);
}

PyObject *kernel_json_tape(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t start, stop, depth;
    if (!PyArg_ParseTuple(arguments, "y*O&O&O&:json_tape", &data, to_size, &start, to_size, &stop, to_size, &depth))
        return NULL;
    PyObject *result = make_tape(&data, start, stop, depth);
    PyBuffer_Release(&data);
    return result;
}
