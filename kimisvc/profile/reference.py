"""The page of all keys, made from the table of settings so that it cannot drift from it."""

from __future__ import annotations

from kimisvc.profile.nearest import header
from kimisvc.profile.settings import TABLES
from kimisvc.profile.values import rule_of, toml

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
    parts = ["# Keys of a profile\n"]
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
