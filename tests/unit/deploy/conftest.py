"""The good host of these tests, in a folder that the service would see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from good_host import Host, good_host

from kimisvc.host import reach

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Host:
    """A good host; what lies in /tmp, where PrivateTmp= would hide it, counts as seen."""
    base = tmp_path_factory.getbasetemp()
    for folder in (base.parent, base, tmp_path):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    monkeypatch.setattr(reach, "HIDDEN", {str(tmp_path / "home"): "ProtectHome= hides it"})
    return good_host(tmp_path)
