/* Sixteen blocks side by side: value i of every block is one row of a table, so that sixteen blocks are computed in the
 * lanes of one vector. The innermost loop is always the one over lanes, on local arrays: the compiler
 * makes it a few vector instructions and keeps sums in registers, and each lane adds up its block in the order of its
 * values. */
#ifndef HOLDALL_LANES_H
#define HOLDALL_LANES_H

#include "quant.h"

enum { LANES = 16, SUPERS = LANES / SUPER, LARGEST_SUB = 63 };

typedef float table[BLOCK][LANES] ALIGNED;
typedef float lanes[LANES] ALIGNED;

/* The float32 before 1/2: added before truncation it rounds half away from zero exactly. */
#define ALMOST_HALF 0x1.fffffep-2f

INLINE float smaller(float x, float limit) { return x < limit ? x : limit; } /* NaN counts as the limit */
INLINE float larger(float x, float limit) { return x > limit ? x : limit; }

INLINE float round_away(float x) { return (float)(int32_t)(x + ALMOST_HALF); }

/* The code of a magnitude. */
INLINE float make_code(float a, float inverse, float qmax) { return round_away(smaller(a * inverse, qmax)); }

INLINE float inverse_of(float numerator, float step) { return step > 0 ? numerator / step : 0; }

/* Half precision codes of numbers that are not negative. */
INLINE int32_t half_to_nearest(float x) { return narrow_rest(as_bits(smaller(x, 65504)), F16); }

INLINE int32_t half_truncated(float x)
{
    const int32_t bits = as_bits(x);
    const int32_t code = bits < 0x47800000 ? (bits - 0x38000000) >> 13 : 0x7c00;
    return bits < 0x38800000 ? 0 : code;
}

INLINE float as_half(float x) { return as_float(widen_rest(half_to_nearest(x), F16)); }

/* The largest magnitude of each block. As integers magnitudes keep their order, and a NaN is above them all. */
INLINE void largest_of(const table a, lanes out)
{
    int32_t most[LANES] = {0};
    for (int i = 0; i < BLOCK; i++) {
        KEEP_LOOP for (int l = 0; l < LANES; l++)
        {
            const int32_t bits = as_bits(a[i][l]);
            most[l] = bits > most[l] ? bits : most[l];
        }
        KEEP_NESTED;
    }
    memcpy(out, most, sizeof most);
}

/* The largest value and the sum of each super-block, in all of its lanes. */
INLINE void super_largest(const lanes x, lanes out)
{
    for (int s = 0; s < SUPERS; s++) {
        float most = x[s * SUPER];
        for (int b = 1; b < SUPER; b++)
            most = larger(x[s * SUPER + b], most);
        for (int b = 0; b < SUPER; b++)
            out[s * SUPER + b] = most;
    }
}

INLINE void super_sum(const lanes x, lanes out)
{
    for (int s = 0; s < SUPERS; s++) {
        float sum = 0;
        for (int b = 0; b < SUPER; b++)
            sum += x[s * SUPER + b];
        for (int b = 0; b < SUPER; b++)
            out[s * SUPER + b] = sum;
    }
}

/* search.c. `best` (and `best_u`) hold the scales of mode IEEE and are replaced where others are better; `w` are the
 * weights of the values, or NULL. */
void search_blocks(const table a, const table w, int qmax, lanes best);
void search_supers(const table a, const table w, int qmax, lanes best, lanes best_u);

#endif
