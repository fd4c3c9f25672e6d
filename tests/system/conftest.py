"""The sandbox of the system tests: one container with systemd as PID 1, shared by a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
SANDBOX = REPOSITORY / "packaging" / "sandbox"
KIMISVC = Path("/opt/kimisvc/demo/kimisvc/bin/kimisvc")

sys.path.insert(0, str(Path(__file__).parent))


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root: boots a container with systemd as PID 1"
    if shutil.which("systemd-nspawn") is None:
        return "needs systemd-nspawn (Debian: systemd-container); packaging/setup apt installs it"
    if not KIMISVC.exists():
        return "needs the installed wheel; packaging/setup demo installs it"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine or user cannot run."""
    why_not = _why_not()
    for item in items:
        if why_not and item.get_closest_marker("system") is not None:
            item.add_marker(pytest.mark.skip(reason=why_not))


@dataclass(frozen=True)
class Box:
    """A booted sandbox."""

    name: str

    def run(
        self, *argv: str, check: bool = True, timeout: float = 60.0, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return what it left."""
        done = self._verb("run", self.name, "--", *argv, timeout=timeout, text=text)
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr}"
        return done

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        self.run("bash", "-c", 'cat > "$0"', path, text=text)

    def read(self, path: str) -> str:
        """Read a file inside."""
        return self.run("cat", path).stdout

    def reboot(self) -> None:
        """Reboot in order; return when it is up again."""
        self._well("reboot", self.name)

    def crash(self) -> None:
        """Cut the power and boot again."""
        self._well("crash", self.name)

    def start(self) -> None:
        """Boot it; its life is bound to ours."""
        self._well("start", self.name, "--owner", str(os.getpid()))

    def stop(self) -> None:
        """Remove every trace of it."""
        self._well("stop", self.name)

    def _well(self, *argv: str) -> None:
        done = self._verb(*argv, timeout=180.0)
        assert done.returncode == 0, f"sandbox {argv}: {done.stderr}"

    def _verb(self, *argv: str, timeout: float, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SANDBOX), *argv], input=text, capture_output=True, text=True, check=False,
            timeout=timeout,
        )  # fmt: skip


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Box]:
    """A booted sandbox, removed at the end whatever happened."""
    box = Box(f"test-{os.getpid()}")
    box.start()
    try:
        yield box
    finally:
        box.stop()
