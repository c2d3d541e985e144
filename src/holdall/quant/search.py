"""How mode ``best`` finds its scales: the definition that the kernel repeats bit for bit.

Everything works on magnitudes, because codes are symmetric. A *trial* codes a block by some step and adds up, over
its 32 values in order,

    num = sum(w a q)    den = sum(w q q)    error = sum(w (a - step q)^2)

(w is the importance of the column, left out when there is none). For fixed codes ``num / den`` is the step of least
error, and ``num^2 / den`` is what it takes off the error.

q*: try the steps ``amax / (qmax + offset)``, rounded to half precision, and last the refit of the best of them. The
trial of least error wins.

k*: find the step ``t`` of every block: the refit of the offset whose codes take off most. For each super-scale
``max(t) * 32 / m`` the sub-scales nearest to the steps cost about ``sum(den (t - step)^2)``; start from the cheapest
of each quarter of them. Then twice: let every block move its sub-scale down or up by one, and refit the super-scale to
the codes of its blocks. The trial of least error wins.

The winner replaces the scales of mode ``ieee`` only where its error is less by more than float32 sums can be wrong.
"""

from __future__ import annotations

import numpy as np

from holdall.quant.arithmetic import F32, Floats, coded, half_to_nearest, rounded

__all__ = ["LARGEST", "OFFSETS", "block_scales", "super_scales"]

# By qmax: the first offset, the distance to the next, how many. All are exact in float32. Above 0 the largest values of
# a block are held at qmax; below 0 the codes end before it. Many codes (127, 31) make the error a matter of luck,
# and more trials find more of it.
OFFSETS: dict[int, tuple[float, float, int]] = {
    127: (-8.0, 0.5, 20),
    31: (-3.0, 0.25, 22),
    7: (-1.25, 0.125, 28),
    3: (-0.5, 0.25, 11),
    1: (-0.25, 0.25, 14),
}

# What the largest sub-scale of a super-block would be before it is rounded: 63.25 and down in quarters, in four
# stretches with a start each.
LARGEST = [[63.25 - 0.25 * number for number in range(start, start + 32)] for start in range(0, 128, 32)]

ROUNDS = 2

_LESS = F32(1 - 2**-18)  # sums of 256 terms are wrong by less than this


def _total(terms: Floats) -> Floats:
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total = total + term
    return total


def _sums(a: Floats, w: Floats | None, q: Floats) -> tuple[Floats, Floats]:
    wq = q if w is None else w * q
    return _total(a * wq), _total(q * wq)


def _trial(a: Floats, w: Floats | None, step: Floats, qmax: F32) -> tuple[Floats, Floats, Floats]:
    """Error, num and den of one step a block."""
    q = coded(a, _inverse(F32(1), step), qmax)
    miss = a - step * q
    error = _total(miss * miss if w is None else miss * miss * w)
    return error, *_sums(a, w, q)


def _inverse(numerator: F32, step: Floats) -> Floats:
    return np.where(step > 0, numerator / step, F32(0))


def _ratio(num: Floats, den: Floats) -> Floats:
    return np.where(den > 0, num / den, F32(0))


def _half(x: Floats) -> Floats:
    return half_to_nearest(x).astype(np.float32)


def _tops(qmax: F32) -> list[F32]:
    """What the largest value of a block would be coded as, were there no limit: qmax plus each offset."""
    first, distance, count = OFFSETS[int(qmax)]
    return [qmax + F32(first + distance * number) for number in range(count)]


# q*


def block_scales(a: Floats, w: Floats | None, qmax: F32, plain: Floats) -> Floats:
    """The scale of each block, a half-precision number; ``plain`` are those of mode ``ieee``."""
    amax = a.max(axis=0)
    error, num, den = _trial(a, w, plain, qmax)
    best, least = plain, error * _LESS
    for top in [*_tops(qmax), None]:
        step = _half(amax / top if top is not None else _ratio(num, den))
        error, n, d = _trial(a, w, step, qmax)
        better = error < least
        best, least = np.where(better, step, best), np.where(better, error, least)
        num, den = np.where(better, n, num), np.where(better, d, den)
    return best


# k*


def super_scales(a: Floats, w: Floats | None, qmax: F32, plain: Floats, plain_u: Floats) -> tuple[Floats, Floats]:
    """The super-scales, half-precision numbers, and the sub-scale of each block."""
    error, num, den = _trial(a, w, _wide(plain) * (plain_u / F32(32)), qmax)
    best, best_u, least = plain, plain_u, _over_blocks(error) * _LESS
    t, weight = _steps(a, w, qmax)
    for number in range(len(LARGEST) * ROUNDS):
        if number % ROUNDS == 0:
            scale = _super_scale(t, weight, LARGEST[number // ROUNDS])
            u = _nearest(t, scale)
        error, num, den = _trial(a, w, _wide(scale) * (u / F32(32)), qmax)
        start = u
        for move in (F32(-1), F32(1)):
            v = np.clip(start + move, F32(0), F32(63))
            e, n, d = _trial(a, w, _wide(scale) * (v / F32(32)), qmax)
            better = e < error
            error, u = np.where(better, e, error), np.where(better, v, u)
            num, den = np.where(better, n, num), np.where(better, d, den)
        total = _over_blocks(error)
        better = total < least
        best, least = np.where(better, scale, best), np.where(better, total, least)
        best_u = np.where(np.repeat(better, 8), u, best_u)
        x = u / F32(32)
        scale = _half(_ratio(_over_blocks(x * num), _over_blocks(x * x * den)))
    return best, best_u


def _steps(a: Floats, w: Floats | None, qmax: F32) -> tuple[Floats, Floats]:
    """The refitted step of the best offset of each block, and the den of its codes."""
    amax = a.max(axis=0)
    gain, step, weight = (np.zeros_like(amax) for _ in range(3))
    for top in _tops(qmax):
        num, den = _sums(a, w, coded(a, _inverse(top, amax), qmax))
        ratio = _ratio(num, den)
        better = num * ratio > gain
        gain, step, weight = (np.where(better, *pair) for pair in ((num * ratio, gain), (ratio, step), (den, weight)))
    return step, weight


def _super_scale(t: Floats, weight: Floats, largest: list[float]) -> Floats:
    """The super-scale whose multiples come nearest to the steps of its blocks."""
    top = t.reshape(-1, 8).max(axis=1)
    cost = np.full(top.shape, np.inf, np.float32)
    best: Floats = np.zeros_like(top)
    for most in largest:
        scale = _half(top * (F32(32) / F32(most)))
        miss = t - _wide(scale) * (_nearest(t, scale) / F32(32))
        total = _over_blocks(weight * (miss * miss))
        better = total < cost
        best, cost = np.where(better, scale, best), np.where(better, total, cost)
    return best


def _nearest(t: Floats, scale: Floats) -> Floats:
    """The sub-scale that comes nearest to each step; NaN counts as the largest."""
    x = t * _wide(_inverse(F32(32), scale))
    return rounded(np.where(x < F32(63), x, F32(63)))


def _over_blocks(x: Floats) -> Floats:
    return _total(x.reshape(-1, 8).T)


def _wide(x: Floats) -> Floats:
    return np.repeat(x, 8)
