/* Compares two buffers: whether they are equal, and how far float32 arrays are apart, in one pass.
 *
 * Sums go into eight lanes, element i into lane i % 8, and the lanes are added in order at the end: the same bits with
 * every instruction set, and with the twin in numpy.
 */
#include <Python.h>

#include "kernels.h"
#include "simd.h"

#define LANES 8

typedef struct {
    double squares[LANES], left[LANES], right[LANES], product[LANES], largest[LANES];
    uint64_t different[LANES], wild[LANES];
} sums;

/* Adds one pair of elements. Equal infinities and two NaNs are equal; any other pair with one of them is "wild": it
 * differs, and is in no sum. */
INLINE void add(sums *s, int lane, float a, float b)
{
    int both = (a - a == 0.0f) & (b - b == 0.0f);
    int same = (a == b) | ((a != a) & (b != b));
    double x = both ? (double)a : 0.0, y = both ? (double)b : 0.0;
    double apart = x - y, size = apart < 0 ? -apart : apart;
    s->squares[lane] += apart * apart;
    s->left[lane] += x * x;
    s->right[lane] += y * y;
    s->product[lane] += x * y;
    s->largest[lane] = size > s->largest[lane] ? size : s->largest[lane];
    s->different[lane] += (uint64_t)!same;
    s->wild[lane] += (uint64_t)(!same & !both);
}

INLINE void distance_body(const f32_any *a, const f32_any *b, size_t count, sums *s)
{
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            add(s, lane, a[i + lane], b[i + lane]);
    for (size_t i = whole; i < count; i++)
        add(s, (int)(i - whole), a[i], b[i]);
}

SIMD_LEVELS(distance, (const f32_any *a, const f32_any *b, size_t count, sums *s), (a, b, count, s))

static double total(const double *lanes)
{
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

PyObject *kernel_distance(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer a, b;
    if (!PyArg_ParseTuple(arguments, "y*y*:distance", &a, &b))
        return NULL;
    PyObject *result = NULL;
    if (a.len != b.len || a.len % 4) {
        PyErr_Format(PyExc_ValueError, "two float32 arrays of one size are compared, not %zd and %zd bytes", a.len, b.len);
    } else {
        sums s = {0};
        Py_BEGIN_ALLOW_THREADS
        distance[simd_level](a.buf, b.buf, (size_t)a.len / 4, &s);
        Py_END_ALLOW_THREADS
        uint64_t different = 0, wild = 0;
        double largest = 0;
        for (int lane = 0; lane < LANES; lane++) {
            different += s.different[lane];
            wild += s.wild[lane];
            largest = s.largest[lane] > largest ? s.largest[lane] : largest;
        }
        result = Py_BuildValue("KKddddd", (unsigned long long)different, (unsigned long long)wild, largest,
                               total(s.squares), total(s.left), total(s.right), total(s.product));
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return result;
}

PyObject *kernel_equal(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer a, b;
    if (!PyArg_ParseTuple(arguments, "y*y*:equal", &a, &b))
        return NULL;
    int differs = a.len != b.len;
    if (!differs) {
        Py_BEGIN_ALLOW_THREADS
        differs = memcmp(a.buf, b.buf, (size_t)a.len) != 0;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return PyBool_FromLong(!differs);
}
