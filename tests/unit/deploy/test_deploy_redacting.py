"""vLLM's own words, as history and every user of the box may have them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import SERVICE, Systemd, two_generations

from kimisvc.deploy import redacting
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.redacting import last_words
from kimisvc.host.systemd_words import unit_state
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.units import UnitState

KEY = "S3cr3t-quux-ABCDEFGH12345678"
BOOTED = 1000.0
"""How much more the clock of the wall shows here than the one since the boot (s)."""


class Journal:
    """A journal in which vLLM has printed its key."""

    def tail(self, *_: object) -> tuple[str, ...]:
        return (f"RuntimeError: login with {KEY} refused",)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.env"
    path.write_text(f"VLLM_API_KEY={KEY}\n")
    return path


@pytest.fixture
def box(tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    made = two_generations(tmp_path, Systemd(), monkeypatch)
    profile = Profile(
        "keyed", VllmSettings("/x", "/m"), service=ServiceSettings(secrets_file=str(secrets))
    )
    made.generations.make_current(
        made.generations.add(Draft("keyed", "", to_toml(profile), (), {}), 1.0)
    )
    journal: Any = Journal()
    now = secrets.stat().st_ctime + 100
    return replace(made, journal=journal, now=lambda: now, clock=lambda: now - BOOTED)


def given_up(main: float, left: float | None = None) -> UnitState:
    """A service that gave up: when its last process was started, and when it left "failed" to wait."""
    return unit_state(SERVICE, _stamps("InactiveExit", main if left is None else left),
                      _stamps("ExecMainStart", main))  # fmt: skip


def _stamps(what: str, at: float) -> dict[str, int]:
    return {
        f"{what}Timestamp": int(at * 1e6),
        f"{what}TimestampMonotonic": int((at - BOOTED) * 1e6),
    }


def changed_at(secrets: Path, at: float) -> None:
    secrets.write_text("VLLM_API_KEY=another\n")
    os.utime(secrets, (at, at))


def test_a_key_that_is_known_is_taken_out(box: Box, secrets: Path) -> None:
    said = last_words(box, given_up(secrets.stat().st_ctime + 1))
    assert said == "RuntimeError: login with [redacted: VLLM_API_KEY] refused"


def not_quoted(said: str, secrets: Path) -> bool:
    return KEY not in said and f"{secrets} was changed since that start" in said


@pytest.mark.parametrize("how", ["rotated", "gone"])
def test_words_of_a_start_that_read_other_keys_are_not_quoted(
    box: Box, secrets: Path, how: str
) -> None:
    """The key it printed is known nowhere any more."""
    before = secrets.stat().st_ctime
    secrets.unlink() if how == "gone" else changed_at(secrets, before + 5)
    assert not_quoted(last_words(box, given_up(before + 1)), secrets)


def test_a_key_that_was_changed_during_the_last_try_was_changed_since(
    box: Box, secrets: Path
) -> None:
    """To wait for a restart that never came, the service left "failed" after its process had ended."""
    started = secrets.stat().st_ctime + 1
    changed_at(secrets, started + 5)
    assert not_quoted(last_words(box, given_up(started, left=started + 9)), secrets)


def test_what_is_changed_while_systemd_starts_the_process_may_not_have_been_read(
    box: Box, secrets: Path
) -> None:
    started = secrets.stat().st_ctime + 5
    changed_at(secrets, started - redacting.READ_BEFORE / 2)
    assert not_quoted(last_words(box, given_up(started)), secrets)


def test_a_key_that_is_changed_while_it_is_looked_for_was_changed(
    box: Box, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, whole = secrets.stat().st_ctime + 1, redacting.of_box

    def of_box(looked: Box) -> Any:
        changed_at(secrets, started + 5)
        return whole(looked)

    monkeypatch.setattr(redacting, "of_box", of_box)
    assert not_quoted(last_words(box, given_up(started)), secrets)


def test_a_clock_that_was_set_back_hides_no_change(box: Box, secrets: Path) -> None:
    """The change came after the start, at a moment that by now lies before it."""
    changed = secrets.stat().st_ctime
    started = changed + 3600 - 5
    later = replace(box, clock=lambda: changed + 3600 + 100 - BOOTED, now=lambda: changed + 100)
    assert not_quoted(last_words(later, given_up(started)), secrets)
