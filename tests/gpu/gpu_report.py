"""Fills the tables of a page of evidence out of results.json, so that no figure is typed by hand.

    gpu_report.py results.json docs/evidence-2xh200.md

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is not there stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_bench import off_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Found = dict[str, Any]
NOT_RUN = "not run"
_TABLE = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)


def filled(page: str, found: Found) -> str:
    """Given a page and the results, return the page with every table made anew."""
    return _TABLE.sub(
        lambda mark: (
            f"{mark[1]}{TABLES[mark[2]](found)}{mark[4]}" if mark[2] in TABLES else mark[0]
        ),
        page,
    )


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Given a header and rows, return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(value: Any) -> str:
    """Given a value, return it as a cell: figures short, no bars, no line breaks."""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if value is None:
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def share(value: float | None) -> str:
    """Given a share, return it in percent."""
    return "-" if value is None else f"{100 * value:.3f} %"


def facts(found: Found, step: str) -> Found:
    """Given the results, return what a step saw; nothing if it did not run."""
    told: Found = found.get("steps", {}).get(step, {}).get("facts", {})
    return told


# ---------------------------------------------------------------- tables


def machine(found: Found) -> str:
    """The box: GPUs, driver, versions."""
    host = found.get("host", {})
    rows = [("GPU", line) for line in host.get("nvidia_smi", ())]
    rows += [(key, host.get(key)) for key in ("kernel", "systemd", "kimisvc")]
    loaded = facts(found, "2").get("history", {}).get("starts", ())
    version = next((row["vllm_version"] for row in loaded if row.get("vllm_version")), None)
    return table(
        ("what", "which"), [*rows, ("vLLM", version), ("tensor parallel", found.get("gpus"))]
    )


def steps(found: Found) -> str:
    """Which steps ran, and how long they took."""
    rows = [
        (
            name,
            told["shows"],
            begun(told.get("at", 0.0)),
            told["seconds"],
            told["ended"],
            told.get("why_not", ""),
        )
        for name, told in found.get("steps", {}).items()
    ]
    return table(("step", "what it shows", "begun (UTC)", "seconds", "ended", "why not"), rows)


def begun(at: float) -> str:
    """Given Unix time, return when a step began, to the minute: steps of several runs may be joined."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def base(found: Found) -> str:
    """Step 1: three figures of one server, and by how much they differ."""
    told = facts(found, "1")
    apply, probe, bench = (told.get(key, {}) for key in ("apply", "probe", "bench"))
    counted = told.get("counters", {})
    rows = [
        ("apply of the baseline", apply.get("verdict"), f"exit {apply.get('exit')}",
         holds(apply.get("exit") == 0 and apply.get("verdict") == "PASS", apply)),
        ("load of that start (s)", apply.get("load_s"), "", ""),
        ("the gate's figure (tok/s)", apply.get("decode_tok_s"), interval(apply), ""),
        ("probe (tok/s)", probe.get("decode_tok_s"), interval(probe), ""),
        ("the engine's own, as the probe reads it (tok/s)", probe.get("engine_decode_tok_s"),
         share(_off(probe)), within(_off(probe), 0.002)),
        ("the engine's own counters around it (tok/s)", counted.get("engine_decode_tok_s"),
         share(counted.get("off_by")), within(counted.get("off_by"), 0.002)),
        ("vllm bench serve, 1000 / mean TPOT (tok/s)", bench.get("decode_tok_s"),
         share(bench.get("off_by")), within(bench.get("off_by"), 0.005)),
        ("memory a GPU while it serves (MiB)", told.get("memory_mib"), "", ""),
    ]  # fmt: skip
    return table(("what", "seen", "interval, or off by", "as promised"), rows)


def starts(found: Found) -> str:
    """Step 2: each start of the two profiles, in order."""
    told = facts(found, "2")
    rows = [("A", "baseline", facts(found, "1").get("apply", {}))]
    rows += [("B", "Ring, LL", told.get(key, {})) for key in ("second", "second_again")]
    rows += [("A", "baseline", told.get("base_again", {}))]
    return table(
        ("", "profile", "load (s)", "decode (tok/s)", "interval", "the engine's own", "TTFT (s)",
         "verdict", "outcome"),
        [(mark, name, one.get("load_s"), one.get("decode_tok_s"), interval(one),
          one.get("engine_decode_tok_s"), one.get("ttft_s"), one.get("verdict"),
          one.get("outcome")) for mark, name, one in rows],
    )  # fmt: skip


def comparison(found: Found) -> str:
    """Step 2: what `compare` makes of these starts."""
    told = facts(found, "2").get("compare", {})
    keys = ("text", "verdict", "ratio", "low", "high", "further_starts")
    return table(("compare", "says"), [(key, told.get(key)) for key in keys])


def tune(found: Found) -> str:
    """Step 3: what tune decided for each target."""
    told = facts(found, "3")
    rows = [
        (name, target, told.get(name, {}).get("exit"), told.get(name, {}).get("seconds"),
         told.get(name, {}).get("runs"),
         told.get(name, {}).get("answer", {}).get("summary") or told.get(name, {}).get("stderr"))
        for name, target in told.get("targets", {}).items()
    ]  # fmt: skip
    return table(("target", "tok/s", "exit", "seconds", "runs afterwards", "answer"), rows)


def bad(found: Found) -> str:
    """Step 4: what became of a bad floor, a killed worker, a token NCCL rejects."""
    floor, token, kill = facts(found, "4a"), facts(found, "4c"), facts(found, "4b")
    rows = []
    for name, told in (("a floor nobody reaches", floor), ("a token NCCL rejects", token)):
        one = told.get("apply", {})
        rows.append(
            (
                name,
                one.get("outcome"),
                one.get("exit"),
                one.get("seconds"),
                one.get("reason"),
                holds(one.get("exit") == 4, one),
            )
        )
    after = kill.get("after", {})
    rows.append((f"SIGKILL for {kill.get('killed')}", "started anew and proven", "-",
                 kill.get("proven_s"), f"{after.get('verdict')}, {after.get('decode_tok_s')} tok/s",
                 holds(after.get("verdict") == "PASS", after)))  # fmt: skip
    return table(("what", "outcome", "exit", "seconds", "in its words", "as promised"), rows)


def live(found: Found) -> str:
    """Step 5: the exporter's live speed against the counters."""
    told = facts(found, "5")
    off = told.get("off_by")
    rows = [
        ("exporter (tok/s)", told.get("shown_tok_s"), ""),
        ("the engine's counters over the same windows (tok/s)", told.get("counted_tok_s"), ""),
        ("off by", share(off), within(off, 0.01)),
        ("off by at worst", share(told.get("worst_off_by")), ""),
        ("moments compared", told.get("moments"), ""),
    ]
    return table(("what", "seen", "as promised"), rows)


def stop(found: Found) -> str:
    """Step 6: what a stop left."""
    told = facts(found, "6").get("stop", {})
    keys = (
        "exit", "seconds", "result", "memory_before_mib", "memory_after_mib", "memory_free_after_s",
        "processes_before", "processes_left", "shm_left",
    )  # fmt: skip
    return table(("stop", "seen"), [(key, told.get(key)) for key in keys])


def trials(found: Found) -> str:
    """Step 6: which directives CUDA works under."""
    told = facts(found, "6").get("trials", {})
    rows = [(name, one.get("well"), _first_error(one)) for name, one in told.items()]
    exposure = facts(found, "6").get("security", {}).get("exposure")
    return table(("tried on top of what ships", "CUDA, NCCL and a compiled kernel work", "else"), [
        *rows, ("systemd-analyze security", exposure, ""),
    ])  # fmt: skip


TABLES: dict[str, Callable[[Found], str]] = {
    "machine": machine, "steps": steps, "base": base, "starts": starts, "comparison": comparison,
    "tune": tune, "bad": bad, "live": live, "stop": stop, "trials": trials,
}  # fmt: skip


# ---------------------------------------------------------------- parts


def interval(told: Found) -> str:
    """Given an answer with a figure, return its interval."""
    low, high = told.get("decode_tok_s_low"), told.get("decode_tok_s_high")
    return "" if low is None or high is None else f"{low:.4g} to {high:.4g}"


def _off(told: Found) -> float | None:
    client, engine = told.get("decode_tok_s"), told.get("engine_decode_tok_s")
    return off_by(client, engine) if client and engine else None


def within(off: float | None, most: float) -> str:
    """Given a difference and what was promised, say whether it holds."""
    return NOT_RUN if off is None else f"{cell(off <= most)} (at most {100 * most:g} %)"


def holds(is_so: bool, told: Found) -> bool | str:  # noqa: FBT001 - it is the finding itself
    """Given a finding and what it is of, return it; "not run" if there is nothing."""
    return is_so if told else NOT_RUN


def _first_error(one: Found) -> str:
    told = [rank.get("error", "") for rank in one.get("ranks", {}).values()]
    words = next(filter(None, [*told, one.get("error"), one.get("stderr")]), "")
    return (words.strip().splitlines() or [""])[-1][:200]


def main() -> int:
    """Fill the page in place."""
    results, page = Path(sys.argv[1]), Path(sys.argv[2])
    page.write_text(filled(page.read_text(), json.loads(results.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
