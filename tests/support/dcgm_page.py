"""Pages of dcgm-exporter for one GPU: written by hand, not captured. No GPU was there to ask.

Format and labels are those of internal/pkg/rendermetrics/render_metrics.go of
https://github.com/NVIDIA/dcgm-exporter, names and units those of its
etc/default-counters.csv. Release 4.8.3 called the label Hostname hostname, and
4.9.0 called the fields as DCGM 4.7 does, in base units
(https://docs.nvidia.com/datacenter/dcgm/latest/release-notes/dcgm-exporter.html;
DCGM's own names: .../latest/reference/field-identifiers.html). Not all fields of the
default are here: those that the dashboard draws, and a few beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Names(Enum):
    """By which release the fields are called."""

    BEFORE_4_9 = "before 4.9.0"
    SINCE_4_9 = "since 4.9.0"


@dataclass(frozen=True, slots=True)
class Field:
    """A field under both names, and what the same GPU would say under each; further labels of its own."""

    before: str
    value: float
    since: str
    value_since: float
    words: str
    kind: str = "gauge"
    labels: str = ""


MIB = 2**20
NO_ERROR = ',err_code="0",err_msg="No Error"'
FIELDS = (
    Field("DCGM_FI_DEV_SM_CLOCK", 1980, "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1980e6, "Clock of the SMs."),
    Field("DCGM_FI_DEV_GPU_TEMP", 41, "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 41, "Temperature."),
    Field("DCGM_FI_DEV_POWER_USAGE", 402.5, "DCGM_FI_DEV_BOARD_POWER_WATTS", 402.5, "Power drawn."),
    Field(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 31_035_686_000,
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 31_035_686, "Energy since the driver was loaded.",
        "counter",
    ),
    Field("DCGM_FI_DEV_GPU_UTIL", 87, "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.87, "How busy it is."),
    Field("DCGM_FI_DEV_FB_FREE", 8_192, "DCGM_FI_DEV_FB_FREE_BYTES", 8_192 * MIB, "Memory left."),
    Field("DCGM_FI_DEV_FB_USED", 135_000, "DCGM_FI_DEV_FB_USED_BYTES", 135_000 * MIB, "Memory used."),
    Field(
        "DCGM_FI_DEV_XID_ERRORS", 0, "DCGM_FI_DEV_XID_ERROR", 0, "The last XID.", labels=NO_ERROR
    ),
)  # fmt: skip


def named(field: Field, names: Names) -> tuple[str, float]:
    """Given a field, return its name and its value in a release."""
    if names is Names.BEFORE_4_9:
        return field.before, field.value
    return field.since, field.value_since


def page(names: Names) -> str:
    """Given the names, return the page of a box with one GPU."""
    label, version = (
        ("Hostname", "DCGM_FI_DRIVER_VERSION")
        if names is Names.BEFORE_4_9
        else ("hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION")
    )
    labels = (
        'gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000",pci_bus_id="00000000:19:00.0",'
        f'device="nvidia0",modelName="NVIDIA H200",{label}="box",{version}="580.126.09"'
    )
    lines = []
    for field in FIELDS:
        name, value = named(field, names)
        lines += [
            f"# HELP {name} {field.words}",
            f"# TYPE {name} {field.kind}",
            f"{name}{{{labels}{field.labels}}} {value:.6f}",
        ]
    return "\n".join([*lines, ""])


NAMES = frozenset(named(field, names)[0] for field in FIELDS for names in Names)
"""All names on both pages."""
