"""How many further starts would settle a comparison. Pure.

Planned on what is known: that the true ratio is the one seen, and that starts
differ as they did, or as is assumed. Both are guesses, so the answer is one too.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from kimisvc.measure.statistics import t_quantile

POWER = 0.8
"""How likely the further starts have to settle it."""
MOST = 1000
"""More starts than this nobody makes; the answer stays here."""
_WIDTHS = 100  # points of the average: good to a thousandth or two


def further_starts(
    effect: float, deviation: float, counts: tuple[int, int], margin: float, confidence: float
) -> int:
    """Given where a comparison stands, return how many more starts of each would settle it.

    `effect` (seen), `deviation` (between starts) and `margin` are in logarithms.
    The least number that shows either a difference or equivalence with a
    probability of 80 %; at least 1, at most MOST.
    """

    def power(more: int) -> float:
        sides = counts[0] + more, counts[1] + more
        return settles(effect, deviation, sides, margin, confidence)

    return 1 + bisect_left(range(1, MOST), POWER, key=power)


def settles(
    effect: float, deviation: float, counts: tuple[int, int], margin: float, confidence: float
) -> float:
    """Given a true effect and the numbers of starts, return how likely they settle the question.

    That is: that the interval will exclude 0 or lie within the margin. For a
    width of the interval this is a normal probability; it is averaged over the
    widths there may be, which are chi distributed. Alone, the first half is the
    power of the t test by the noncentral t, the second that of Schuirmann's two
    one-sided tests; a width of half the margin settles in any case.
    """
    import numpy as np
    from scipy.special import chdtri, ndtr

    freedom = 2 * (min(counts) - 1)  # as the comparison has it at most
    error = deviation * math.sqrt(1 / counts[0] + 1 / counts[1])
    if error == 0.0:
        return 1.0
    shares = (np.arange(_WIDTHS) + 0.5) / _WIDTHS
    seen = np.sqrt(chdtri(freedom, shares) / freedom)
    half = t_quantile(0.5 + confidence / 2, freedom) * error * seen
    differs = ndtr((effect - half) / error) + ndtr((-effect - half) / error)
    room = np.maximum(margin - half, 0.0)
    within = ndtr((room - effect) / error) - ndtr((-room - effect) / error)
    return float(np.where(2 * half <= margin, 1.0, differs + within).mean())
