"""How mode ``best`` finds its scales: the definition that the C kernel follows bit for bit.

Codes are symmetric, so only magnitudes matter. A *trial* encodes a block by some step and adds up, over its 32 values
in order,

    num = sum(w a q)    den = sum(w q q)    error = sum(w (a - step q)^2)

(w is the importance of the column, left out when there is none). For fixed codes ``num / den`` is the step of least
error, and ``num^2 / den`` is by how much it reduces the error.

q*: try the steps ``amax / (qmax + offset)``, rounded to half precision, and last the refit of the best of them. The
trial of least error wins.

k*: find the step ``t`` of every block: the refit of the offset whose codes reduce the error most. For each super-scale
``max(t) * 32 / m`` the sub-scales nearest to the steps cost about ``sum(den (t - step)^2)``; start from the cheapest
of each quarter of them. Then twice: let every block move its sub-scale down or up by one, and refit the super-scale to
the codes of its blocks. The trial of least error wins.

The winner replaces the scales of mode ``ieee`` only where its error is less by more than float32 sums can be wrong.
Where mode ``ieee`` has a normal half-precision number (2^-14 or more), every trial has one too: readers that take
subnormal scales for zero would lose the block.
"""

from __future__ import annotations

import numpy as np

from holdall.quant.arithmetic import F32, Floats, code_by_inverse, round_half_away, round_to_half

__all__ = ["LARGEST", "OFFSETS", "find_block_scales", "find_super_scales"]

# By qmax: the first offset, the distance to the next, how many. All are exact in float32. With an offset above 0 the
# largest values of a block are held at qmax; below 0 the largest codes stay unused. With many codes (127, 31) the error
# varies at random between steps, so that more trials find a smaller one.
OFFSETS: dict[int, tuple[float, float, int]] = {
    127: (-8.0, 0.5, 20),
    31: (-3.0, 0.25, 22),
    7: (-1.25, 0.125, 28),
    3: (-0.5, 0.25, 11),
    1: (-0.25, 0.25, 14),
}

# The largest sub-scale of a super-block before rounding: from 63.25 down in steps of 1/4, in four groups, each of which
# gives one start.
LARGEST = [[63.25 - 0.25 * number for number in range(start, start + 32)] for start in range(0, 128, 32)]

ROUNDS = 2

_LEAST_NORMAL = F32(2**-14)  # of half precision

_LESS = F32(1 - 2**-18)  # the relative error of a float32 sum of 256 terms is smaller


def _sum_in_order(terms: Floats) -> Floats:
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total = total + term
    return total


def _sum_products(a: Floats, w: Floats | None, q: Floats) -> tuple[Floats, Floats]:
    wq = q if w is None else w * q
    return _sum_in_order(a * wq), _sum_in_order(q * wq)


def _try_step(a: Floats, w: Floats | None, step: Floats, qmax: F32) -> tuple[Floats, Floats, Floats]:
    """Error, num and den of each block, encoded by its step."""
    q = code_by_inverse(a, _invert(F32(1), step), qmax)
    miss = a - step * q
    error = _sum_in_order(miss * miss if w is None else miss * miss * w)
    return error, *_sum_products(a, w, q)


def _invert(numerator: F32, step: Floats) -> Floats:
    return np.where(step > 0, numerator / step, F32(0))


def _divide(num: Floats, den: Floats) -> Floats:
    return np.where(den > 0, num / den, F32(0))


def _find_floor(plain: Floats) -> Floats:
    """Find the least scale that may replace each of ``plain``: the least normal number, or 0 for a subnormal one."""
    return np.where(plain >= _LEAST_NORMAL, _LEAST_NORMAL, F32(0))


def _round(x: Floats, floor: Floats) -> Floats:
    return np.maximum(round_to_half(x).astype(np.float32), floor)


def _list_tops(qmax: F32) -> list[F32]:
    """List the code that the largest value of a block would get without a limit: qmax plus each offset."""
    first, distance, count = OFFSETS[int(qmax)]
    return [qmax + F32(first + distance * number) for number in range(count)]


def find_block_scales(a: Floats, w: Floats | None, qmax: F32, plain: Floats) -> Floats:
    """Find the scale of each block, a half-precision number; ``plain`` are those of mode ``ieee``."""
    amax, floor = a.max(axis=0), _find_floor(plain)
    error, num, den = _try_step(a, w, plain, qmax)
    best, least = plain, error * _LESS
    for top in [*_list_tops(qmax), None]:
        step = _round(amax / top if top is not None else _divide(num, den), floor)
        error, n, d = _try_step(a, w, step, qmax)
        better = error < least
        best, least = np.where(better, step, best), np.where(better, error, least)
        num, den = np.where(better, n, num), np.where(better, d, den)
    return best


def find_super_scales(a: Floats, w: Floats | None, qmax: F32, plain: Floats, plain_u: Floats) -> tuple[Floats, Floats]:
    """Find the super-scales, half-precision numbers, and the sub-scale of each block."""
    error, num, den = _try_step(a, w, _repeat_for_blocks(plain) * (plain_u / F32(32)), qmax)
    best, best_u, least = plain, plain_u, _sum_over_blocks(error) * _LESS
    t, weight = _find_steps(a, w, qmax)
    floor = _find_floor(plain)
    for number in range(len(LARGEST) * ROUNDS):
        if number % ROUNDS == 0:
            scale = _choose_super_scale(t, weight, LARGEST[number // ROUNDS], floor)
            u = _find_sub_scales(t, scale)
        error, num, den = _try_step(a, w, _repeat_for_blocks(scale) * (u / F32(32)), qmax)
        start = u
        for move in (F32(-1), F32(1)):
            v = np.clip(start + move, F32(0), F32(63))
            e, n, d = _try_step(a, w, _repeat_for_blocks(scale) * (v / F32(32)), qmax)
            better = e < error
            error, u = np.where(better, e, error), np.where(better, v, u)
            num, den = np.where(better, n, num), np.where(better, d, den)
        total = _sum_over_blocks(error)
        better = total < least
        best, least = np.where(better, scale, best), np.where(better, total, least)
        best_u = np.where(np.repeat(better, 8), u, best_u)
        x = u / F32(32)
        scale = _round(_divide(_sum_over_blocks(x * num), _sum_over_blocks(x * x * den)), floor)
    return best, best_u


def _find_steps(a: Floats, w: Floats | None, qmax: F32) -> tuple[Floats, Floats]:
    """Find the refitted step of the best offset of each block, and the den of its codes."""
    amax = a.max(axis=0)
    gain, step, weight = (np.zeros_like(amax) for _ in range(3))
    for top in _list_tops(qmax):
        num, den = _sum_products(a, w, code_by_inverse(a, _invert(top, amax), qmax))
        ratio = _divide(num, den)
        better = num * ratio > gain
        gain, step, weight = (np.where(better, *pair) for pair in ((num * ratio, gain), (ratio, step), (den, weight)))
    return step, weight


def _choose_super_scale(t: Floats, weight: Floats, largest: list[float], floor: Floats) -> Floats:
    """Choose the super-scale, not below ``floor``, whose multiples are nearest to the steps of its blocks."""
    top = t.reshape(-1, 8).max(axis=1)
    cost = np.full(top.shape, np.inf, np.float32)
    best: Floats = np.zeros_like(top)
    for most in largest:
        scale = _round(top * (F32(32) / F32(most)), floor)
        miss = t - _repeat_for_blocks(scale) * (_find_sub_scales(t, scale) / F32(32))
        total = _sum_over_blocks(weight * (miss * miss))
        better = total < cost
        best, cost = np.where(better, scale, best), np.where(better, total, cost)
    return best


def _find_sub_scales(t: Floats, scale: Floats) -> Floats:
    """Find the sub-scale that is nearest to each step; NaN counts as the largest."""
    x = t * _repeat_for_blocks(_invert(F32(32), scale))
    return round_half_away(np.where(x < F32(63), x, F32(63)))


def _sum_over_blocks(x: Floats) -> Floats:
    return _sum_in_order(x.reshape(-1, 8).T)


def _repeat_for_blocks(x: Floats) -> Floats:
    return np.repeat(x, 8)
