/* What a transformer computes between its matrix products: GELU, layer normalization, softmax, over rows in place.
 *
 * All arithmetic is double, so that the float32 results are rounded once, or nearly so, even after a polynomial. Sums
 * go into eight lanes, element i into lane i % 8, and the lanes are added in order: the same bits with every
 * instruction set, and with the twins in encoder_reference.py.
 */
#include <Python.h>

#include "kernels.h"
#include "simd.h"

#include <math.h>

#define LANES 8

INLINE double total(const double *lanes)
{
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

/* -- GELU: x * Phi(x), where Phi(x) = 1/2 + x * h(x * x). ---------------------------------------------------------- */

/* h is erf(x / sqrt 2) / (2 x), a Chebyshev series of degree 18 over x * x from 0 to 32, as powers of x * x / 16 - 1.
 * Phi is off by less than 1e-8; beyond the ends it is 0 or 1. */
#define GELU_LIMIT 32.0
static const double GELU[] = {
    0.12499208218954172,    -0.0624291268654255,    0.046554184346405555,  -0.03808133925181934,
    0.03189367707379952,    -0.02642121698726254,   0.021173545201756024,  -0.016173056850281958,
    0.011686103364580638,   -0.007977068971378828,  0.005084464958560431,  -0.002964207309077846,
    0.001688198521146655,   -0.001028738847867285,  0.000498564232322849,  -0.00011508858855206514,
    6.124593941009172e-05,  -8.712333354954225e-05, 3.324749759395837e-05,
};
#define GELU_DEGREE 18

INLINE void bias_gelu_body(f32_any *restrict values, const f32_any *restrict bias, size_t rows, size_t width)
{
    for (size_t row = 0; row < rows; row++, values += width)
        for (size_t i = 0; i < width; i++) {
            double x = (double)(values[i] + bias[i]), square = x * x;
            double at = (square > GELU_LIMIT ? GELU_LIMIT : square) * 0.0625 - 1.0, h = GELU[GELU_DEGREE];
            UNROLL for (int power = GELU_DEGREE - 1; power >= 0; power--)
                h = h * at + GELU[power];
            double inside = 0.5 + x * h, outside = x > 0 ? 1.0 : 0.0;
            values[i] = (float)(x * (square > GELU_LIMIT ? outside : inside));
        }
}

SIMD_LEVELS(bias_gelu, (f32_any * values, const f32_any *bias, size_t rows, size_t width), (values, bias, rows, width))

PyObject *kernel_bias_gelu(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer values, bias;
    if (!PyArg_ParseTuple(arguments, "w*y*:bias_gelu", &values, &bias))
        return NULL;
    PyObject *result = NULL;
    if (bias.len % 4 || !bias.len || values.len % bias.len) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no rows of float32 as long as %zd bytes", values.len, bias.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        bias_gelu[simd_level](values.buf, bias.buf, (size_t)(values.len / bias.len), (size_t)bias.len / 4);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&bias);
    return result;
}

/* -- Layer normalization of a sum ---------------------------------------------------------------------------------- */

INLINE void add_norm_body(f32_any *restrict values, const f32_any *restrict residual, const f32_any *restrict bias,
                          const f32_any *restrict weight, const f32_any *restrict shift, double eps, size_t rows,
                          size_t width)
{
    size_t whole = width / LANES * LANES;
    for (size_t row = 0; row < rows; row++, values += width, residual += width) {
        double lanes[LANES] = {0};
        for (size_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float sum = values[i + lane] + bias[i + lane] + residual[i + lane];
                values[i + lane] = sum;
                lanes[lane] += (double)sum;
            }
        for (size_t i = whole; i < width; i++) {
            float sum = values[i] + bias[i] + residual[i];
            values[i] = sum;
            lanes[i - whole] += (double)sum;
        }
        double mean = total(lanes) / (double)width, squares[LANES] = {0};
        for (size_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                double apart = (double)values[i + lane] - mean;
                squares[lane] += apart * apart;
            }
        for (size_t i = whole; i < width; i++) {
            double apart = (double)values[i] - mean;
            squares[i - whole] += apart * apart;
        }
        double scale = 1.0 / sqrt(total(squares) / (double)width + eps);
        for (size_t i = 0; i < width; i++)
            values[i] = (float)(((double)values[i] - mean) * scale) * weight[i] + shift[i];
    }
}

SIMD_LEVELS(add_norm,
            (f32_any * values, const f32_any *residual, const f32_any *bias, const f32_any *weight,
             const f32_any *shift, double eps, size_t rows, size_t width),
            (values, residual, bias, weight, shift, eps, rows, width))

PyObject *kernel_add_norm(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer values, residual, bias, weight, shift;
    double eps;
    if (!PyArg_ParseTuple(arguments, "w*y*y*y*y*d:add_norm", &values, &residual, &bias, &weight, &shift, &eps))
        return NULL;
    PyObject *result = NULL;
    if (weight.len % 4 || !weight.len || values.len % weight.len || residual.len != values.len ||
        bias.len != weight.len || shift.len != weight.len) {
        PyErr_Format(PyExc_ValueError,
                     "%zd and %zd bytes are no rows of float32 as long as bias, weight and shift: %zd, %zd, %zd",
                     values.len, residual.len, bias.len, weight.len, shift.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        add_norm[simd_level](values.buf, residual.buf, bias.buf, weight.buf, shift.buf, eps,
                             (size_t)(values.len / weight.len), (size_t)weight.len / 4);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&residual);
    PyBuffer_Release(&bias);
    PyBuffer_Release(&weight);
    PyBuffer_Release(&shift);
    return result;
}

/* -- Softmax ------------------------------------------------------------------------------------------------------- */

/* exp(x) for x <= 0: 2^k * exp(r), |r| <= ln(2) / 2, by the Taylor series to degree 9. Adding SHIFTER rounds to a whole
 * number and leaves it in the low bits, from where it goes into the exponent. Below FLOOR the result is that of FLOOR:
 * less than the smallest normal float32. A NaN stays one. */
#define SHIFTER 0x1.8p52
#define FLOOR -104.0
#define LOG2_E 1.4426950408889634
#define LN2 0.6931471805599453
static const double EXP[] = {1.0,     1.0,       1.0 / 2,    1.0 / 6,     1.0 / 24,
                             1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880};
#define EXP_DEGREE 9

INLINE double exp_of(double x)
{
    x = x < FLOOR ? FLOOR : x;
    double shifted = x * LOG2_E + SHIFTER, rest = x - (shifted - SHIFTER) * LN2, sum = EXP[EXP_DEGREE];
    UNROLL for (int power = EXP_DEGREE - 1; power >= 0; power--)
        sum = sum * rest + EXP[power];
    uint64_t bits, exponent;
    memcpy(&bits, &sum, 8);
    memcpy(&exponent, &shifted, 8);
    bits += exponent << 52;
    double scaled;
    memcpy(&scaled, &bits, 8);
    return x != x ? x : scaled;
}

INLINE void softmax_body(f32_any *values, size_t rows, size_t width)
{
    size_t whole = width / LANES * LANES;
    for (size_t row = 0; row < rows; row++, values += width) {
        float most[LANES], largest;
        for (int lane = 0; lane < LANES; lane++)
            most[lane] = values[0];
        for (size_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                most[lane] = values[i + lane] > most[lane] ? values[i + lane] : most[lane];
        largest = most[0];
        for (int lane = 1; lane < LANES; lane++)
            largest = most[lane] > largest ? most[lane] : largest;
        for (size_t i = whole; i < width; i++)
            largest = values[i] > largest ? values[i] : largest;
        double lanes[LANES] = {0};
        for (size_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float power = (float)exp_of((double)(values[i + lane] - largest));
                values[i + lane] = power;
                lanes[lane] += (double)power;
            }
        for (size_t i = whole; i < width; i++) {
            float power = (float)exp_of((double)(values[i] - largest));
            values[i] = power;
            lanes[i - whole] += (double)power;
        }
        float scale = (float)(1.0 / total(lanes));
        for (size_t i = 0; i < width; i++)
            values[i] *= scale;
    }
}

SIMD_LEVELS(softmax, (f32_any * values, size_t rows, size_t width), (values, rows, width))

PyObject *kernel_softmax(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer values;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(arguments, "w*O&:softmax", &values, to_size, &width))
        return NULL;
    PyObject *result = NULL;
    if (!width || values.len % 4 || values.len / 4 % width) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no rows of %zd float32", values.len, width);
    } else {
        Py_BEGIN_ALLOW_THREADS
        softmax[simd_level](values.buf, (size_t)(values.len / 4 / width), (size_t)width);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    return result;
}
