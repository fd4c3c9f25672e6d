"""vLLM's own words, as history and every user of the box may have them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import ACTIVE, Systemd, two_generations

from kimisvc.deploy.generations import Draft
from kimisvc.deploy.redacting import last_words
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box

KEY = "S3cr3t-quux-ABCDEFGH12345678"
STARTED = 1000.0


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
    return replace(made, journal=journal)


def test_a_key_that_is_known_is_taken_out(box: Box, secrets: Path) -> None:
    later = secrets.stat().st_ctime + 1
    said = last_words(box, replace(ACTIVE, started_at=later))
    assert said == "RuntimeError: login with [redacted: VLLM_API_KEY] refused"


@pytest.mark.parametrize("how", ["rotated", "gone"])
def test_words_of_a_start_that_read_other_keys_are_not_quoted(
    box: Box, secrets: Path, how: str
) -> None:
    """The key it printed is known nowhere any more."""
    before = secrets.stat().st_ctime
    if how == "gone":
        secrets.unlink()
    else:
        secrets.write_text("VLLM_API_KEY=another\n")
        os.utime(secrets, (before + 5, before + 5))
    said = last_words(
        box, replace(ACTIVE, started_at=before - 1 if how == "rotated" else before + 9)
    )
    assert KEY not in said
    assert f"{secrets} was changed since that start" in said
