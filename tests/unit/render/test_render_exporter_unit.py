"""The exporter's unit: what it calls, that systemd understands it, and that an edit is seen."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from systemd_reading import assignments, command

from kimisvc.records.units import Installation
from kimisvc.render.exporter_unit import NAME, TEMPLATE, is_as_made, render_exporter

TEXT = (Path(__file__).parents[3] / "units" / TEMPLATE).read_text()
PLACE = Installation(kimisvc=Path("/opt/kimisvc/bin/kimisvc"))


def rendered(*arguments: str) -> str:
    unit = render_exporter(TEXT, PLACE, arguments)
    assert unit.name == NAME
    return unit.text


def setting(text: str, key: str) -> str:
    (value,) = [value for _, name, value in assignments(text) if name == key]
    return value


def test_it_runs_the_exporter_as_the_unprivileged_user() -> None:
    text = rendered("--address", "127.0.0.1:9464")
    assert command(setting(text, "ExecStart")) == [
        "/opt/kimisvc/bin/kimisvc", "exporter", "--address", "127.0.0.1:9464",
    ]  # fmt: skip
    assert setting(text, "User") == "kimisvc"
    assert setting(text, "CapabilityBoundingSet") == ""
    assert setting(text, "ProtectSystem") == "strict"
    assert setting(text, "Restart") == "always"


@given(
    st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1), max_size=3)
)
def test_its_arguments_reach_it_as_they_were_given(arguments: list[str]) -> None:
    called = command(setting(rendered(*arguments), "ExecStart"))
    assert called == ["/opt/kimisvc/bin/kimisvc", "exporter", *arguments]


def test_an_edit_by_hand_is_seen() -> None:
    text = rendered("--interval", "5")
    assert is_as_made(text)
    assert is_as_made(rendered("--interval", "7"))
    for edited in (text + "\n", text.replace("Nice=5", "Nice=6"), text.replace("User=", "#User="),
                   re.sub("sha256:.", "sha256:g", text), "[Service]\nExecStart=/bin/true\n", ""):  # fmt: skip
        assert not is_as_made(edited)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text(rendered("--interval", "5").replace("/opt/kimisvc/bin/kimisvc", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(path)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "kimisvc" in line] == []
