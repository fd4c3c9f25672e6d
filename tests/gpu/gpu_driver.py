"""Runs the steps of the evidence on a box with GPUs and a real systemd, and leaves JSON.

    gpu_driver.py --place places/h200.toml --gpus 2 --results /results

Needs root, kimisvc installed, vLLM and the model where the place says. Every step has a bound,
goes on where another failed, and writes results.json anew, so that a run that is cut off leaves
what it had. Steps are named as `--list` shows them; what earlier runs left in the folder is kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpu_steps
from gpu_bench import Bench, NotSo
from gpu_hardening import hardening, rehearsed
from gpu_place import place, write_profiles

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
FIRST = "1"
"""The step that all later ones build on."""
PROFILES = Path("/etc/kimisvc/profiles")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it is called, what it shows, what runs it, and what it takes at least (s)."""

    name: str
    shows: str
    run: Callable[[Bench, dict[str, Path], dict[str, Any]], None]
    needs: float


STEPS = (
    Step("0", "CUDA under the directives that ship, before any load", rehearsed, 20),
    Step(
        "1", "baseline: doctor, apply, probe and engine and vLLM's benchmark", gpu_steps.base, 120
    ),
    Step("2", "NCCL Ring and LL: A B B A, compared", gpu_steps.pair, 200),
    Step("3", "tune: a target between the two, and one above both", gpu_steps.tune, 150),
    Step("4a", "a floor nobody reaches: rolled back", gpu_steps.floor, 45),
    Step("4c", "a token NCCL rejects, past check: rolled back", gpu_steps.poisoned, 150),
    Step("4b", "a worker killed: restarted, gated", gpu_steps.kill, 90),
    Step("5", "the exporter's live speed during a stream", gpu_steps.live, 75),
    Step("6", "stop leaves nothing; hardening and CUDA", hardening, 40),
)
"""In the order in which they are worth most where time is short."""


def main() -> int:
    """Run the chosen steps; 0 if each ran to its end."""
    asked = _asked()
    if asked.list:
        for step in STEPS:
            sys.stdout.write(f"{step.name}\t{step.shows}\n")
        return 0
    chosen = asked.steps.split(",") if asked.steps else [step.name for step in STEPS]
    if unknown := set(chosen) - {step.name for step in STEPS}:
        sys.stderr.write(f"no such step: {', '.join(sorted(unknown))}; see --list\n")
        return 2
    results = asked.results
    results.mkdir(parents=True, exist_ok=True)
    where = place(asked.place, asked.shipped)
    bench = Bench(where, results, asked.kimisvc, asked.gpus, time.monotonic() + asked.seconds)
    profiles = write_profiles(where, PROFILES, asked.gpus, asked.target)
    found = _kept(results / "results.json")
    bench.figures |= found.get("figures", {})
    found |= {"gpus": asked.gpus, "place": asked.place.stem, "host": _host(bench)}
    for step in STEPS:
        if step.name in chosen:
            found.setdefault("steps", {})[step.name] = _taken(step, bench, profiles)
            found["figures"] = bench.figures
            _write(results / "results.json", found)
            _keep_history(bench, results)
            if step.name == FIRST and not found["steps"][step.name]["ended"]:
                sys.stdout.write("without a baseline that runs there is nothing to go on with\n")
                break
    return 0 if all(found["steps"].get(name, {}).get("ended") for name in chosen) else 1


def _taken(step: Step, bench: Bench, profiles: dict[str, Path]) -> dict[str, Any]:
    """Take a step and return its record, whatever became of it."""
    begun, at = time.monotonic(), time.time()
    record: dict[str, Any] = {"shows": step.shows, "at": at, "ended": False, "facts": {}}
    if bench.left() < step.needs:
        record["why_not"] = f"{bench.left():.0f} s are left, {step.needs:.0f} are needed"
    else:
        try:
            step.run(bench, profiles, record["facts"])
            record["ended"] = True
        except NotSo as why:
            record["why_not"] = str(why)
        except Exception:  # noqa: BLE001 - one step's fault must not cost the others
            record["why_not"] = traceback.format_exc()[-2000:]
    record["seconds"] = time.monotonic() - begun
    words = "ended" if record["ended"] else record["why_not"].strip().splitlines()[-1]
    sys.stdout.write(f"step {step.name}: {record['seconds']:.1f} s, {words}\n")
    sys.stdout.flush()
    return record


def _host(bench: Bench) -> dict[str, Any]:
    """What the figures were taken on."""
    query = "--query-gpu=index,name,memory.total,driver_version,clocks.max.sm,power.limit"
    facts: dict[str, Any] = {
        "kernel": platform.release(),
        "kimisvc": bench.call(bench.kimisvc, "--version", bound=30).stdout.strip(),
        "systemd": bench.call("systemctl", "--version", bound=30).stdout.split("\n")[0],
    }
    if bench.gpus:
        told = bench.call("nvidia-smi", query, "--format=csv,noheader", bound=30)
        facts["nvidia_smi"] = told.stdout.splitlines()
        facts["topology"] = bench.call("nvidia-smi", "topo", "-m", bound=30).stdout
    return facts


def _keep_history(bench: Bench, results: Path) -> None:
    """Copy kimisvc's own history, so that compare can be asked again elsewhere, and the journal."""
    state = Path("/var/lib/kimisvc", bench.place.instance, "history.sqlite")
    if state.exists():
        import sqlite3

        with sqlite3.connect(state) as source, sqlite3.connect(results / state.name) as copy:
            source.backup(copy)
    told = bench.call("journalctl", "-u", "kimisvc-*", "--no-pager", "-o", "short-unix", bound=60)
    (results / "journal.txt").write_text(told.stdout[-8_000_000:])


def _kept(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: Path, value: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1))
    part.replace(path)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--place", type=Path, default=HERE / "places" / "h200.toml")
    parser.add_argument("--gpus", type=int, default=2, help="tensor parallel; 0: without a GPU")
    parser.add_argument("--target", default="", help='gate of the baseline, like ">50~54"')
    parser.add_argument("--steps", default="", help="which, like 1,5,2; all by default")
    parser.add_argument("--seconds", type=float, default=3600.0, help="when it has to be over")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--kimisvc", default="kimisvc", help="the program")
    parser.add_argument("--shipped", type=Path, default=HERE.parents[1] / "profiles")
    parser.add_argument("--list", action="store_true", help="list the steps")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
