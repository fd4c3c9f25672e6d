"""Step 6: what of the unit's hardening holds with CUDA, and what is left after a stop."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_bench import command_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_bench import Bench

HARDENING = "# Hardening"
"""Where the hardening of the shipped unit begins; it ends with [Install]."""
TRIAL_S = 150.0
EMPTY_MIB = 1024
"""What the driver may hold of a GPU that nobody uses (MiB)."""
SETTLE_S = 20.0
NOT_ASKED = ("UMask",)
EXTRAS: dict[str, tuple[str, ...]] = {
    "as shipped": (),
    "ProtectClock=yes": ("ProtectClock=yes",),
    "PrivateDevices=yes": ("PrivateDevices=yes",),
    "MemoryDenyWriteExecute=yes": ("MemoryDenyWriteExecute=yes",),
    "ProtectProc=invisible": ("ProtectProc=invisible",),
    "ProcSubset=pid": ("ProcSubset=pid",),
    "PrivateUsers=yes": ("PrivateUsers=yes",),
    "no AF_NETLINK": (
        "RestrictAddressFamilies=",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    ),
    "named devices": ("DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"),
}
"""What is tried on top of the shipped directives: what they leave open, and why they do."""


RELAXED: dict[str, str] = {
    "system calls": "SystemCallFilter=",
    "address families": "RestrictAddressFamilies=",
    "namespaces": "RestrictNamespaces=no",
    "kernel tunables": "ProtectKernelTunables=no",
    "kernel modules": "ProtectKernelModules=no",
    "control groups": "ProtectControlGroups=no",
    "capabilities": "CapabilityBoundingSet=~",
    "new privileges": "NoNewPrivileges=no",
}
"""What is let go of, one at a time, where CUDA does not work under the shipped directives."""


def rehearsed(bench: Bench, profiles: dict[str, Path], facts: dict[str, Any]) -> None:
    """Step 0: does CUDA work under the shipped directives at all? Where not, find out which is why.

    A run that would fail for one directive goes on with a drop-in that lets go
    of it, and says so.
    """
    done = bench.call(bench.kimisvc, "render", str(profiles["gpu_base"]), bound=150)
    shipped = directives(done.stdout)
    facts |= {"shipped": shipped, "drop_in": []}
    facts["trials"] = _trials(bench, shipped, {"as shipped": ()})
    if facts["trials"]["as shipped"].get("well"):
        return
    ways: dict[str, tuple[str, ...]] = {name: (line,) for name, line in RELAXED.items()}
    ways["all of these"] = tuple(RELAXED.values())
    facts["trials"] |= _trials(bench, shipped, ways)
    helps = [name for name in ways if facts["trials"][name].get("well")]
    if helps:
        facts["drop_in"] = ways[helps[0]]
        folder = Path("/etc/systemd/system", f"{bench.place.service}.d")
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(["[Service]", *ways[helps[0]]])
        (folder / "relaxed.conf").write_text(f"{text}\n")
        bench.call("systemctl", "daemon-reload", bound=30)


def hardening(bench: Bench, profiles: dict[str, Path], facts: dict[str, Any]) -> None:
    """Ask systemd for its view, stop the service, look at what is left, try directives on."""
    del profiles
    facts["security"] = _security(bench)
    shipped = directives(bench.call("systemctl", "cat", bench.place.service, bound=30).stdout)
    facts["shipped"] = shipped
    facts["stop"] = _stop(bench)
    facts["trials"] = _trials(bench, shipped, EXTRAS)


def directives(unit: str) -> list[str]:
    """Given a unit's text, return the lines of its hardening."""
    _, _, rest = unit.partition(HARDENING)
    lines = rest.partition("[Install]")[0].splitlines()
    found = [line for line in lines if re.match(r"[A-Z]\w+=", line)]
    return [line for line in found if line.partition("=")[0] not in NOT_ASKED]


def _security(bench: Bench) -> dict[str, Any]:
    """What systemd-analyze says of the unit: its exposure, and what it counts against it."""
    words = ("systemd-analyze", "security", "--no-pager", bench.place.service)
    told = bench.call(*words, bound=30).stdout
    line = next((line for line in told.splitlines() if "exposure level" in line.lower()), "")
    against = [row.strip() for row in told.splitlines() if row.startswith("✗")]
    return {"exposure": line.strip("→ "), "against": against}


def _stop(bench: Bench) -> dict[str, Any]:
    """Stop the service; say how long it took and what it left on GPUs, in /dev/shm, of processes."""
    before, memory = bench.processes(), bench.memory()
    done = bench.call("systemctl", "stop", bench.place.service, bound=120)
    begun = time.monotonic()
    while (left := bench.memory()) and max(left) > EMPTY_MIB:
        if time.monotonic() > begun + SETTLE_S:
            break
        time.sleep(0.5)
    show = bench.call(
        "systemctl",
        "show",
        bench.place.service,
        "-p",
        "Result,ExecMainStatus,ActiveState",
        bound=30,
    )
    return {
        "exit": done.status, "seconds": done.seconds, "result": show.stdout.split(),
        "memory_before_mib": memory, "memory_after_mib": left,
        "memory_free_after_s": time.monotonic() - begun,
        "processes_before": sorted(before.values()),
        "processes_left": [command_line(pid) for pid in before if command_line(pid)],
        "shm_left": sorted(path.name for path in Path("/dev/shm").iterdir())[:20],
        "nvidia_smi": bench.call("nvidia-smi", bound=30).stdout if bench.gpus else "",
    }  # fmt: skip


def _trials(
    bench: Bench, shipped: list[str], extras: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Run the trial under the shipped directives and each extra, all at once."""
    here = Path(__file__).with_name("gpu_trial.py")
    program = Path("/opt/gpu_trial.py")  # where a unit that sees no home can read it
    program.write_text(here.read_text())
    running = {
        name: subprocess.Popen(
            _unit(bench, [*shipped, *extra], program, number),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )
        for number, (name, extra) in enumerate(extras.items())
    }  # fmt: skip
    end = time.monotonic() + min(TRIAL_S, bench.left())
    found = {}
    for name, process in running.items():
        try:
            out, err = process.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += "\nno end within the bound"
        found[name] = {"exit": process.returncode, **_told(out), "stderr": err[-1500:]}
    return found


def _unit(bench: Bench, lines: list[str], program: Path, number: int) -> list[str]:
    """The command that runs the trial as a unit of its own, with the environment of the service."""
    cache = f"/var/cache/kimisvc-trial-{number}"
    properties = [
        "DynamicUser=yes", f"CacheDirectory=kimisvc-trial-{number}", "LimitMEMLOCK=infinity",
        f"RuntimeMaxSec={TRIAL_S:.0f}", *lines,
    ]  # fmt: skip
    env = {**bench.place.env, "HOME": cache, "XDG_CACHE_HOME": cache}
    env |= {"TRITON_CACHE_DIR": f"{cache}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    words = [word for line in properties for word in ("-p", line)]
    words += [f"--setenv={name}={value}" for name, value in env.items()]
    return [
        "systemd-run", "--wait", "--pipe", "--quiet", "--collect",
        f"--unit=kimisvc-trial-{number}", *words,
        str(bench.place.python), str(program), str(bench.gpus),
    ]  # fmt: skip


def _told(output: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {"well": False}
