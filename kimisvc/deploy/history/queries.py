"""What is asked of the history, as SQL: columns in the order of the rows they become."""

from __future__ import annotations

START = (
    "SELECT invocation, generation, profile, model, started_at, ready_at, load_s, vllm_version,"
    " facts, sequence FROM starts"
)
VERDICT = (
    "SELECT record, sequence, invocation, generation, profile, at, verdict, reason, decode_tok_s,"
    " decode_low, decode_high, ttft_s, engine_decode_tok_s, floor, goal, notes, accepted"
    " FROM verdicts"
)
APPLY = (
    "SELECT at, ended_at, generation, previous, profile, actor, restarted, outcome, exit,"
    " sequence FROM applies"
)
ROLLBACK = "SELECT at, from_generation, to_generation, reason, sequence FROM rollbacks"
CANARY_COLUMNS = (
    "at, invocation, generation, profile, result, decode_tok_s, low, high, ttft_s, reason, sequence"
)
BENCH_COLUMNS = (
    "at, invocation, generation, profile, concurrency, completed, failed, output_throughput,"
    " request_throughput, mean_ttft_ms, p99_ttft_ms, mean_tpot_ms, p99_tpot_ms, mean_itl_ms,"
    " p99_itl_ms, facts, sequence"
)
RESTS_ON = (
    "coalesce((SELECT to_generation FROM rollbacks WHERE from_generation = applies.generation"
    " AND from_generation IS NOT to_generation AND sequence > applies.sequence"
    " ORDER BY sequence LIMIT 1), generation)"
)
"""The generation on whose gate it rests how an apply ends: its own, or what it was rolled back to."""
NEWEST = "(SELECT max(sequence) FROM verdicts WHERE {})"
"""The newest of the verdicts that are meant: in braces, which these are."""
OF_START = "invocation = s.invocation"
MEASURED = "EXISTS (SELECT 1 FROM samples WHERE samples.record = verdicts.record)"
HAS_A_SAY = f"({MEASURED} OR verdict = 'FAIL')"
"""A gate that was cut off or came to no run says nothing of the runs before it; one that found
a wrong answer does."""
FIGURES = (
    "SELECT s.invocation, v.generation, v.profile, s.started_at, v.verdict, s.model,"  # noqa: S608 - constants
    f" s.vllm_version, s.facts, s.sequence, v.sequence = "
    f"{NEWEST.format(f'{OF_START} AND {MEASURED}')},"
    " m.decode_tok_s, m.prompt_tokens"
    " FROM verdicts v JOIN starts s ON s.invocation = v.invocation"
    " JOIN samples m ON m.record = v.record"
    " WHERE {} ORDER BY s.sequence, s.rowid, m.run"
)
"""In braces, which verdicts are meant, one of a start at most. A start can be kept while its
gate changes: whose figures these are, the verdict says and not the start."""
OF_PROFILE = (
    "from_generation IN (SELECT generation FROM applies WHERE profile = ?"
    " UNION SELECT generation FROM starts WHERE profile = ?)"
)
CANARY_COUNTS = (
    "SELECT result, sum(count) FROM (SELECT result, count(*) AS count FROM canaries GROUP BY result"
    " UNION ALL SELECT result, count FROM canaries_gone) GROUP BY result"
)
CANARY = f"SELECT {CANARY_COLUMNS} FROM canaries"  # noqa: S608 - a constant
BENCH = f"SELECT {BENCH_COLUMNS} FROM benches"  # noqa: S608 - a constant
