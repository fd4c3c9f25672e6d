"""What systemd says over D-Bus, in our words: unit states, object paths, errors. Pure."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Mapping

USEC = 1_000_000
_CUT = (-errno.ENOTCONN, -errno.ECONNRESET, -errno.EPIPE, -errno.ESTALE)
_CUT_KINDS = ("DBusDisconnectedError", "DBusNoServerError", "DBusNameHasNoOwnerError")
_AWAY_KINDS = ("DBusNoReplyError", "DBusServiceUnknownError", "DBusNameHasNoOwnerError")
_DENIED = ("AccessDenied", "InteractiveAuthorizationRequired", "AuthFailed")
_ROWS = {
    # part of the error's name: our code, hint
    "NoSuchUnit": ("no-such-unit", "has it been applied on this box? (kimisvc profiles)"),
    "UnitMasked": ("unit-masked", "somebody masked it; undo that with: systemctl unmask UNIT"),
    "LoadFailed": ("unit-broken", "see: systemctl status UNIT"),
    "BadUnitSetting": ("unit-broken", "see: systemd-analyze verify UNIT"),
    "InvalidArgs": ("systemd-refused", ""),
    "OnlyByDependency": ("systemd-refused", "the unit has RefuseManualStart= or RefuseManualStop="),
    "ShuttingDown": ("systemd-refused", "the box is shutting down"),
    "TransactionIsDestructive": ("job-in-the-way", "the box is shutting down, or a job is in the way"),
    "TimedOut": ("systemd-timeout", "PID 1 is busy; see: systemctl list-jobs"),
    "Timeout": ("systemd-timeout", "PID 1 is busy; see: systemctl list-jobs"),
    "NoReply": ("systemd-timeout", "PID 1 is busy, or it was just restarted"),
    "Disconnected": ("systemd-lost", "dbus or systemd was restarted; try again"),
}  # fmt: skip


def object_path(unit: str) -> bytes:
    """Given a unit's name, return its D-Bus path; systemd loads the unit when that is asked.

    sd_bus_path_encode(3): all but letters and digits become _xx, a leading digit too.
    """
    label = re.sub(rb"[^A-Za-z0-9]|^[0-9]", lambda m: b"_%02x" % m.group()[0], unit.encode())
    return b"/org/freedesktop/systemd1/unit/" + (label or b"_")


def unit_state(unit: str, general: Mapping[str, Any], service: Mapping[str, Any]) -> UnitState:
    """Given the properties of a unit and of its service (none for other kinds), return its state.

    `started_at` is when its main process was started, or, while there is none
    yet, when the unit left "inactive"; 0: never since boot. One that is given up
    left "failed" once more after its last process, to wait for a restart that
    never came: what that process was given, `main_started_at` says.
    """
    # An automatic restart does not pass through "inactive", and ExecStartPre= runs before
    # there is a main process: the later of the two is this start.
    left = _moment(general, "InactiveExitTimestamp")
    main = main_monotonic, main_at = _moment(service, "ExecMainStartTimestamp")
    started_monotonic, started_at = max(left, main)
    return UnitState(
        name=unit,
        load_state=_text(general.get("LoadState")),
        active_state=_text(general.get("ActiveState")),
        sub_state=_text(general.get("SubState")),
        result=_text(service.get("Result")),
        main_pid=int(service.get("MainPID", 0)),
        invocation_id=bytes(general.get("InvocationID") or b"").hex(),
        restarts=int(service.get("NRestarts", 0)),
        exec_main_code=int(service.get("ExecMainCode", 0)),
        exec_main_status=int(service.get("ExecMainStatus", 0)),
        started_at=started_at,
        started_monotonic=started_monotonic,
        main_started_at=main_at,
        main_started_monotonic=main_monotonic,
        main_ended_monotonic=_moment(service, "ExecMainExitTimestamp")[0],
        fragment=_text(general.get("FragmentPath")),
        drop_ins=tuple(_text(path) for path in general.get("DropInPaths") or ()),
        enabled=_text(general.get("UnitFileState")),
        needs_reload=bool(general.get("NeedDaemonReload", False)),
        job=int((general.get("Job") or (0,))[0]),
        restart=_text(service.get("Restart")),
    )


def was_cut(error: Exception) -> bool:
    """Given an error of the bus, return whether the connection is gone: a new one may work."""
    return getattr(error, "errno", 0) in _CUT or type(error).__name__ in _CUT_KINDS


def is_away(error: Exception) -> bool:
    """Given an error of the bus, return whether systemd is off it for a moment.

    It leaves the bus and comes back when it re-executes itself, as an upgrade of
    its package makes it do (systemctl(1), daemon-reexec). Its being too slow looks the same, but
    takes as long as CALL_TIMEOUT.
    """
    return type(error).__name__ in _AWAY_KINDS


def translated(error: Exception, about: str) -> HostError:
    """Given an error of pystemd and what was asked about, return it as ours, with what helps.

    pystemd keeps the D-Bus name only for errors it has no class for; for the
    others the name is that of the class, without "DBus" and "Error".
    """
    name = _text(getattr(error, "err_name", "")).rpartition(".")[2]
    if not name and type(error).__name__ != "DBusBaseError":
        name = type(error).__name__.removeprefix("DBus").removesuffix("Error")
    number = -int(getattr(error, "errno", 0) or 0)
    words = _text(getattr(error, "err_message", "")) or errno.errorcode.get(number, str(error))
    if words.startswith("Could not open") and number in errno.errorcode:
        words = f"{words} ({errno.errorcode[number]})"
    message = f"systemd: {about}: {words}" if about else words
    if name in _DENIED or (not name and number in (errno.EACCES, errno.EPERM)):
        return HostError("not-allowed", message, hint="run it as root (sudo)")
    if number == errno.ETIMEDOUT:
        name = "TimedOut"
    elif was_cut(error):
        name = "Disconnected"
    code, hint = _ROWS.get(name, ("systemd-refused", ""))
    return HostError(code, message, hint=hint.replace("UNIT", about))


def _moment(properties: Mapping[str, Any], name: str) -> tuple[float, float]:
    monotonic, real = properties.get(f"{name}Monotonic", 0), properties.get(name, 0)
    return int(monotonic) / USEC, int(real) / USEC


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)
