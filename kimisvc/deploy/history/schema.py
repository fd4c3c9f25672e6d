"""The tables of the history, as the steps that lead from one version to the next.

A file is brought forward one step at a time, inside one transaction: it is
wholly of the old version or wholly of the new one. No step drops a row.
"""

from __future__ import annotations

_FIRST = """
CREATE TABLE starts (
    invocation TEXT PRIMARY KEY, generation INTEGER NOT NULL, profile TEXT NOT NULL,
    model TEXT NOT NULL, started_at REAL NOT NULL, ready_at REAL, load_s REAL, vllm_version TEXT
) STRICT;
CREATE TABLE verdicts (
    record TEXT PRIMARY KEY, sequence INTEGER NOT NULL UNIQUE,
    invocation TEXT NOT NULL REFERENCES starts,
    generation INTEGER NOT NULL, profile TEXT NOT NULL, at REAL NOT NULL,
    verdict TEXT NOT NULL, reason TEXT NOT NULL, decode_tok_s REAL, decode_low REAL,
    decode_high REAL, ttft_s REAL, engine_decode_tok_s REAL, floor REAL, goal REAL,
    notes TEXT NOT NULL, golden TEXT NOT NULL, accepted INTEGER NOT NULL
) STRICT;
CREATE TABLE samples (
    record TEXT NOT NULL REFERENCES verdicts, run INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, decode_tok_s REAL NOT NULL, ttft_s REAL NOT NULL,
    chunks INTEGER NOT NULL, engine_decode_tok_s REAL, PRIMARY KEY (record, run)
) STRICT;
CREATE TABLE applies (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, ended_at REAL, generation INTEGER NOT NULL,
    previous INTEGER, profile TEXT NOT NULL, actor TEXT NOT NULL, restarted TEXT NOT NULL,
    outcome TEXT, exit INTEGER
) STRICT;
CREATE TABLE rollbacks (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, from_generation INTEGER NOT NULL,
    to_generation INTEGER, reason TEXT NOT NULL
) STRICT;
CREATE INDEX starts_at ON starts (started_at)
"""
_SECOND = """
ALTER TABLE starts ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE starts ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
UPDATE starts SET sequence = coalesce(
    (SELECT min(v.sequence) FROM verdicts v WHERE v.invocation = starts.invocation), 0);
UPDATE starts SET sequence = coalesce(
    (SELECT 1 + max(v.sequence) FROM verdicts v JOIN starts s USING (invocation)
     WHERE s.rowid < starts.rowid), 1) WHERE sequence = 0;
CREATE TABLE canaries (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, invocation TEXT NOT NULL,
    generation INTEGER NOT NULL, profile TEXT NOT NULL, result TEXT NOT NULL,
    decode_tok_s REAL, low REAL, high REAL, ttft_s REAL, reason TEXT NOT NULL
) STRICT;
CREATE TABLE benches (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, invocation TEXT NOT NULL,
    generation INTEGER NOT NULL, profile TEXT NOT NULL, concurrency INTEGER NOT NULL,
    completed INTEGER NOT NULL, failed INTEGER NOT NULL,
    output_throughput REAL, request_throughput REAL, mean_ttft_ms REAL, p99_ttft_ms REAL,
    mean_tpot_ms REAL, p99_tpot_ms REAL, mean_itl_ms REAL, p99_itl_ms REAL, facts TEXT NOT NULL
) STRICT;
CREATE INDEX starts_sequence ON starts (sequence);
CREATE INDEX starts_model ON starts (model);
CREATE INDEX verdicts_invocation ON verdicts (invocation)
"""
_THIRD = """
CREATE TABLE canaries_gone (result TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT
"""
STEPS = (_FIRST, _SECOND, _THIRD)
"""Step N (from 0) makes version N + 1 of version N. A start got its place in the order of events
with version 2: before its first verdict; if it has none, behind the verdicts of those before it.
With version 3 canaries that are taken out are counted: what counts them may not fall."""
SCHEMA_VERSION = len(STEPS)
OF_EVERY_VERSION = ("starts", "verdicts", "samples", "applies", "rollbacks")
"""The tables that every file has; one that lacks one is damaged."""
TABLES = ("starts", "verdicts", "applies", "rollbacks", "canaries", "benches")
"""The tables whose rows have a sequence."""
NEXT = "(SELECT 1 + max({})) ".format(
    ", ".join(f"coalesce((SELECT max(sequence) FROM {table}), 0)" for table in TABLES)  # noqa: S608 - constants
)
"""SQL for the sequence of the next event."""


def statements(step: str) -> list[str]:
    """Given a step, return its statements."""
    return [statement.strip() for statement in step.split(";") if statement.strip()]
