from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measure_support import DATA

from kimisvc.measure.comparison import (
    ASSUMED_SPREAD,
    Comparison,
    Difference,
    Spread,
    StartFigure,
    as_json,
    compare,
    place,
    say,
    start_figure,
)

STARTS = json.loads((DATA / "starts.json").read_text())


def figures(*speeds: float) -> list[StartFigure]:
    return [StartFigure(speed) for speed in speeds]


def captured(*names: str) -> list[StartFigure]:
    return [start_figure([run["decode_tok_s"] for run in STARTS[name]]) for name in names]


# ------------------------------------------------------------------ known answers


def test_the_story_with_one_start_each_is_inconclusive_and_says_what_would_settle_it() -> None:
    found = compare(figures(81.4), figures(81.9))
    assert found.verdict is Difference.INCONCLUSIVE
    assert found.ratio == pytest.approx(81.9 / 81.4)
    assert found.low < 1 < found.high
    assert found.further_starts == 3
    assert found.spread is Spread.ASSUMED
    assert say(found) == (
        "+0.6 % (-0.8 to +2.0 % if starts differ by 0.5 %): inconclusive: a single start does not "
        "show how much starts differ; 3 further starts of each would likely settle it, "
        "if they differ by 0.5 %, which is assumed"
    )


def test_two_profiles_on_real_gpus_differ_by_a_little_and_surely() -> None:
    found = compare(captured("nb1", "nb2"), captured("ll1", "ll2"))
    assert found.ratio == pytest.approx(1.018, abs=0.0005)
    # By hand: deviations 0.138 % both, se 0.1382 %, 2.00 degrees of freedom, t = 4.303.
    assert found.low == pytest.approx(1.0119, abs=0.0001)
    assert found.high == pytest.approx(1.0240, abs=0.0001)
    assert found.verdict is Difference.BETTER
    assert found.further_starts == 0
    assert say(found) == "+1.8 % (95 % interval +1.2 to +2.4 %): faster"


def test_one_start_each_of_the_same_is_not_enough() -> None:
    found = compare(captured("nb1"), captured("ll1"))
    assert found.verdict is Difference.INCONCLUSIVE
    assert found.further_starts == 2


def test_welch_on_textbook_figures() -> None:
    # exp of 1 2 3 and 2 4 6 8: means 2, 5; variances 1, 20/3; se^2 = 1/3 + 5/3 = 2;
    # freedom 4 / (1/18 + 25/27) = 4.07, held to the 4 of three starts each; t = 2.776.
    one = figures(*(math.exp(v) for v in (1, 2, 3)))
    two = figures(*(math.exp(v) for v in (2, 4, 6, 8)))
    found = compare(one, two)
    half = 2.776445 * math.sqrt(2)
    assert math.log(found.low) == pytest.approx(3 - half, abs=1e-5)
    assert math.log(found.high) == pytest.approx(3 + half, abs=1e-5)


# ------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.03, 1.05, Difference.BETTER),
        (1.01, 1.05, Difference.BETTER),
        (1.001, 1.019, Difference.BETTER_WITHIN_MARGIN),
        (0.99, 1.01, Difference.EQUIVALENT),
        (1.0, 1.01, Difference.EQUIVALENT),
        (0.982, 0.999, Difference.WORSE_WITHIN_MARGIN),
        (0.95, 0.99, Difference.WORSE),
        (0.95, 0.97, Difference.WORSE),
        (0.97, 1.01, Difference.INCONCLUSIVE),
        (0.99, 1.03, Difference.INCONCLUSIVE),
    ],
)
def test_where_an_interval_lies_is_what_it_shows(
    low: float, high: float, verdict: Difference
) -> None:
    assert place(low, high) is verdict


def test_the_margin_is_the_askers() -> None:
    one, two = figures(50.0, 50.1, 50.2), figures(51.0, 51.1, 51.2)
    assert compare(one, two, margin=0.02).verdict is Difference.BETTER
    found = compare(one, two, margin=0.05)
    assert found.verdict is Difference.BETTER_WITHIN_MARGIN
    assert say(found).endswith("faster, but by less than the margin of 5 %")


def test_a_measured_question_that_is_open_says_how_far_it_is() -> None:
    found = compare(figures(80.0, 82.0), figures(81.0, 83.5))
    assert found.verdict is Difference.INCONCLUSIVE
    assert found.spread is Spread.MEASURED
    assert "further starts of each would likely settle it, if starts go on to differ" in say(found)


def test_figures_that_agree_by_rounding_are_no_more_certain_than_their_runs() -> None:
    sharp = compare(figures(50.0, 50.0), figures(50.4, 50.4))
    assert sharp.verdict is Difference.BETTER_WITHIN_MARGIN
    noisy = [StartFigure(50.0, 0.5)] * 2, [StartFigure(50.4, 0.5)] * 2
    assert compare(*noisy).verdict is Difference.INCONCLUSIVE


def test_a_start_has_the_mean_of_its_runs_and_that_means_error() -> None:
    assert start_figure([49.0, 51.0]) == StartFigure(50.0, 1.0)
    assert start_figure([49.0]) == StartFigure(49.0)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one start of each"):
        compare([], figures(50.0))
    with pytest.raises(ValueError):  # noqa: PT011 - math's own words
        compare(figures(0.0), figures(50.0))


def test_programs_read_it_under_these_names() -> None:
    found = as_json(compare(figures(81.4), figures(81.9)))
    assert json.loads(json.dumps(found)) == found
    assert found["verdict"] == "inconclusive"
    assert set(found) >= {"ratio", "low", "high", "verdict", "further_starts"}
    assert found["starts"] == [1, 1]
    assert found["deviation"] == ASSUMED_SPREAD


# ------------------------------------------------------------------ what holds of any figures

speeds = st.floats(1, 1000).map(StartFigure)
sides = st.lists(speeds, min_size=1, max_size=6)
MIRRORED = {
    Difference.BETTER: Difference.WORSE,
    Difference.BETTER_WITHIN_MARGIN: Difference.WORSE_WITHIN_MARGIN,
}
MIRRORED |= {there: here for here, there in MIRRORED.items()}


@given(sides, sides)
def test_the_other_way_round_is_the_mirror_image(
    one: list[StartFigure], two: list[StartFigure]
) -> None:
    there, back = compare(one, two), compare(two, one)
    assert there.ratio * back.ratio == pytest.approx(1)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), abs=1e-9)
    assert back.further_starts == there.further_starts
    if edge(there):
        return
    assert back.verdict is MIRRORED.get(there.verdict, there.verdict)


def edge(found: Comparison) -> bool:
    """Whether a bound lies where rounding decides."""
    marks = (1.0, 1.02, 1 / 1.02)
    return any(math.isclose(b, m, rel_tol=1e-9) for b in (found.low, found.high) for m in marks)


@given(sides, sides)
def test_an_open_question_says_how_many_starts_and_a_settled_one_none(
    one: list[StartFigure], two: list[StartFigure]
) -> None:
    found = compare(one, two)
    assert (found.further_starts > 0) == (found.verdict is Difference.INCONCLUSIVE)
    assert found.low <= found.ratio * (1 + 1e-12)
    assert found.ratio <= found.high * (1 + 1e-12)
    if min(len(one), len(two)) < 2:
        assert found.verdict is Difference.INCONCLUSIVE


@given(sides, sides, st.floats(0.1, 10))
def test_the_unit_of_speed_does_not_matter(
    one: list[StartFigure], two: list[StartFigure], factor: float
) -> None:
    found = compare(one, two)
    scaled = compare(*([StartFigure(f.decode_tok_s * factor) for f in side] for side in (one, two)))
    assert scaled.ratio == pytest.approx(found.ratio)
    assert math.log(scaled.high) == pytest.approx(math.log(found.high), abs=1e-6)
