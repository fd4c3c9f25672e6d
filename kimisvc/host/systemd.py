"""The door to systemd, and the only user of pystemd.

One bus connection a door. pystemd speaks bytes, hides most names of errors and
returns from Restart before anything has happened; all of that ends here. Of
pystemd only its bus is used: its objects ask systemd to describe itself (a
document of 100 KiB) before the first call.
"""

from __future__ import annotations

import errno
import os
import select
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kimisvc.errors import HostError, NoSystemdError
from kimisvc.host.systemd_words import is_away, object_path, translated, unit_state, was_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from kimisvc.records.units import UnitState

RUNNING = Path("/run/systemd/system")
"""Exists exactly where systemd is the init (sd_booted(3))."""
PRIVATE_BUS = b"unix:path=/run/systemd/private"
"""PID 1's own socket, for root only; systemctl uses it too when dbus-daemon is gone."""
CALL_TIMEOUT = "90s"
"""How long PID 1 may take to answer; the default of 25 s is short for a reload on a busy box."""
ENOUGH = 3
"""So many empty answers in a row mean that the bus has nothing more to tell."""
JOB_LOOK = 2.0
"""How often a job is looked up while waiting for the signal of its end (s)."""

AWAY = 10.0
"""How long systemd may be off the bus, re-executing itself, before a question fails (s)."""
AWAY_LOOK = 0.2
"""How often it is asked again meanwhile (s): a bus without it has no signal to wait for."""

DESTINATION = b"org.freedesktop.systemd1"
MANAGER_PATH = b"/org/freedesktop/systemd1"
MANAGER = b"org.freedesktop.systemd1.Manager"
UNIT = b"org.freedesktop.systemd1.Unit"
SERVICE = b"org.freedesktop.systemd1.Service"
PROPERTIES = b"org.freedesktop.DBus.Properties"
SERVICE_PROPERTIES = {
    "Result": b"s", "MainPID": b"u", "NRestarts": b"u", "ExecMainCode": b"i",
    "ExecMainStatus": b"i", "ExecMainStartTimestamp": b"t", "ExecMainStartTimestampMonotonic": b"t",
    "ExecMainExitTimestampMonotonic": b"t", "Restart": b"s",
}  # fmt: skip
"""Read one by one (0.08 ms each): all 303 of them take 2 ms, and PID 1's time is everybody's."""


class JobMode(Enum):
    """What becomes of a queued job that a new one contradicts (systemctl(1), --job-mode=)."""

    REPLACE = b"replace"
    FAIL = b"fail"


class Systemd:
    """An open door to the system's systemd. Use it in a `with` block, from one thread."""

    def __init__(
        self, running: Path = RUNNING, private_bus: bytes = PRIVATE_BUS, user: int | None = None
    ) -> None:
        """Given another folder, socket or user id than the real ones, look there instead."""
        self._running = running
        self._private_bus = private_bus
        self._user = os.geteuid() if user is None else user
        self._bus: Any = None
        self._ended: dict[str, str] = {}
        self._on_removed: Callable[..., None] | None = None

    def __enter__(self) -> Self:
        """Connect. Raise HostError when systemd does not run or cannot be reached."""
        if not self._running.is_dir():
            raise NoSystemdError(
                "no-systemd",
                f"systemd does not run here (there is no {self._running})",
                hint="kimisvc needs a box, a virtual machine or a container with systemd as PID 1",
            )
        # Read by libsystemd (252 and newer) when a connection makes its first call.
        os.environ.setdefault("SYSTEMD_BUS_TIMEOUT", CALL_TIMEOUT)
        self._connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._close()

    # ------------------------------------------------------------- reading

    def state(self, unit: str) -> UnitState:
        """Given a unit's name, return what systemd says of it now.

        One that is not there says so: load state "not-found", "inactive".
        Raise HostError if systemd cannot be asked.
        """
        state: UnitState = self._read(lambda: self._state(unit), unit)
        return state

    def version(self) -> str:
        """Return systemd's version, as it says it itself ("252.39-1~deb12u2")."""
        return str(self._read(lambda: self._manager_property("Version", b"s"), "version"))

    def environment(self) -> dict[str, str]:
        """Return the variables that every service gets from systemd itself, where it sets no others.

        Those of DefaultEnvironment= and of `systemctl set-environment`, and what
        systemd adds (systemd.exec(5), "Environment variables").
        """
        given = self._read(lambda: self._manager_property("Environment", b"as"), "environment")
        words = (word.decode(errors="replace").partition("=") for word in given)
        return {name: value for name, _, value in words}

    # ------------------------------------------------------------- acting

    def start(self, unit: str) -> str:
        """Given a unit, queue its start and return the job; it has not ended then."""
        return self._queue(b"StartUnit", unit)

    def restart(self, unit: str, mode: JobMode = JobMode.REPLACE) -> str:
        """Given a unit, queue its restart (a start, if it does not run) and return the job.

        Raise HostError "job-in-the-way" where `mode` is FAIL and another job would
        have to give way.
        """
        return self._queue(b"RestartUnit", unit, mode)

    def stop(self, unit: str) -> str:
        """Given a unit, queue its stop and return the job; "" where it is not loaded at all."""
        from pystemd.dbusexc import DBusNoSuchUnitError

        try:
            return self._queue(b"StopUnit", unit)
        except HostError as error:
            if isinstance(error.__cause__, DBusNoSuchUnitError):
                return ""
            raise

    def reset_failed(self, unit: str) -> None:
        """Given a unit, forget that it failed and how often it started; one not loaded is fine."""
        from pystemd.dbusexc import DBusNoSuchUnitError

        try:
            self._act(b"ResetFailedUnit", unit, b"s", unit.encode())
        except HostError as error:
            if not isinstance(error.__cause__, DBusNoSuchUnitError):
                raise

    def reload(self) -> None:
        """Make systemd read its units anew (daemon-reload); returns when it has."""
        self._act(b"Reload", "daemon-reload", b"")

    def enable(self, units: Sequence[str]) -> None:
        """Given units, have them started at boot, through their [Install] sections."""
        names = [unit.encode() for unit in units]
        runtime, force = False, True  # force replaces a symlink that points elsewhere
        self._act(b"EnableUnitFiles", ", ".join(units), b"asbb", names, runtime, force)

    def disable(self, units: Sequence[str]) -> None:
        """Given units, have them started at boot no more; those that are not there are fine."""
        from pystemd.dbusexc import DBusNoSuchUnitError

        runtime = False
        for unit in units:
            try:
                self._act(b"DisableUnitFiles", unit, b"asb", [unit.encode()], runtime)
            except HostError as error:
                if not isinstance(error.__cause__, DBusNoSuchUnitError):
                    raise

    # ------------------------------------------------------------- waiting

    def wait_for_job(self, job: str, timeout: float) -> str:
        """Given a job that this door queued, return how it ended.

        The words are those of JobRemoved in org.freedesktop.systemd1(5): done,
        canceled, timeout, failed, dependency, skipped; "" where it ended unseen
        (systemd or the bus was restarted meanwhile). "done" says that a start
        went well as far as the unit's type tells. Raise HostError
        "job-timeout" after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        look = time.monotonic() + JOB_LOOK
        while job not in self._ended:
            now = time.monotonic()
            if now >= deadline:
                raise HostError(
                    "job-timeout", f"systemd: the job {job} has not ended in {timeout:g} s"
                )
            if now >= look:
                if not self._read(lambda: self._job_is_there(job), job):
                    return self._ended.pop(job, "")
                look = now + JOB_LOOK
            self._listen(min(deadline, look) - now)
        return self._ended.pop(job)

    # ------------------------------------------------------------- the bus

    def _connect(self) -> None:
        """Through dbus-daemon; root falls back to PID 1's own socket, so a dead bus stops nobody."""
        from pystemd.dbusexc import DBusBaseError
        from pystemd.dbuslib import DBus, DBusAddress

        bus: Any = DBus()
        try:
            bus.open()
        except DBusBaseError as error:
            if self._user != 0:
                raise HostError(
                    "systemd-unreachable",
                    f"the system bus cannot be reached: {translated(error, '').message}",
                    hint="is dbus running (systemctl status dbus)? root can do without it: sudo",
                ) from error
            bus = DBusAddress(self._private_bus, peer_to_peer=True)
            try:
                bus.open()
            except DBusBaseError as second:
                raise HostError(
                    "systemd-unreachable",
                    "neither the system bus nor systemd's own socket answers: "
                    f"{translated(second, '').message}",
                    hint="is PID 1 alive? (systemctl status)",
                ) from second
        self._bus = bus

    def _close(self) -> None:
        bus, self._bus, self._on_removed = self._bus, None, None
        if bus is not None:
            bus.close()  # once: pystemd frees it again on a second close

    def _call(self, path: bytes, interface: bytes, method: bytes, sign: bytes, *given: Any) -> Any:
        from pystemd.dbuslib import apply_signature

        arguments = apply_signature(sign, list(given)) if sign else []
        return self._bus.call_method(DESTINATION, path, interface, method, arguments).body

    def _read(self, question: Callable[[], Any], about: str) -> Any:
        """Ask; asked again on a new connection where the old was cut or systemd was away.

        Reading twice harms nobody; whoever waits half an hour for a load must not
        give up because systemd re-executed itself meanwhile, or because a signal
        came whose handler only takes a note. One that raises does so before the
        error is translated, for Python runs it as soon as the call has returned.
        """
        from pystemd.dbusexc import DBusBaseError

        until = time.monotonic() + AWAY
        while True:
            try:
                return question()
            except DBusBaseError as error:
                passing = was_cut(error) or is_away(error) or isinstance(error, InterruptedError)
                if not passing or time.monotonic() >= until:
                    raise translated(error, about) from error
            self._close()
            time.sleep(AWAY_LOOK)
            self._connect()

    def _act(self, method: bytes, about: str, sign: bytes, *given: Any) -> Any:
        """Act; repeated on a new connection only where the call was certainly never sent."""
        from pystemd.dbusexc import DBusBaseError

        try:
            return self._call(MANAGER_PATH, MANAGER, method, sign, *given)
        except DBusBaseError as error:
            if error.errno != -errno.ENOTCONN:
                raise translated(error, about) from error
        self._close()
        self._connect()
        try:
            return self._call(MANAGER_PATH, MANAGER, method, sign, *given)
        except DBusBaseError as error:
            raise translated(error, about) from error

    def _queue(self, method: bytes, unit: str, mode: JobMode = JobMode.REPLACE) -> str:
        self._watch()
        return bytes(self._act(method, unit, b"ss", unit.encode(), mode.value)).decode()

    def _state(self, unit: str) -> UnitState:
        """Read all of [Unit] in one answer, so that its parts fit together."""
        path = object_path(unit)
        general = {
            key.decode(): value
            for key, value in self._call(path, PROPERTIES, b"GetAll", b"s", UNIT).items()
        }
        service = {}
        if unit.endswith(".service") and general.get("LoadState") == b"loaded":
            for name, kind in SERVICE_PROPERTIES.items():
                service[name] = self._bus.get_property(
                    DESTINATION, path, SERVICE, name.encode(), kind
                )
        return unit_state(unit, general, service)

    def _manager_property(self, name: str, kind: bytes) -> Any:
        got = self._bus.get_property(DESTINATION, MANAGER_PATH, MANAGER, name.encode(), kind)
        return got.decode() if isinstance(got, bytes) else got

    def _job_is_there(self, job: str) -> bool:
        from pystemd.dbusexc import DBusUnknownObjectError

        try:
            self._call(job.encode(), PROPERTIES, b"GetAll", b"s", b"org.freedesktop.systemd1.Job")
        except DBusUnknownObjectError:
            return False
        return True

    def _watch(self) -> None:
        """Have systemd tell of ended jobs, before one is queued: a fast one ends at once."""
        if self._on_removed is not None:
            return

        def on_removed(message: Any, error: Any = None, userdata: Any = None) -> None:
            del error, userdata
            message.process_reply(with_headers=False)
            _, path, _, result = message.body
            self._ended[path.decode()] = result.decode()

        def subscribe() -> None:
            self._call(MANAGER_PATH, MANAGER, b"Subscribe", b"")
            self._bus.match_signal(DESTINATION, MANAGER_PATH, MANAGER, b"JobRemoved", on_removed)

        self._read(subscribe, "subscribe")
        self._on_removed = on_removed  # pystemd keeps no reference of its own

    def _listen(self, seconds: float) -> None:
        """Sleep until systemd tells something, at most so long; take in all that it told."""
        from pystemd.dbusexc import DBusBaseError

        self._watch()
        try:
            if self._take_in():
                return
            descriptor = self._bus.get_fd()
            if descriptor >= 0:
                select.select([descriptor], [], [], max(0.0, seconds))
                self._take_in()
                return
        except DBusBaseError as error:
            if not was_cut(error):
                raise translated(error, "waiting") from error
        self._close()
        self._connect()

    def _take_in(self) -> int:
        """Dispatch what has arrived; return how many messages that were.

        sd_bus_process(3) may also do something that is no message, so one
        empty answer is not the end yet.
        """
        count = empty = 0
        while empty < ENOUGH:
            if self._bus.process().is_empty():
                empty += 1
            else:
                count, empty = count + 1, 0
        return count
