"""Tells systemd that a service of type notify is ready (sd_notify(3)). Nothing, where none asks."""

from __future__ import annotations

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def ready() -> None:
    """Say READY=1 to the socket that systemd named; a leading @ is one without a file."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    # Who cannot be told ends the start in time; nothing here could do better.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(address)
        line.send(b"READY=1")
