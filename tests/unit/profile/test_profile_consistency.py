"""Rules over several keys that the cases in bad/ do not tell apart: when each has nothing to say."""

from __future__ import annotations

import pytest

from kimisvc.profile.consistency import inconsistencies
from kimisvc.records.problems import Severity
from kimisvc.records.profile import CanarySettings, Profile, VllmSettings

ARGUMENTS = "goes on behind the program. Name only the program"
CANARY = CanarySettings(600.0)


def profile(canary: CanarySettings | None, **args: object) -> Profile:
    vllm = VllmSettings("/opt/vllm/bin/vllm", "/srv/models/m")
    return Profile("t", vllm, args=args, canary=canary)  # type: ignore[arg-type]  # as TOML has them


@pytest.mark.parametrize("written", ["disable-log-stats", "disable_log_stats"])
def test_a_canary_beside_an_engine_that_keeps_no_counters_is_warned_of(written: str) -> None:
    (finding,) = inconsistencies(profile(CANARY, **{written: True}), set())
    assert finding.severity is Severity.WARNING
    assert "no canary can see whether the server is idle" in finding.message


@pytest.mark.parametrize(
    "sound",
    [
        profile(CANARY),
        profile(CANARY, **{"disable-log-stats": False}),
        profile(None, **{"disable-log-stats": True}),
    ],
    ids=["counters", "counters asked for", "no canary"],
)
def test_either_alone_is_no_matter(sound: Profile) -> None:
    assert list(inconsistencies(sound, set())) == []


@pytest.mark.parametrize("spoiled", [("args", "disable-log-stats"), ("canary", "every")])
def test_a_spoiled_key_is_not_judged_again(spoiled: tuple[str, str]) -> None:
    found = inconsistencies(profile(CANARY, **{"disable-log-stats": True}), {spoiled})
    assert list(found) == []


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        ("/opt/vllm/bin/vllm serve", 1),
        ("/opt/vllm/bin/vllm --port 8001", 1),
        ("/opt/vllm/bin/vllm --model /models/m", 1),
        ("/opt/vllm/bin/vllm -tp 8", 1),
        ("/opt/vllm/bin/vllm serve /srv/models/m", 1),
        ("/opt/my vllm/bin/vllm", 0),
        ("/opt/vllm -- new/bin/vllm", 0),
        ("/opt/we serve/bin/vllm", 0),
        ("/opt/vllm/bin/vllm-serve", 0),
        ("/opt/vllm/bin/serve", 0),
        ("/opt/vllm/bin/vllm 0.30", 0),
    ],
)
def test_a_command_line_is_no_program_and_a_blank_in_a_name_is_no_argument(
    program: str, refused: int
) -> None:
    found = inconsistencies(Profile("t", VllmSettings(program, "/srv/models/m")), set())
    assert [ARGUMENTS in one.message for one in found] == [True] * refused
