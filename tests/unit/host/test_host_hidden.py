"""What others than root are not shown of processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from staged_host import process

from kimisvc.host import hidden

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others may enter; pytest's own folders are shut to them."""
    with tempfile.TemporaryDirectory(prefix="kimisvc-proc-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes somebody else")
def test_what_a_proc_hides_from_others_than_root(open_folder: Path) -> None:
    first = process(open_folder, 1, "systemd", "init.scope")
    process(open_folder, 40, "python3")
    asked = []
    for mode in (0o755, 0o700):  # hidepid=0 and hidepid=1
        first.chmod(mode)
        for user in (0, 65534):
            os.seteuid(user)
            try:
                unseen = [pid for pid in (1, 40, 41) if hidden.is_hidden(pid, open_folder)]
                asked.append((unseen, hidden.hides_others(open_folder), hidden.sees_all()))
            finally:
                os.seteuid(0)
    assert asked == [
        ([], False, True),
        ([41], False, False),
        ([], False, True),
        ([1, 41], True, False),
    ]
