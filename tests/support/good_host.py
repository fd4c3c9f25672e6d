"""A good host with eight GPUs over PCIe, and a profile for it; each test spoils one thing."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from staged_host import GIB, Card, Nvml, model, pci_device, process

from kimisvc.deploy.checks.inspection import Inspection, Looked
from kimisvc.deploy.preflight import CHECKS, examine
from kimisvc.host.gpu import survey
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.profile import HardwareSettings, Link, Profile, ServiceSettings, VllmSettings
from kimisvc.records.units import Installation

if TYPE_CHECKING:
    from pathlib import Path

GPUS = 8
OVER_PCIE = {(a, b, 2): 5 for a in range(GPUS) for b in range(a + 1, GPUS)}
MEMORY = 97_887 * (1 << 20)
LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"


@dataclass
class Host:
    """The staged box: change its files, `nvml` or `profile`, then ask."""

    root: Path
    profile: Profile
    place: Installation
    nvml: Nvml = field(
        default_factory=lambda: Nvml(*(Card(MEMORY) for _ in range(GPUS)), p2p=OVER_PCIE)
    )

    def inspected(self) -> Inspection:
        return Inspection(self.profile, self.place, survey(self.nvml), self.root)

    def all(self) -> tuple[Problem, ...]:
        return tuple(p for found in examine(self.inspected()) for p in found.problems)

    def ask(self, check: str) -> list[Problem]:
        """What one check says, and that the others have nothing to say of it."""
        told = dict(CHECKS)[check](self.inspected())
        return [one for one in told if isinstance(one, Problem)]

    def unseen(self, check: str) -> str:
        """Why a check could not see what it is for; empty where it could, or need not."""
        return self._why(check, Looked.NO)

    def not_asked(self, check: str) -> str:
        """What the profile does not ask for, so that a check looked at nothing; empty where it does."""
        return self._why(check, Looked.NOT_ASKED)

    def _why(self, check: str, looked: Looked) -> str:
        (found,) = (one for one in examine(self.inspected()) if one.check == check)
        return found.said if found.looked is looked else ""

    def error(self, check: str) -> str:
        """The one error of a check."""
        (problem,) = self.ask(check)
        assert problem.severity is Severity.ERROR
        return problem.message

    def warning(self, check: str) -> str:
        """The one warning of a check."""
        (problem,) = self.ask(check)
        assert problem.severity is Severity.WARNING
        return problem.message

    def vllm(self, **settings: Any) -> None:
        self.profile = replace(self.profile, vllm=replace(self.profile.vllm, **settings))

    def hardware(self, **settings: Any) -> None:
        self.profile = replace(self.profile, hardware=replace(self.profile.hardware, **settings))

    def service(self, **settings: Any) -> None:
        self.profile = replace(self.profile, service=replace(self.profile.service, **settings))

    def env(self, **variables: str) -> None:
        self.profile = replace(self.profile, env={**self.profile.env, **variables})

    def args(self, options: dict[str, Any]) -> None:
        self.profile = replace(self.profile, args={**self.profile.args, **options})

    def card(self, index: int, **settings: Any) -> None:
        """Spoil one GPU."""
        cards = list(self.nvml.cards)
        cards[index] = replace(cards[index], **settings)
        self.nvml.cards = tuple(cards)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def good_host(root: Path) -> Host:
    """Stage a host that has all the profile needs under a folder."""
    for tool in ("gcc", "nvcc", "ninja"):
        program(root / "usr" / "local" / "bin" / tool)
    write(root / "proc" / "meminfo", f"MemTotal: {1100 * GIB // 1024} kB\n")
    write(root / "proc" / "driver" / "nvidia" / "version", LOADED)
    write(root / "proc" / "sys" / "fs" / "nr_open", "1073741816\n")
    write(root / "proc" / "cmdline", "quiet\n")
    process(root / "proc", 1, "systemd", "init.scope")
    (root / "dev" / "shm").mkdir(parents=True)
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libnvidia-ml.so", "libcuda.so"):
        (libraries / f"{name}.1").symlink_to(f"{name}.580.159.04")
    for node in ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(GPUS))):
        write(root / "dev" / node, "").chmod(0o666)
    for index in range(GPUS):
        pci_device(root / "sys", f"0000:0{10 + index:x}:00.0")
    port = pci_device(root / "sys", "0000:00:01.0", driver="pcieport", **{"class": "0x060400"})
    (port / "config").write_bytes(bytes(4096))
    profile = Profile(
        "baseline",
        VllmSettings(
            str(program(root / "opt" / "vllm" / "bin" / "vllm")),
            str(model(root / "models" / "kimi")),
            port=_free_port(),
        ),
        service=ServiceSettings(),
        args={"tensor-parallel-size": GPUS, "gpu-memory-utilization": 0.92},
        hardware=HardwareSettings(GPUS, 95, Link.PCIE, 0, 1000),
    )
    (root / "units").mkdir()
    place = Installation(
        program(root / "opt" / "kimisvc" / "kimisvc"), root / "units", root / "state"
    )
    return Host(root, profile, place)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
