/* Small floats to and from float32, one at a time, without branches. `rest` is a code without its sign. */
#ifndef HOLDALL_FLOATS_H
#define HOLDALL_FLOATS_H

#include "memory.h"

/* A float of 1 sign bit, some exponent bits and `mantissa` bits. */
struct layout {
    int mantissa, bias;
    int32_t top;     /* the first code that is not finite: what overflow becomes, infinity or (e4m3) NaN */
    int32_t nan;     /* the quiet NaN */
    int32_t payload; /* the bits of a NaN that narrowing keeps */
};

static const struct layout F16 = {10, 15, 0x7c00, 0x7e00, 0x1ff};

enum { F32_MANTISSA = 23, F32_BIAS = 127, F32_INFINITY = 0x7f800000, F32_REST = 0x7fffffff };

INLINE float as_float(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE int32_t as_bits(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Sums, differences and shifts as unsigned numbers, where overflow is defined. A quantizer with negative weights
 * passes negative scales, so overflow does happen. */
INLINE int32_t plus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
INLINE int32_t minus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
INLINE int32_t left(int32_t a, int shift) { return (int32_t)((uint32_t)a << shift); }

/* The bits of the float32 2**exponent. */
INLINE int32_t power(int exponent) { return (F32_BIAS + exponent) << F32_MANTISSA; }

INLINE int32_t widen_rest(int32_t rest, struct layout small)
{
    const int shift = F32_MANTISSA - small.mantissa;
    const int32_t normal = plus(left(rest, shift), (F32_BIAS - small.bias) << F32_MANTISSA);
    /* A subnormal is a whole number of smallest steps. Its float32 is a normal number: exact, also when the caller's
     * thread flushes subnormals to zero. */
    const int32_t subnormal = as_bits((float)rest * as_float(power(1 - small.bias - small.mantissa)));
    const int32_t special = left(rest, shift) | F32_INFINITY;
    const int32_t finite = rest < 1 << small.mantissa ? subnormal : normal;
    return rest >= small.top ? special : finite;
}

INLINE int32_t narrow_rest(int32_t rest, struct layout small)
{
    const int shift = F32_MANTISSA - small.mantissa;
    /* Half of the last kept bit, or one less when that bit is even: the sum carries exactly when rounding goes up. */
    const int32_t half = (1 << (shift - 1)) - 1 + (rest >> shift & 1);
    const int32_t rebased = plus(minus(rest, (F32_BIAS - small.bias) << F32_MANTISSA), half) >> shift;
    const int32_t normal = rebased < small.top ? rebased : small.top;
    /* Next to this power of two, float32 numbers are one subnormal step apart: the addition itself rounds. */
    const int32_t anchor = power(1 - small.bias - small.mantissa + F32_MANTISSA);
    const int32_t subnormal = minus(as_bits(as_float(rest) + as_float(anchor)), anchor);
    const int32_t number = rest < power(1 - small.bias) ? subnormal : normal;
    return rest > F32_INFINITY ? small.nan | (rest >> shift & small.payload) : number;
}

#endif
