from __future__ import annotations

import pytest

from kimisvc.measure.outcome import RESPONSES, Broken, Trouble, verdict_of
from kimisvc.records.profile import GateSettings, SpeedTarget
from kimisvc.records.proof import VerdictKind

GATE = GateSettings(SpeedTarget(40.0, 50.0))


def test_every_trouble_has_its_response() -> None:
    assert set(RESPONSES) == set(Trouble)
    assert all(response.tries >= 1 for response in RESPONSES.values())


def test_no_trouble_is_ever_accepted() -> None:
    kinds = {response.verdict for response in RESPONSES.values()}
    assert kinds == {VerdictKind.FAIL, VerdictKind.INCONCLUSIVE}


@pytest.mark.parametrize("trouble", [Trouble.SILENT, Trouble.STALLED, Trouble.STREAM_ERROR])
def test_a_server_that_does_not_serve_fails(trouble: Trouble) -> None:
    assert verdict_of(Broken(trouble, "why"), GATE).kind is VerdictKind.FAIL


@pytest.mark.parametrize("trouble", [Trouble.REFUSED, Trouble.BUSY, Trouble.DISTURBED])
def test_a_probe_that_could_not_look_is_inconclusive(trouble: Trouble) -> None:
    assert verdict_of(Broken(trouble, "why"), GATE).kind is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize(
    ("speed", "gate", "kind"),
    [
        (1.0, GATE, VerdictKind.FAIL),
        (39.9, GATE, VerdictKind.FAIL),
        (45.0, GATE, VerdictKind.INCONCLUSIVE),  # probe.timeout is too short for max_tokens
        (None, GATE, VerdictKind.INCONCLUSIVE),
        (1.0, GateSettings(), VerdictKind.INCONCLUSIVE),
    ],
)
def test_too_slow_to_finish_fails_only_under_the_floor(
    speed: float | None, gate: GateSettings, kind: VerdictKind
) -> None:
    assert verdict_of(Broken(Trouble.UNFINISHED, "why", speed), gate).kind is kind


def test_the_reason_names_the_trouble_and_the_detail() -> None:
    verdict = verdict_of(Broken(Trouble.SILENT, "nothing in 60 s"), GATE)
    assert verdict.reason == "accepted, no first token: nothing in 60 s"
    assert str(Broken(Trouble.NO_USAGE)) == "no usage in the stream"
