"""The door to systemd, and the only user of pystemd.

One bus connection a door. pystemd speaks bytes, knows few of systemd's error
names and returns from Restart before anything has happened; all of that ends
here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kimisvc.errors import KimisvcError
from kimisvc.records import UnitState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

RUNNING = Path("/run/systemd/system")
"""Exists exactly where systemd is the init (sd_booted(3))."""
PRIVATE_BUS = b"unix:path=/run/systemd/private"
USEC = 1_000_000

UNIT = b"org.freedesktop.systemd1.Unit"
SERVICE = b"org.freedesktop.systemd1.Service"
_NOT_LOADED = (b"org.freedesktop.systemd1.NoSuchUnit",)
_HINTS = {
    b"org.freedesktop.DBus.Error.AccessDenied": "run it with sudo",
    b"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": "run it with sudo",
    b"org.freedesktop.systemd1.UnitMasked": "unmask it: systemctl unmask UNIT",
    b"org.freedesktop.DBus.Error.Timeout": "systemd is busy; try again in a minute",
    b"org.freedesktop.DBus.Error.NoReply": "systemd is busy; try again in a minute",
}


class Systemd:
    """An open door to the system's systemd. Use it in a `with` block."""

    def __init__(self) -> None:
        self._bus: Any = None
        self._manager: Any = None

    def __enter__(self) -> Self:
        """Connect. Raise KimisvcError when systemd does not run or cannot be reached."""
        if not RUNNING.is_dir():
            raise KimisvcError(
                "no-systemd",
                "systemd does not run here (there is no /run/systemd/system)",
                hint="kimisvc needs a box, a virtual machine or a container with systemd as PID 1",
            )
        self._connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._bus is not None:
            self._bus.close()

    def _connect(self) -> None:
        """Through dbus-daemon; root falls back to PID 1's own socket, so a dead bus stops nobody."""
        from pystemd.dbusexc import DBusError
        from pystemd.dbuslib import DBus, DBusAddress
        from pystemd.systemd1 import Manager

        bus: Any = DBus()
        try:
            bus.open()
        except (DBusError, OSError) as error:
            if os.geteuid() != 0:
                raise KimisvcError(
                    "no-dbus", f"the system bus cannot be reached: {_words(error)}",
                    hint="is dbus running? (systemctl status dbus)",
                ) from error  # fmt: skip
            bus = DBusAddress(PRIVATE_BUS, peer_to_peer=True)
            try:
                bus.open()
            except (DBusError, OSError) as second:
                raise KimisvcError(
                    "systemd-unreachable", f"systemd cannot be reached: {_words(second)}"
                ) from second
        self._bus = bus
        self._manager = Manager(bus=bus, _autoload=True)

    # ------------------------------------------------------------- reading

    def state(self, unit: str) -> UnitState:
        """Given a unit's name, return what systemd says of it now; one that is not there says so."""
        path = self._path(unit)
        get = self._properties(path, UNIT)
        service = self._properties(path, SERVICE) if unit.endswith(".service") else {}
        return UnitState(
            name=unit,
            load_state=_text(get, "LoadState"),
            active_state=_text(get, "ActiveState"),
            sub_state=_text(get, "SubState"),
            result=_text(service, "Result"),
            main_pid=int(service.get("MainPID", 0)),
            invocation_id=bytes(get.get("InvocationID", b"")).hex(),
            restarts=int(service.get("NRestarts", 0)),
            exec_main_code=int(service.get("ExecMainCode", 0)),
            exec_main_status=int(service.get("ExecMainStatus", 0)),
            started_at=int(get.get("InactiveExitTimestamp", 0)) / USEC,
            started_monotonic=int(get.get("InactiveExitTimestampMonotonic", 0)) / USEC,
            fragment=_text(get, "FragmentPath"),
            drop_ins=tuple(p.decode() for p in get.get("DropInPaths", ())),
            enabled=_text(get, "UnitFileState"),
            needs_reload=bool(get.get("NeedDaemonReload", False)),
            job=int((get.get("Job") or (0,))[0]),
        )

    def version(self) -> str:
        """Return systemd's version, as it says it itself."""
        return str(self._manager.Manager.Version.decode())

    def environment(self) -> tuple[str, ...]:
        """Return the manager's own environment, which every unit inherits."""
        return tuple(item.decode() for item in self._manager.Manager.Environment)

    # ------------------------------------------------------------- acting

    def restart(self, unit: str) -> None:
        """Given a unit, queue its restart (a start, if it does not run)."""
        self._call(unit, "RestartUnit", unit.encode(), b"replace")

    def stop(self, unit: str) -> None:
        """Given a unit, queue its stop."""
        self._call(unit, "StopUnit", unit.encode(), b"replace")

    def reset_failed(self, unit: str) -> None:
        """Given a unit, forget that it failed and how often it started; one not loaded is fine."""
        from pystemd.dbusexc import DBusError

        try:
            self._manager.Manager.ResetFailedUnit(unit.encode())
        except DBusError as error:
            if not _is(error, _NOT_LOADED):
                raise _translated(error, unit) from error

    def reload(self) -> None:
        """Make systemd read its units anew (daemon-reload)."""
        self._call("daemon-reload", "Reload")

    def enable(self, units: Sequence[str]) -> None:
        """Given units, have them started at boot, through their [Install] sections."""
        names = [unit.encode() for unit in units]
        self._call(", ".join(units), "EnableUnitFiles", names, False, True)  # noqa: FBT003 - D-Bus

    def _call(self, about: str, method: str, *arguments: object) -> None:
        from pystemd.dbusexc import DBusError

        try:
            getattr(self._manager.Manager, method)(*arguments)
        except DBusError as error:
            raise _translated(error, about) from error

    def _path(self, unit: str) -> bytes:
        from pystemd.dbusexc import DBusError

        try:
            return bytes(self._manager.Manager.LoadUnit(unit.encode()))
        except DBusError as error:
            raise _translated(error, unit) from error

    def _properties(self, path: bytes, interface: bytes) -> dict[str, Any]:
        """Read all properties of one interface in one call: a tenth of the cost of one by one."""
        from pystemd.dbusexc import DBusError

        try:
            answer = self._bus.call_method(
                b"org.freedesktop.systemd1", path,
                b"org.freedesktop.DBus.Properties", b"GetAll", [interface],
            )  # fmt: skip
        except DBusError as error:
            raise _translated(error, path.decode()) from error
        return {key.decode(): value for key, value in answer.body.items()}


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key, b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _is(error: Exception, names: Sequence[bytes]) -> bool:
    name = getattr(error, "err_name", b"") or b""
    return name in names or type(error).__name__ == "DBusNoSuchUnitError"


def _words(error: Exception) -> str:
    message = getattr(error, "err_message", None)
    return message.decode() if isinstance(message, bytes) else str(error)


def _translated(error: Exception, about: str) -> KimisvcError:
    name = getattr(error, "err_name", b"") or b""
    kind = type(error).__name__
    hint = _HINTS.get(name, "")
    if not hint and ("AccessDenied" in kind or "Authorization" in kind):
        hint = "run it with sudo"
    return KimisvcError("systemd-refused", f"systemd: {about}: {_words(error)}", hint=hint)
