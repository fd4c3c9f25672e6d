"""The journal: what journalctl writes is read, and vLLM's words become progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from host_support import DATA
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.host.journal import (
    Journal,
    ShardProgress,
    cause,
    last_words,
    load_progress,
    message_text,
    parse_entries,
)

if TYPE_CHECKING:
    from pathlib import Path

INVOCATION = "32b8438f3e184401b149627960339baf"


def captured(name: str) -> list[str]:
    with (DATA / name).open(encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")


def progress(*lines: str) -> ShardProgress | None:
    return load_progress(lines)


def bar(done: int, total: int, what: str = "safetensors checkpoint shards") -> str:
    rest = "[00:41<00:58,  1.32it/s]"
    return f"\rLoading {what}: {done * 100 // total:3d}% Completed | {done}/{total} {rest}"


# ------------------------------------------------------------------ progress


def steps(name: str) -> list[tuple[int, int, str]]:
    """Read a captured start line by line, as a gate that looks often would see it."""
    seen: list[tuple[int, int, str]] = []
    known: ShardProgress | None = None
    for line in captured(name):
        known = load_progress((line,), known)
        if known is not None and (not seen or seen[-1] != (known.done, known.total, known.detail)):
            seen.append((known.done, known.total, known.detail))
    return seen


def test_a_captured_start_of_vllm_0_32() -> None:
    assert steps("load-0.32.0.log") == [
        (0, 0, "initialising the engine"),
        (0, 0, "loading weights"),
        (0, 1, "loading weights"),
        (1, 1, "loading weights"),
        (1, 1, "weights loaded"),
        (1, 1, "warming up the engine"),
        (1, 1, "engine initialised"),
        (1, 1, "starting the server"),
    ]


def test_a_captured_start_of_vllm_0_24_on_gpus() -> None:
    assert steps("load-0.24.0.log") == [
        (0, 0, "loading weights"),
        (0, 0, "weights loaded"),
        (0, 0, "compiling"),
        (0, 0, "compiled"),
        (0, 0, "warming up the engine"),
        (0, 0, "capturing CUDA graphs"),
        (0, 0, "engine initialised"),
        (0, 0, "starting the server"),
    ]


def test_nothing_is_known_before_vllm_speaks() -> None:
    assert progress() is None
    assert progress("Started kimisvc-kimi.service", "") is None


def test_several_steps_of_the_bar_in_one_line() -> None:
    line = bar(25, 64) + bar(26, 64) + "\n"
    assert progress(line) == ShardProgress(26, 64, "loading weights")


@pytest.mark.parametrize(
    "what",
    [
        "safetensors checkpoint shards",
        "pt checkpoint shards",
        "safetensors using Runai Model Streamer",
        "safetensors using Fastsafetensor loader",
    ],
)
def test_every_loader_has_the_same_bar(what: str) -> None:
    assert progress(bar(26, 64, what)) == ShardProgress(26, 64, "loading weights")


def test_lines_of_slower_workers_do_not_turn_it_back() -> None:
    known = progress(bar(26, 64), "(Worker_TP0 pid=1) INFO Loading weights took 7.6 seconds")
    assert known == ShardProgress(26, 64, "weights loaded")
    assert load_progress((bar(20, 64),), known) == known


def test_a_draft_model_begins_a_new_count() -> None:
    known = progress(bar(64, 64), "Loading weights took 7.6 seconds")
    assert load_progress((bar(0, 2),), known) == ShardProgress(0, 2, "loading weights")


def test_disabled_compilation_is_not_compiling() -> None:
    line = captured("load-0.32.0.log")[0]
    assert "torch.compile" in line
    assert progress(line) is None


@given(st.lists(st.tuples(st.integers(0, 64), st.sampled_from(["pt checkpoint shards", "x"]))))
def test_the_count_never_goes_back(shards: list[tuple[int, str]]) -> None:
    known = None
    best = 0
    for done, what in shards:
        known = load_progress((bar(done, 64, what),), known)
        best = max(best, done)
        assert known == ShardProgress(best, 64, "loading weights")


# ------------------------------------------------------------------ entries


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([13, 76, 111, 97, 100], "\rLoad"),
        ([0xE2, 0x96, 0x88, 0xFF], "█\ufffd"),
        ([], ""),
        (["first", "second"], "first second"),
        (["first", [65, 66], None], "first AB "),
        ([300, -1], " "),
        (3, ""),
    ],
)
def test_a_message_in_all_its_forms(message: object, text: str) -> None:
    assert message_text(message) == text


def test_broken_lines_are_skipped() -> None:
    output = b'{"MESSAGE":"a"}\n{"MESS\n\n[1]\n\xff\xfe\n{"MESSAGE":"b"}'
    assert [entry["MESSAGE"] for entry in parse_entries(output)] == ["a", "b"]


@given(st.binary())
def test_no_output_breaks_the_reader(output: bytes) -> None:
    assert isinstance(parse_entries(output), list)


# ------------------------------------------------------------------ last words


def test_the_last_words_of_a_captured_death_are_its_errors_without_frames() -> None:
    assert [w.partition("] ")[2] for w in last_words(captured("load-0.32.0.log"), 20)] == [
        "AsyncLLM output_handler failed.",
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
            " See stack trace (above) for the root cause."
        ),
    ]


def test_what_eight_workers_say_is_told_once() -> None:
    lines = [
        f"(Worker_TP{n} pid={n}) ERROR 11-30 04:09:1{n} [x.py:{n}] CUDA error: out of memory"
        for n in range(8)
    ] + [f"box:{n}:{n} [{n}] init.cc:99 NCCL WARN Cuda failure 'peer access'" for n in range(8)]
    assert last_words(lines, 20) == (lines[0], lines[8])


def test_without_errors_the_last_lines_are_the_last_words() -> None:
    assert last_words(["a", "", "b\rc", "d"], 2) == ("c", "d")


def test_warnings_and_no_words_at_all() -> None:
    warning = "WARNING 11-30 04:09:15 [x.py:1] limits like `OSError: [Errno 24]`"
    assert last_words([warning, "ValueError: bad option"], 5) == ("ValueError: bad option",)
    assert last_words([], 5) == ()
    assert last_words(["a"], 0) == ()


# ------------------------------------------------------------------ the cause

IN_WORKER = "(Worker pid=61) ERROR 11-30 03:57:42 [multiproc_executor.py:870] "
IN_ENGINE = "(EngineCore pid=50) ERROR 11-30 03:57:45 [core.py:1100] "
POINTING = [
    f"{IN_ENGINE}EngineCore failed to start.",
    f"{IN_ENGINE}Traceback (most recent call last):",
    (
        f"{IN_ENGINE}Exception: WorkerProc initialization failed due to an exception in a background"
        " process. See stack trace for root cause."
    ),
    "(EngineCore pid=50) Process EngineCore:",
    (
        "(APIServer pid=70) RuntimeError: Engine core initialization failed. See root cause above."
        " Failed core proc(s): {}"
    ),
]
"""How vLLM ends when a worker cannot start (0.15 to 0.33, multiproc_executor.py, core.py, utils.py)."""


def test_the_cause_is_what_the_worker_said_and_not_who_points_to_it() -> None:
    words = f"{IN_WORKER}RuntimeError: CUDA error: out of memory"
    lines = [f"{IN_WORKER}WorkerProc failed to start.", words, *POINTING]
    assert cause(last_words(lines, 400)) == words


def test_an_error_of_nccl_comes_with_its_first_warning() -> None:
    lines = [
        'vm:61:61 [0] graph/tuning.cc:72 NCCL WARN no protocol "XYZ"',
        "vm:61:61 [0] init.cc:999 NCCL WARN and so it goes on",
        f"{IN_WORKER}RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        *POINTING,
    ]
    assert cause(last_words(lines, 400)) == (
        'NCCL WARN no protocol "XYZ"; (Worker pid=61) ERROR 11-30 03:57:42'
        " [multiproc_executor.py:870] RuntimeError: NCCL error: invalid usage (run with"
        " NCCL_DEBUG=WARN for details)"
    )


def test_a_refused_setting_is_told_with_what_is_wrong_with_it() -> None:
    lines = [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        "  Value error, invalid literal for int() with base 10: 'XYZ' [type=value_error]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
    ]
    assert cause(last_words(lines, 400)) == lines[1].strip()


def test_who_only_points_elsewhere_is_better_than_nobody() -> None:
    assert cause(last_words(POINTING, 400)) == POINTING[-1]
    assert cause(last_words(["a", "b"], 400)) == "b"
    assert cause(()) == ""


# ------------------------------------------------------------------ the door


def program(folder: Path, script: str) -> str:
    """A journalctl that writes down its arguments and does what `script` says."""
    path = folder / "journalctl"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments\n{script}\n')
    path.chmod(0o755)
    return str(path)


def entry(message: str, cursor: str) -> str:
    return json.dumps({"MESSAGE": message, "__CURSOR": cursor})


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    first = f"cat <<'EOF'\n{entry('a', 's=1')}\n{entry('b', 's=2')}\nEOF"
    assert Journal(program(tmp_path, first)).read(INVOCATION, None) == (("a", "b"), "s=2")
    asked = (tmp_path / "arguments").read_text().split("\n")
    assert f"_SYSTEMD_INVOCATION_ID={INVOCATION}" in asked
    assert not [a for a in asked if a.startswith("--after-cursor")]
    journal = Journal(program(tmp_path, "true"))
    assert journal.read(INVOCATION, "s=2") == ((), "s=2")
    assert "--after-cursor=s=2" in (tmp_path / "arguments").read_text().split("\n")
    assert journal.trouble == ""


def test_a_forgotten_cursor_lets_reading_begin_anew(tmp_path: Path) -> None:
    journal = Journal(program(tmp_path, "echo 'Failed to seek to cursor' >&2; exit 1"))
    assert journal.read(INVOCATION, "s=9") == ((), None)
    assert journal.trouble == "Failed to seek to cursor"


def test_no_journalctl_yields_nothing_and_says_why(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "nope"))
    assert journal.read(INVOCATION, None) == ((), None)
    assert journal.tail("x.service", "") == ()
    assert "No such file" in journal.trouble


def test_a_start_without_an_invocation_is_not_asked_for(tmp_path: Path) -> None:
    assert Journal(program(tmp_path, "true")).read("", "s=1") == ((), "s=1")
    assert not (tmp_path / "arguments").exists()


def test_the_tail_prefers_errors(tmp_path: Path) -> None:
    script = f"cat <<'EOF'\n{entry('ValueError: no', 's=1')}\n{entry('bye', 's=2')}\nEOF"
    journal = Journal(program(tmp_path, script))
    assert journal.tail("kimisvc-kimi.service", "") == ("ValueError: no",)
    assert "-u\nkimisvc-kimi.service\n" in (tmp_path / "arguments").read_text()
