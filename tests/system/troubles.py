"""The troubles of the chain: what an operator should be told of, by which alert, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOW, LAME = "/etc/kimisvc/slow.json", "/etc/kimisvc/lame.json"
LATE, STUCK = "/etc/kimisvc/late.json", "/etc/kimisvc/stuck.json"
SCRIPTS = {SLOW: {"decode_tok_s": 200}, LAME: {"decode_tok_s": 100}, LATE: {}, STUCK: {}}
"""What one instance each plays at first, and can be changed."""
OWN = "/opt/standin/bin/vllm-down"
"""An executable of one instance's own, that can be taken away."""
UNSCRAPED = "unscraped"
"""Prometheus is told to forget its vLLM, which is done on no instance."""


CANARY = {"every": "10s", "max_tokens": 2}
"""So few tokens that the rules over everybody's requests have nothing to say (under 200)."""
TIMER = "${UNIT%.service}-canary.timer"
GROUNDED = f"systemctl stop {TIMER}"
GATE = "${UNIT%.service}-gate.service"


def main(signal: str) -> str:
    return f"systemctl kill --kill-whom=main --signal={signal} $UNIT"


def speed(script: str, tokens: int) -> str:
    return f"echo '{{\"decode_tok_s\": {tokens}}}' > {script}; {main('HUP')}"


def while_it_loads(script: str, seconds: int, then: str) -> str:
    """Start it anew with a load of so many seconds, and do that as soon as its gate is at work."""
    return f"""
    echo '{{"load_seconds": {seconds}}}' > {script}; systemctl restart $UNIT
    until [ "$(systemctl is-active {GATE})" = activating ]; do sleep 0.1; done
    {then}"""


@dataclass(frozen=True)
class Trouble:
    """What an operator should be told: a cause, the alerts it has to raise, what ends them."""

    instance: str
    alerts: frozenset[str]
    cause: str
    cure: str = ""
    script: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: int = 0
    """Tokens of the requests that somebody makes one after the other; 0: nobody."""
    keeps: frozenset[str] = frozenset()
    """Alerts over the last hour or more, which outlast the cure."""


def _alerts(*names: str) -> frozenset[str]:
    return frozenset(f"Kimisvc{name}" for name in names)


RESTART = "systemctl reset-failed $UNIT; systemctl restart $UNIT"
TROUBLES = (
    Trouble("well", _alerts(), "true", calls=64),
    Trouble("still", _alerts(), "true"),
    Trouble(
        "down", _alerts("ServiceDown"), f"mv {OWN} {OWN}.away; {main('KILL')}",
        f"mv {OWN}.away {OWN}; {RESTART}", sections={"vllm": {"executable": OWN}},
        keeps=_alerts("RestartLoop"),  # systemd tried until it gave up
    ),
    Trouble("hung", _alerts("VllmTargetDown"), main("STOP"), main("CONT")),
    Trouble("stalled", _alerts("EngineStalled"), main("USR2"), RESTART, calls=64),
    Trouble(
        "slow", _alerts("DecodeUnderFloor"), speed(SLOW, 20), speed(SLOW, 1500),
        script={"script": SLOW}, calls=40,
    ),
    Trouble(  # slow, and nobody uses it
        # Its gate asks for few tokens, too, but slow ones, so that a busy machine leaves no doubt.
        "lame", _alerts("CanarySlow"), speed(LAME, 10), speed(LAME, 100), script={"script": LAME},
        sections={"canary": CANARY, "probe": {"max_tokens": 24}, "gate": {"decode_tok_s": ">25~30"}},
    ),
    Trouble(  # stalled, and nobody uses it
        "wedged", _alerts("CanaryFailed"), main("USR2"), RESTART, sections={"canary": CANARY},
    ),
    Trouble(
        "unwatched", _alerts("CanarySilent", "UnitDrift"), GROUNDED,
        f"systemctl start {TIMER}", sections={"canary": CANARY},
    ),
    Trouble(
        "edited", _alerts("UnitDrift"), "sed -i.away 's/^Nice=.*//; $ a # edited' $FILE",
        "mv $FILE.away $FILE",
    ),
    Trouble(  # The gate hangs and judges nothing; its own deadline is far off, because of the probe's.
        "stuck", _alerts("LoadStuck"),
        while_it_loads(STUCK, 600, f"systemctl kill --kill-whom=main --signal=STOP {GATE}"),
        f"echo '{{}}' > {STUCK}; systemctl restart $UNIT",
        script={"script": STUCK}, sections={"probe": {"timeout": "2min"}},
    ),
    Trouble(  # There is a verdict, on the start before.
        "unjudged", _alerts("GateStale"),
        while_it_loads(LATE, 15, f"systemctl stop {GATE}"), f"systemctl restart {GATE}",
        script={"script": LATE},
    ),
    Trouble(UNSCRAPED, _alerts("VllmNotScraped"), "true"),
    Trouble(
        "mute", _alerts("MetricContractBroken", "GateInconclusive"), "true",
        "systemctl disable --now $UNIT", script={"log_stats": False, "fault": "no_usage"},
    ),
    Trouble(
        "wrong", _alerts("GateFailed"), "true", "systemctl disable --now $UNIT",
        script={"default_answer": "Atlantis."}, sections={"service": {"on_fail": "keep"}},
    ),
)  # fmt: skip
OF_A_GATE = _alerts("GateFailed", "GateInconclusive")
ENDING = {(alert, t.instance) for t in TROUBLES for alert in t.alerts}
KEPT = {(alert, t.instance) for t in TROUBLES for alert in t.keeps} | {
    ("KimisvcRolledBack", "story")
}
_EXPORTER = "127.0.0.1:9464"
BLIND, GONE = ("KimisvcNoData", _EXPORTER), ("KimisvcExporterDown", _EXPORTER)
"""Alerts about the exporter: it finds no instance; it does not answer."""
