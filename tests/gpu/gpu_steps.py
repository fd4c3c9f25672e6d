"""The steps of the evidence: each does one thing with the product and writes down what it saw.

A step raises NotSo where what follows would make no sense, and what it saw is kept; whether its figures
are as promised is for `gpu_report` to say, out of the same facts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpu_bench import NotSo, off_by, total
from gpu_place import BASE, FLOOR, POISONED, REFUSED, SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_bench import Bench

LOAD = 400.0
"""The longest that an apply with one load may take (s): the first compiles for three minutes."""
RELOAD = 240.0
INCONCLUSIVE = 6
STREAM_S = 62.0
"""How long the stream of the live step lasts, about (s)."""
EXPORTER = "http://127.0.0.1:9464/metrics"
LIVE = "kimisvc_decode_tokens_per_second"
WINDOW_S = 30.0
"""The exporter's speed is a mean over so much of the past (docs/metrics.md)."""
SETTLED_S = 36.0
"""From then on (s) nothing but the stream is in that window, with a reading to spare."""

Facts = dict[str, Any]
Profiles = dict[str, "Path"]


def base(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 1: doctor, apply, probe against the engine's counters, vLLM's own benchmark."""
    done, answer = bench.ask("doctor", str(profiles[BASE]), bound=150)
    facts["doctor"] = {"exit": done.status, **answer}
    applied(bench, facts, "apply", profiles[BASE], bound=LOAD)
    if facts["apply"]["exit"] not in (0, INCONCLUSIVE):
        raise NotSo(f"the baseline does not run: {facts['apply'].get('reason')}")
    bench.figures[BASE] = facts["apply"]["decode_tok_s"]
    before = bench.engine()
    done, answer = bench.ask("probe", bound=120)
    after = bench.engine()
    client, engine = answer.get("decode_tok_s") or 0.0, after.decode_since(before)
    facts["probe"] = {"exit": done.status, **answer}
    facts["counters"] = {"engine_decode_tok_s": engine, "off_by": off_by(client, engine)}
    facts["memory_mib"] = bench.memory()
    facts["processes"] = bench.processes()
    facts["bench"] = _vllm_bench(bench, client)


def live(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 5: the exporter's live speed during one stream, against the engine's counters."""
    del profiles
    done = bench.call(bench.kimisvc, "exporter", "--install", "--json", bound=60)
    facts |= {"install": {"exit": done.status, "stderr": done.stderr}, "samples": []}
    bench.until(lambda: _exporter_up(bench), "the exporter answers", 30)
    speed = bench.figures.get(BASE, 55.0)
    ended = threading.Event()
    stream = threading.Thread(target=_stream, args=(bench, round(speed * STREAM_S), ended))
    begun = time.monotonic()
    stream.start()
    counted = []
    while not ended.is_set() and time.monotonic() < begun + 3 * STREAM_S:
        counters = bench.engine()
        shown = bench.page(EXPORTER).get(LIVE)
        counted.append(counters)
        at = counters.at - begun
        facts["samples"].append([at, counters.tokens, shown[0][1] if shown else None])
        ended.wait(1.0)
    stream.join(10)
    facts["seconds"] = time.monotonic() - begun
    facts.update(compared(facts["samples"]))
    facts["scrape"] = sorted(name for name in bench.page(EXPORTER) if name.startswith("kimisvc"))


def pair(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 2: the second profile twice, the first once more: with step 1 that is A B B A."""
    applied(bench, facts, "second", profiles[SECOND], bound=RELOAD)
    bench.figures[SECOND] = facts["second"]["decode_tok_s"]
    facts["memory_mib"] = bench.memory()
    restarted(bench, facts, "second_again", profiles[SECOND])
    applied(bench, facts, "base_again", profiles[BASE], bound=RELOAD)
    done, answer = bench.ask("compare", BASE, SECOND, bound=60)
    facts["compare"] = {"exit": done.status, "stderr": done.stderr[-2000:], **answer}
    done, facts["history"] = bench.ask("history", "-n", "200", bound=60)


def tune(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 3: a target between the two profiles' figures, and one above both."""
    first, second = bench.figures.get(BASE), bench.figures.get(SECOND)
    if not first or not second:
        raise NotSo("steps 1 and 2 have measured nothing to choose targets by")
    targets = {"between": (first + second) / 2, "above": 1.2 * max(first, second)}
    facts |= {"figures": [first, second], "targets": targets}
    for name, target in targets.items():
        # Random weights are a risk that both profiles allow themselves; a search has a limit too.
        words = ("tune", "--target", f"{target:.2f}", "--max-risk", "risky")
        tried = (str(profiles[BASE]), str(profiles[SECOND]))
        done, answer = bench.ask(*words, *tried, bound=4 * RELOAD)
        facts[name] = {
            "exit": done.status, "seconds": done.seconds, "answer": answer,
            "stdout": "" if answer else done.stdout[-4000:], "stderr": done.stderr[-4000:],
            "runs": bench.status().get("profile"),
        }  # fmt: skip


def floor(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 4a: a floor nobody reaches fails, and the old profile is proven again."""
    before = bench.status()
    applied(bench, facts, "apply", profiles[FLOOR], bound=RELOAD)
    after = bench.status()
    facts["same_process"] = before.get("main_pid") == after.get("main_pid")
    facts["runs"] = {key: after.get(key) for key in ("profile", "verdict", "generation")}


def kill(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 4b: the engine's worker dies by SIGKILL; the service comes back and is gated."""
    del profiles
    before, there = bench.status(), bench.processes()
    victims = [pid for pid, title in there.items() if "Worker" in title] or [
        pid for pid, title in there.items() if "EngineCore" in title
    ]
    if not victims:
        raise NotSo(f"no worker among {there}")
    facts |= {"killed": there[victims[-1]], "of": sorted(there.values())}
    os.kill(victims[-1], signal.SIGKILL)
    facts["ended_s"] = bench.until(
        lambda: before.get("main_pid") not in bench.processes(), "the server ends", 120
    )
    facts["proven_s"] = bench.until(
        lambda: _proven_anew(bench, before), "the new start is proven", RELOAD
    )
    after = bench.status()
    keys = ("profile", "verdict", "decode_tok_s", "load_s", "unit_state")
    facts["after"] = {key: after.get(key) for key in keys}
    facts["left_behind"] = [pid for pid in there if pid in bench.processes()]


def poisoned(bench: Bench, profiles: Profiles, facts: Facts) -> None:
    """Step 4c: a token the program rejects, brought past check: fails, rolled back, and says why."""
    done, answer = bench.ask("check", str(profiles[REFUSED]), bound=60)
    facts["check"] = {"exit": done.status, **answer}
    applied(bench, facts, "apply", profiles[POISONED], bound=2 * RELOAD)
    words = bench.place.poison_words
    facts["says_why"] = words in (facts["apply"].get("reason") or "")
    after = bench.status()
    facts["runs"] = {key: after.get(key) for key in ("profile", "verdict", "generation")}
    unit = bench.place.service
    done = bench.call("journalctl", "-u", unit, "-n", "400", "--no-pager", "-o", "cat", bound=30)
    facts["journal"] = [line[:400] for line in done.stdout.splitlines() if words in line][:12]


# ---------------------------------------------------------------- parts of steps


def applied(bench: Bench, facts: Facts, name: str, profile: Path, bound: float) -> None:
    """Apply a profile and keep what came of it; raise NotSo if it gave no answer at all."""
    done, answer = bench.ask("apply", str(profile), bound=bound)
    facts[name] = {
        "exit": done.status, "seconds": done.seconds, "stderr": done.stderr[-3000:], **answer,
        "load_s": bench.status().get("load_s"),
    }  # fmt: skip
    if not answer:
        raise NotSo(f"apply of {profile.stem}: exit {done.status}, {done.stderr[-600:]}")


def restarted(bench: Bench, facts: Facts, name: str, profile: Path) -> None:
    """Load the same profile anew and keep what came of it."""
    done, answer = bench.ask("apply", str(profile), "--restart", bound=RELOAD)
    facts[name] = {
        "exit": done.status, "seconds": done.seconds, "stderr": done.stderr[-3000:], **answer,
        "load_s": bench.status().get("load_s"),
    }  # fmt: skip


def compared(samples: list[list[float | None]]) -> Facts:
    """Given moments, tokens counted and speeds shown, return both speeds and how far they differ.

    Only moments at which the whole window of the exporter lies in the stream
    count, and for each the counters over the same window.
    """
    rows = [(at or 0.0, tokens or 0.0, shown) for at, tokens, shown in samples]
    grew = [row for before, row in pairwise(rows) if row[1] > before[1]]
    pairs = []
    for at, tokens, shown in grew:
        earlier = [row for row in grew if row[0] <= at - WINDOW_S]
        if shown is None or at < SETTLED_S or not earlier:
            continue
        then = earlier[-1]
        pairs.append((shown, (tokens - then[1]) / (at - then[0])))
    if not pairs:
        return {"shown_tok_s": None, "counted_tok_s": None, "off_by": None, "moments": 0}
    shown, counted = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    return {
        "shown_tok_s": shown, "counted_tok_s": counted, "off_by": off_by(shown, counted),
        "worst_off_by": max(off_by(*pair) for pair in pairs), "moments": len(pairs),
    }  # fmt: skip


def _proven_anew(bench: Bench, before: dict[str, Any]) -> bool:
    now = bench.status()
    anew = now.get("invocation_id") not in (None, "", before.get("invocation_id"))
    return bool(anew and now.get("ready") and now.get("verdict"))


def _exporter_up(bench: Bench) -> bool:
    with contextlib.suppress(OSError):
        return total(bench.page(EXPORTER), "kimisvc_up") > 0
    return False


def _stream(bench: Bench, tokens: int, ended: threading.Event) -> None:
    """Have one stream run for so many tokens, as a client would."""
    body = {
        "model": bench.place.served, "prompt": "Count slowly from one to a thousand.",
        "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
    }  # fmt: skip
    request = urllib.request.Request(  # noqa: S310 - of this box
        f"{bench.place.url}/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            for _ in answer:
                pass
    finally:
        ended.set()


def _vllm_bench(bench: Bench, client: float) -> Facts:
    """`vllm bench serve` at concurrency 1, with the lengths of the probe; 1000 / mean TPOT."""
    where, file = bench.place, bench.folder / "vllm-bench.json"
    program = (
        str(where.executable),
        "bench",
        "serve",
        "--backend",
        "openai",
        "--base-url",
        where.url,
    )
    lengths = (
        "--dataset-name", "random", "--random-input-len", str(where.prompt_tokens),
        "--random-output-len", str(where.max_tokens), "--num-prompts", str(where.bench_prompts),
    )  # fmt: skip
    model = ("--model", where.served, "--tokenizer", where.model, "--endpoint", "/v1/completions")
    how = (
        "--max-concurrency", "1", "--ignore-eos", "--temperature", "0", "--disable-tqdm",
        "--save-result", "--result-dir", str(file.parent), "--result-filename", file.name,
    )  # fmt: skip
    home = {"HOME": str(bench.folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = bench.call(
        *program, *lengths, *model, *how, bound=150, env={**os.environ, **where.env, **home}
    )
    if done.status or not file.exists():
        return {"exit": done.status, "stderr": done.stderr[-2000:]}
    told = json.loads(file.read_text())
    figure = 1000 / told["mean_tpot_ms"]
    return {
        "exit": 0, "seconds": done.seconds, "mean_tpot_ms": told["mean_tpot_ms"],
        "decode_tok_s": figure, "off_by": off_by(client, figure), "completed": told["completed"],
    }  # fmt: skip
