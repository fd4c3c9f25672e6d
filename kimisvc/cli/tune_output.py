"""How a search is told: its summary for people, JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json

if TYPE_CHECKING:
    from kimisvc.deploy.tune.meanwhile import Stopped
    from kimisvc.deploy.tune.state import TrialRow, TuneState


def tell(state: TuneState, form: Form, halted: Stopped | None = None) -> int:
    """Given a search, print it, and return the status its command ends with (0: not ended).

    `halted`: nobody carries it on, for this reason.
    """
    from kimisvc.deploy.tune.summary import summary

    why = f"{halted.words}: {halted.hint}" if halted and not state.ended else ""
    emit_json(tune_json(state, why)) if form is Form.JSON else click.echo(summary(state, why))
    return state.ended.exit if state.ended else 0


def tune_json(state: TuneState, stopped: str = "") -> dict[str, Any]:
    """Given a search, return its JSON object: what was asked, tried, spent, and how it ended.

    `stopped` says why nobody carries it on, where it is not at its end.
    """
    from kimisvc.deploy.tune.summary import summary

    ended = state.ended
    return {
        "instance": state.instance,
        "begun_at": state.begun_at,
        "ended_at": ended.at if ended else None,
        "target": state.asked.target or None,
        "search": state.asked.search.name.lower().replace("_", "-"),
        "max_risk": state.asked.max_risk.value,
        "candidates": [
            {"name": one.name, "risk": one.risk.value, "differences": one.differences}
            for one in state.candidates
        ],
        "trials": [_trial_json(trial) for trial in state.trials],
        "pending": state.pending.candidate if state.pending else None,
        "stopped": stopped or None,
        "spent_s": state.spent_s,
        "restoring_s": state.restoring_s,
        "why": ended.why if ended else None,
        "winner": (ended.winner or None) if ended else None,
        "left": ended.left if ended else None,
        "exit": ended.exit if ended else None,
        "summary": summary(state, stopped),
    }


def _trial_json(trial: TrialRow) -> dict[str, Any]:
    speed = trial.decode_tok_s
    return {
        "candidate": trial.candidate, "at": trial.at, "seconds": trial.seconds,
        "verdict": trial.verdict.value, "reason": trial.reason, "outcome": trial.outcome,
        "generation": trial.generation, "further_runs": trial.further_runs,
        "decode_tok_s": speed.mean if speed else None,
        "decode_tok_s_low": speed.low if speed else None,
        "decode_tok_s_high": speed.high if speed else None,
    }  # fmt: skip
