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
FIGURES = (
    "SELECT s.invocation, s.generation, s.profile, s.started_at, v.verdict, s.model,"
    " s.vllm_version, s.facts, s.sequence, m.decode_tok_s, m.prompt_tokens"
    " FROM starts s JOIN verdicts v ON v.invocation = s.invocation"
    " AND v.sequence = (SELECT max(sequence) FROM verdicts WHERE invocation = s.invocation)"
    " JOIN samples m ON m.record = v.record"
    " WHERE (?1 IS NULL OR s.profile = ?1) AND (?2 IS NULL OR s.generation = ?2)"
    " ORDER BY s.sequence, s.rowid, m.run"
)
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
