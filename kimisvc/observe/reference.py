"""The reference of metrics, docs/metrics.md, made from the tables."""

from __future__ import annotations

from kimisvc.host.vllm_contract import CONTRACT, FORMER, LOOKED_AT
from kimisvc.observe.families import FAMILIES

_HEAD = """# Metrics

Made from `kimisvc/observe/families.py` and `kimisvc/host/vllm_contract.py`; do not edit.

`kimisvc exporter` serves these for all instances on one box; all but `kimisvc_exporter_info{version}`
have the label `instance`. It also shows its own `process_*`. Times are in seconds, moments in Unix
time. What is not known has no sample: nothing stale is shown, and no invented 0. So an alert has to
fire on absence, too.

| metric | type | labels | |
|---|---|---|---|
| `kimisvc_exporter_info` | gauge | version | The version of this exporter. |
"""
_CONTRACT = """
## What is needed of vLLM

vLLM's own series are scraped from vLLM. Rules and dashboard need these; each running server is held
against the list, and `kimisvc_metric_contract_broken{metric}` names what it does not print (all of
them under `--disable-log-stats`). The gate of each start looks too, without an exporter: what is not
there is a note beside its verdict, as `apply` and `status` show it.

vLLM {versions} print all of them, under these names.

| series | needed for |
|---|---|
"""
_FORMER = """
Older ones printed others in their place. A server that lacks one of the series above and prints one
of these is too old for the rules; one that prints neither may be newer than this kimisvc.

| former name | became of it | now |
|---|---|---|
"""


def reference() -> str:
    """Return the text of docs/metrics.md."""
    rows = [
        f"| `{one.name}` | {one.kind.value} | {', '.join(one.labels)} | {one.help} |"
        for one in FAMILIES
    ]
    needed = [f"| `{one.name}` | {one.needed_for} |" for one in CONTRACT]
    former = [f"| `{one.name}` | {one.ended} | `{one.now}` |" for one in FORMER]
    contract = _CONTRACT.format(versions=", ".join(LOOKED_AT), metric="{metric}")
    parts = ((_HEAD, rows), (contract, needed), (_FORMER, former))
    return "".join(head + "\n".join(lines) + "\n" for head, lines in parts)
