"""READY=1 arrives at the socket that systemd names, with a file or without; nothing else happens."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from kimisvc.host import notify

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_systemd_is_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "notify" if kind == "file" else f"@kimisvc-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(20)
        systemd.bind(name if kind == "file" else f"\0{name[1:]}")
        monkeypatch.setenv(notify.VARIABLE, name)
        notify.ready()
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", ["", "/no/such/socket"])
def test_nobody_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(notify.VARIABLE, name)
    notify.ready()
