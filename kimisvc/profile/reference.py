"""The page of all keys, made from the table of settings so that it cannot drift from it."""

from __future__ import annotations

from kimisvc.profile.nearest import header
from kimisvc.profile.settings import TABLES
from kimisvc.profile.values import rule_of, toml

_QUANTITIES = """
A **duration** is written as systemd writes a time span, in quotes: `"45min"`, `"2h 30min"`,
`"1.5h"`, `"500ms"`; the units are us, ms, s, min, h, d and w. A plain number is seconds: `90` is
`"90s"`, so `10` is not ten minutes.

A **size** is a number and its unit, in quotes: `"600 GiB"`, `"1.5 TiB"`, `"512M"`. K, M, G and T
are short for KiB, MiB, GiB and TiB, in steps of 1024; B is bytes. GB and its like are refused,
for they may mean either, and so is a number without a unit, but for `0`.

A **speed target** is `">FLOOR~GOAL"` in tokens per second, in quotes. `">40~50"`: under 40 fails,
50 or more passes, and what lies between is let through but called degraded. `">20"` is floor and
goal at once, `">20~20"`: it passes or fails, with no zone of warning between.
"""
"""How values are written that TOML has no form for; by `quantities`."""

_FREE = """
## [args]

Any option of `vllm serve`, without its dashes: `max-model-len = 2048`. `true` gives the option
alone, `false` its `no-` form; an inline table becomes JSON.

## [env]

Environment variables of vLLM, as strings. Whole numbers may stand without quotes. No secrets:
they belong in the file that `secrets_file` names.

The box is read-only to the service but for its own cache, `/var/cache/kimisvc/INSTANCE`, where
everything is kept unless a key says otherwise. A folder that a variable or an option names for
writing (`HF_HOME`, `VLLM_CACHE_ROOT`, `TRITON_CACHE_DIR`, `NCCL_DEBUG_FILE`, `download-dir` and
the like) is opened in the unit; it has to be there, and the user of the service has to be allowed
to write it. Nothing in `/home` or `/root` can be opened, nor what is the system's own. With
`HF_HUB_OFFLINE = "1"` it is enough that he may read a hub's cache, which has to hold the model.
"""


def reference() -> str:
    """Return the reference of all keys of a profile, as Markdown."""
    parts = ["# Keys of a profile", _QUANTITIES.rstrip(), ""]
    for table, rows in TABLES.items():
        parts.append(f"\n## {header(table).capitalize() if not table else header(table)}\n")
        parts.append("| key | meaning | takes | default | example |")
        parts.append("|---|---|---|---|---|")
        for row in rows.values():
            default = (
                "required"
                if row.required
                else ""
                if row.default in (None, "")
                else f"`{toml(row.default)}`"
            )
            cells = (f"`{row.key}`", row.help, rule_of(row), default, f"`{row.example}`")
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n" + _FREE
