"""A host that is staged: what NVML, /proc, /sys and a model folder say, good until a test spoils it.

NVML's answers are those of a real box with H200 cards (driver 580), but for
what a test says otherwise.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GIB = 1 << 30


class NvmlError(Exception):
    """As pynvml raises it."""


@dataclass
class Card:
    """One GPU: `says` overrides an answer; an exception among them is raised."""

    memory: int = 140 * GIB
    used: int = GIB // 2
    pids: tuple[int, ...] = ()
    says: Mapping[str, Any] = field(default_factory=dict)


class Nvml:
    """Plays pynvml. `says` overrides answers for the box, `p2p` those of pairs by (a, b, index)."""

    NVMLError = NvmlError

    def __init__(
        self,
        *cards: Card,
        says: Mapping[str, Any] | None = None,
        p2p: Mapping[tuple[int, int, int], int] | None = None,
    ) -> None:
        self.cards, self.says, self.p2p = cards, dict(says or {}), dict(p2p or {})
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        return partial(self._answer, name)

    def _answer(self, name: str, *arguments: int) -> Any:
        card = self.cards[arguments[0]] if arguments else None
        if name in self.says:
            answer = self.says[name]
        elif card is not None and name in card.says:
            answer = card.says[name]
        else:
            answer = CALLS[name](self, *arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _opened(nvml: Nvml, change: int) -> None:
    nvml.open += change


CALLS: dict[str, Any] = {
    "nvmlInit": lambda nvml: _opened(nvml, 1),
    "nvmlShutdown": lambda nvml: _opened(nvml, -1),
    "nvmlSystemGetDriverVersion": lambda _: "580.159.04",
    "nvmlDeviceGetCount": lambda nvml: len(nvml.cards),
    "nvmlDeviceGetHandleByIndex": lambda _, index: index,
    "nvmlDeviceGetName": lambda _, index: b"NVIDIA H200" if index % 2 else "NVIDIA H200",
    "nvmlDeviceGetUUID": lambda _, index: f"GPU-{index}5220b1e",
    "nvmlDeviceGetMinorNumber": lambda _, index: index,
    "nvmlDeviceGetPciInfo": lambda _, index: SimpleNamespace(
        busId=b"00000000:0%X:00.0" % (10 + index)
    ),
    "nvmlDeviceGetMemoryInfo": lambda nvml, index: SimpleNamespace(
        total=nvml.cards[index].memory, used=nvml.cards[index].used
    ),
    "nvmlDeviceGetComputeRunningProcesses": lambda nvml, index: [
        SimpleNamespace(pid=pid) for pid in nvml.cards[index].pids
    ],
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda *_: 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda *_: 5,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": lambda *_: 5,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda *_: 16,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda *_: 16,
    "nvmlDeviceGetPersistenceMode": lambda *_: 1,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda *_: 1,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda *_: 1,
    "nvmlDeviceGetEnforcedPowerLimit": lambda *_: 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda *_: 700_000,
    "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
    "nvmlDeviceGetRemappedRows": lambda *_: (0, 0, 0, 0),
    "nvmlDeviceGetClockInfo": lambda _, __, kind: {1: 1965, 2: 3201}[kind],
    "nvmlDeviceGetMaxClockInfo": lambda _, __, kind: {1: 1980, 2: 3201}[kind],
    "nvmlDeviceGetP2PStatus": lambda nvml, one, other, cap: nvml.p2p.get((one, other, cap), 0),
}
"""Every call that kimisvc makes, by the name pynvml has for it."""


def safetensors(path: Path, *sizes: int, short: int = 0, extra: int = 0) -> Path:
    """Write a file with tensors of so many bytes, cut by `short` or longer by `extra`; sparse."""
    at, header = 0, {}
    for number, size in enumerate(sizes):
        header[f"layer.{number}"] = {
            "dtype": "U8",
            "shape": [size],
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at - short + extra)
    return path


def lfs_pointer(path: Path, size: int) -> Path:
    """Write what git leaves where git-lfs was not installed."""
    digest = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"
    )
    return path


def model(folder: Path, shards: int = 3) -> Path:
    """Write a small model folder that is whole, as hubs give it."""
    folder.mkdir(parents=True)
    names = [f"model-{n:05d}-of-{shards:05d}.safetensors" for n in range(1, shards + 1)]
    for name in names:
        safetensors(folder / name, 100, 200)
    index = {
        "metadata": {"total_size": 300 * shards},
        "weight_map": {f"layer.{n}": name for n, name in enumerate(names)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"architectures": ["KimiK25ForConditionalGeneration"]}\n')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def process(
    proc: Path, pid: int, name: str, unit: str = "", maps: str = "", title: str = ""
) -> Path:
    """Stage a process in a /proc: its command, unit, title and what it maps."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name[:15]}\n")
    (folder / "cmdline").write_bytes(f"{title or name}\0\0\0".encode())
    slice_ = f"/system.slice/{unit}" if unit else "/"
    (folder / "cgroup").write_text(f"0::{slice_}\n")
    (folder / "maps").write_text(maps)
    return folder


def mapping(path: Path) -> str:
    """Return the line of /proc/PID/maps of one who maps that file."""
    stat = path.stat()
    major, minor = stat.st_dev >> 8 & 0xFFF, stat.st_dev & 0xFF
    return f"7f0000000000-7f0000001000 rw-s 00000000 {major:02x}:{minor:02x} {stat.st_ino} {path}\n"


def pci_device(sys: Path, bus: str, **words: str) -> Path:
    """Stage a device on the bus: an NVIDIA card with its driver unless `words` say otherwise."""
    folder = sys / "bus" / "pci" / "devices" / bus
    folder.mkdir(parents=True)
    driver = words.pop("driver", "nvidia")
    told = {
        "vendor": "0x10de", "class": "0x030200", "numa_node": "0", "current_link_width": "16",
        "max_link_width": "16", "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
    } | words  # fmt: skip
    for name, word in told.items():
        (folder / name).write_text(f"{word}\n")
    if driver:
        home = sys / "bus" / "pci" / "drivers" / driver
        home.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(home)
    return folder
