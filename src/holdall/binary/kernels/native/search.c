/* Mode BEST: the search that quant/search.py defines, on sixteen blocks. */
#include "lanes.h"
#include "simd.h"

enum { STARTS = 4, CANDIDATES = 32, ROUNDS = 2 };

#define LESS (1 - 0x1p-18f)
#define LEAST_NORMAL_HALF 0x1p-14f

/* search.py's OFFSETS: qmax plus the first one, the distance to the next, how many. */
struct tops {
    float first, distance;
    int count;
};

INLINE struct tops tops_of(int qmax)
{
    switch (qmax) {
    case 127: return (struct tops){127 - 8.0f, 0.5f, 20};
    case 31: return (struct tops){31 - 3.0f, 0.25f, 22};
    case 7: return (struct tops){7 - 1.25f, 0.125f, 28};
    case 3: return (struct tops){3 - 0.5f, 0.25f, 11};
    default: return (struct tops){1 - 0.25f, 0.25f, 14};
    }
}

/* The least scale that may replace one of mode IEEE: readers that take subnormal numbers for zero lose no block. */
INLINE float floor_of(float plain) { return plain >= LEAST_NORMAL_HALF ? LEAST_NORMAL_HALF : 0; }

struct trial {
    lanes error, num, den;
};

/* `w` is NULL or not when the body is compiled: there is one copy for each. */
INLINE void try_steps(const table a, const table w, const lanes step, float qmax, struct trial *out)
{
    lanes inverse, error = {0}, num = {0}, den = {0};
    for (int l = 0; l < LANES; l++)
        inverse[l] = inverse_of(1, step[l]);
    for (int i = 0; i < BLOCK; i++) {
        KEEP_LOOP for (int l = 0; l < LANES; l++) {
            const float q = make_code(a[i][l], inverse[l], qmax), miss = a[i][l] - step[l] * q;
            const float wq = w ? w[i][l] * q : q;
            error[l] += w ? miss * miss * w[i][l] : miss * miss;
            num[l] += a[i][l] * wq;
            den[l] += q * wq;
        }
        KEEP_NESTED;
    }
    memcpy(out->error, error, sizeof error);
    memcpy(out->num, num, sizeof num);
    memcpy(out->den, den, sizeof den);
}

INLINE void blocks(const table a, const table w, int qmax, lanes best)
{
    const struct tops tops = tops_of(qmax);
    lanes amax, step, least, floor, num = {0}, den = {0};
    struct trial now;
    largest_of(a, amax);
    for (int l = 0; l < LANES; l++)
        floor[l] = floor_of(best[l]);
    /* The scale of mode IEEE first, the refit last. */
    for (int number = -1; number <= tops.count; number++) {
        const float top = tops.first + tops.distance * (float)number;
        for (int l = 0; l < LANES; l++)
            step[l] = larger(as_half(number < tops.count ? amax[l] / top : inverse_of(num[l], den[l])), floor[l]);
        if (number < 0)
            memcpy(step, best, sizeof step);
        try_steps(a, w, step, (float)qmax, &now);
        for (int l = 0; l < LANES; l++) {
            const bool better = number < 0 || now.error[l] < least[l];
            best[l] = better ? step[l] : best[l];
            least[l] = better ? now.error[l] : least[l];
            num[l] = better ? now.num[l] : num[l];
            den[l] = better ? now.den[l] : den[l];
        }
        if (number < 0)
            for (int l = 0; l < LANES; l++)
                least[l] *= LESS;
    }
}

/* The refitted step of the best offset of each block, and the den of its codes. */
INLINE void find_steps(const table a, const table w, int qmax, lanes step, lanes weight)
{
    const struct tops tops = tops_of(qmax);
    lanes amax, gain;
    largest_of(a, amax);
    for (int l = 0; l < LANES; l++)
        gain[l] = step[l] = weight[l] = 0;
    for (int number = 0; number < tops.count; number++) {
        const float top = tops.first + tops.distance * (float)number;
        lanes inverse, num = {0}, den = {0};
        for (int l = 0; l < LANES; l++)
            inverse[l] = inverse_of(top, amax[l]);
        for (int i = 0; i < BLOCK; i++) {
            KEEP_LOOP for (int l = 0; l < LANES; l++) {
                const float q = make_code(a[i][l], inverse[l], (float)qmax), wq = w ? w[i][l] * q : q;
                num[l] += a[i][l] * wq;
                den[l] += q * wq;
            }
            KEEP_NESTED;
        }
        for (int l = 0; l < LANES; l++) {
            const float ratio = inverse_of(num[l], den[l]);
            const bool better = num[l] * ratio > gain[l];
            gain[l] = better ? num[l] * ratio : gain[l];
            step[l] = better ? ratio : step[l];
            weight[l] = better ? den[l] : weight[l];
        }
    }
}

/* The sub-scale that comes nearest to a step; `inverse` is 32 by the super-scale, `most` the largest sub-scale. */
INLINE float nearest(float t, float inverse, float most) { return round_away(smaller(t * inverse, most)); }

/* The super-scale, out of one stretch of candidates, whose multiples come nearest to the steps of its blocks. Here the
 * lanes are the candidates. */
INLINE void find_super(const lanes t, const lanes weight, int start, const lanes floor, lanes best)
{
    const float most = unknown(LARGEST_SUB);
    lanes top;
    super_largest(t, top);
    for (int s = 0; s < LANES; s += SUPER) {
        float scale[CANDIDATES] ALIGNED, inverse[CANDIDATES] ALIGNED;
        float cost[CANDIDATES] ALIGNED = {0};
        for (int c = 0; c < CANDIDATES; c++)
            scale[c] = larger(as_half(top[s] * (32.0f / (63.25f - 0.25f * (float)(start * CANDIDATES + c)))), floor[s]);
        for (int c = 0; c < CANDIDATES; c++)
            inverse[c] = inverse_of(32, scale[c]);
        for (int b = s; b < s + SUPER; b++) {
            const float step = t[b], heavy = weight[b];
            KEEP_LOOP for (int c = 0; c < CANDIDATES; c++) {
                const float miss = step - scale[c] * (nearest(step, inverse[c], most) / 32);
                cost[c] += heavy * (miss * miss);
            }
            KEEP_NESTED;
        }
        /* The first of the least. Costs are not negative, so they have the order of their bits. */
        int32_t least = F32_INFINITY;
        for (int c = 0; c < CANDIDATES; c++)
            least = as_bits(cost[c]) < least ? as_bits(cost[c]) : least;
        int first = 0;
        while (first < CANDIDATES && as_bits(cost[first]) != least)
            first++;
        const float chosen = least < F32_INFINITY ? scale[first] : 0;
        for (int b = s; b < s + SUPER; b++)
            best[b] = chosen;
    }
}

INLINE void supers(const table a, const table w, int qmax, lanes best, lanes best_u)
{
    lanes t, weight, scale, u, moved, step, least, total, part, floor;
    struct trial now, chosen;
    for (int l = 0; l < LANES; l++)
        step[l] = best[l] * (best_u[l] / 32), floor[l] = floor_of(best[l]);
    try_steps(a, w, step, (float)qmax, &now);
    super_sum(now.error, least);
    for (int l = 0; l < LANES; l++)
        least[l] *= LESS;
    find_steps(a, w, qmax, t, weight);
    for (int round = 0; round < STARTS * ROUNDS; round++) {
        if (round % ROUNDS == 0) {
            find_super(t, weight, round / ROUNDS, floor, scale);
            for (int l = 0; l < LANES; l++)
                u[l] = nearest(t[l], inverse_of(32, scale[l]), LARGEST_SUB);
        }
        for (int way = 0; way < 3; way++) { /* stay, down, up */
            const float move = way == 0 ? 0 : way == 1 ? -1 : 1;
            lanes v;
            for (int l = 0; l < LANES; l++) {
                v[l] = larger(smaller(u[l] + move, LARGEST_SUB), 0);
                step[l] = scale[l] * (v[l] / 32);
            }
            try_steps(a, w, step, (float)qmax, &now);
            for (int l = 0; l < LANES; l++) {
                const bool better = way == 0 || now.error[l] < chosen.error[l];
                moved[l] = better ? v[l] : moved[l];
                chosen.error[l] = better ? now.error[l] : chosen.error[l];
                chosen.num[l] = better ? now.num[l] : chosen.num[l];
                chosen.den[l] = better ? now.den[l] : chosen.den[l];
            }
        }
        super_sum(chosen.error, total);
        for (int l = 0; l < LANES; l++) {
            const bool better = total[l] < least[l];
            best[l] = better ? scale[l] : best[l];
            best_u[l] = better ? moved[l] : best_u[l];
            least[l] = better ? total[l] : least[l];
            u[l] = moved[l];
        }
        for (int l = 0; l < LANES; l++)
            part[l] = u[l] / 32, step[l] = part[l] * chosen.num[l], moved[l] = part[l] * part[l] * chosen.den[l];
        super_sum(step, total);
        super_sum(moved, part);
        for (int l = 0; l < LANES; l++)
            scale[l] = larger(as_half(inverse_of(total[l], part[l])), floor[l]);
    }
}

INLINE void blocks_plain_body(const table a, int qmax, lanes best) { blocks(a, NULL, qmax, best); }
INLINE void blocks_weighted_body(const table a, const table w, int qmax, lanes best) { blocks(a, w, qmax, best); }
INLINE void supers_plain_body(const table a, int qmax, lanes best, lanes best_u)
{
    supers(a, NULL, qmax, best, best_u);
}
INLINE void supers_weighted_body(const table a, const table w, int qmax, lanes best, lanes best_u)
{
    supers(a, w, qmax, best, best_u);
}

SIMD_LEVELS(blocks_plain, (const table a, int qmax, lanes best), (a, qmax, best))
SIMD_LEVELS(blocks_weighted, (const table a, const table w, int qmax, lanes best), (a, w, qmax, best))
SIMD_LEVELS(supers_plain, (const table a, int qmax, lanes best, lanes best_u), (a, qmax, best, best_u))
SIMD_LEVELS(supers_weighted, (const table a, const table w, int qmax, lanes best, lanes best_u),
            (a, w, qmax, best, best_u))

void search_blocks(const table a, const table w, int qmax, lanes best)
{
    if (w)
        blocks_weighted[simd_level](a, w, qmax, best);
    else
        blocks_plain[simd_level](a, qmax, best);
}

void search_supers(const table a, const table w, int qmax, lanes best, lanes best_u)
{
    if (w)
        supers_weighted[simd_level](a, w, qmax, best, best_u);
    else
        supers_plain[simd_level](a, qmax, best, best_u);
}
