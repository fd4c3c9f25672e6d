"""The good host of these tests, in a folder that the service would see."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from good_host import Host, good_host

from kimisvc.host import reach

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A good host; what lies in /tmp, where PrivateTmp= would hide it, counts as seen.

    Not in pytest's own folder: that is closed to others, and closed again by
    every other session of pytest on the same machine.
    """
    with tempfile.TemporaryDirectory(prefix="kimisvc-host-") as name:
        root = Path(name)
        root.chmod(0o755)
        monkeypatch.setattr(reach, "HIDDEN", {str(root / "home"): "ProtectHome= hides it"})
        monkeypatch.setattr(reach, "ROOTS", {0, os.geteuid()})
        yield good_host(root)
