"""The real vLLM in the chain: hung, slowed and killed in turn, while stand-ins have their troubles.

In this order, because what is killed need not be loaded again for its alert to
end, and because a request that hung has decoded for a minute, which is what the
rule asks for before it calls anything slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from monitoring import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitoring import Monitoring
    from stage import Stage

REAL = "real"
FLOOR = 4
"""tok/s. Two cores give 40, and 10 to 15 while others use them; what is slowed gives 1 or 2."""
TOKENS = 8
"""Of a request of the caller: few, because only requests that finished tell of a speed."""
PROFILE = f"""schema = 1
extends = "cpu_smollm2.toml"
name = "{REAL}"

[service]
instance = "{REAL}"
starts = 1
restart_delay = "1s"
stop_timeout = "5s"

[vllm]
port = %d

[probe]
max_tokens = 16

[gate]
decode_tok_s = ">{FLOOR}~{2 * FLOOR}"
"""
ENGINE = "'^VLLM::'"
"""Names of the engine's processes: VLLM::EngineCore and VLLM::Worker. That of the API server is vllm."""


@dataclass(frozen=True)
class Turn:
    """What has to hold first (PromQL), the cause, the one alert that it raises, what ends it."""

    first: str
    cause: str
    alert: str
    cure: str


HANGS = Turn(
    f'kimisvc_decode_tokens_per_second{{instance="{REAL}"}} > 0',
    # In the middle of a request: an engine that stops between two has counted none as running.
    f"""
    while pkill -STOP {ENGINE}; sleep 1
        ! curl -s 127.0.0.1:$PORT/metrics | grep -q '^vllm:num_requests_running.* 1.0$'
    do pkill -CONT {ENGINE}; sleep 0.1; done""",
    "KimisvcEngineStalled",
    f"pkill -CONT {ENGINE}",
)
IS_SLOW = Turn(
    # The request that hung brought the mean under the floor; at full speed it is over it again after
    # a few seconds, long before the alert.
    f'kimisvc_decode_tokens_per_second{{instance="{REAL}"}} > 0',
    # Where cgroup2 has no cpu controller (hybrid hosts), systemd takes the quota and nothing
    # enforces it: then the engine's processes are stopped and continued, as a quota does. Nice:
    # else what has just been continued keeps the one that stops it waiting.
    f"""
    mkdir -p $FILE.d; printf '[Service]\\nCPUQuota=15%%\\n' > $FILE.d/slow.conf
    systemctl daemon-reload
    [ -e /sys/fs/cgroup/system.slice/$UNIT/cpu.max ] ||
        systemd-run --unit=quota --nice=-20 -p "ExecStopPost=pkill -CONT {ENGINE}" bash -c "
            while :; do pkill -STOP {ENGINE}; sleep 1.5; pkill -CONT {ENGINE}; sleep 0.01; done" """,
    "KimisvcDecodeUnderFloor",
    "rm -r $FILE.d; systemctl daemon-reload; systemctl stop quota.service",
)
DIES = Turn(
    f'kimisvc_ready{{instance="{REAL}"}} == 1',
    # systemd starts it again, which wakes nobody; that start dies, too, and was the last one.
    f"""
    pkill -KILL {ENGINE}; while systemctl is-active -q $UNIT; do sleep 0.1; done
    until systemctl is-failed -q $UNIT; do systemctl kill --signal=KILL $UNIT; sleep 0.2; done""",
    "KimisvcServiceDown",
    "systemctl reset-failed $UNIT; systemctl start $UNIT",
)
TURNS = (HANGS, IS_SLOW, DIES)


def take_turns(
    monitoring: Monitoring,
    stage: Stage,
    sh: Callable[[str], None],
    call: Callable[[], None],
) -> None:
    """Apply, have somebody use it, and take it through all turns; each has to raise its alert alone."""
    path = f"/etc/kimisvc/{REAL}.toml"
    stage.sandbox.write(path, PROFILE % stage.port)
    status, answer = stage.apply(path)
    assert (status, answer["verdict"]) == (0, "PASS"), answer
    call()

    def alerts() -> set[str]:
        return {alert for alert, instance in monitoring.alerts() if instance == REAL}

    for turn in TURNS:
        until(partial(monitoring.query, turn.first), bool, turn.first)
        seen = alerts()
        assert seen == set(), f"before {turn.alert}: {seen}"
        sh(turn.cause)
        seen = until(alerts, bool, turn.alert)
        assert seen == {turn.alert}, f"in the place of {turn.alert}: {seen}"
        sh(turn.cure)
        until(alerts, lambda now: not now, f"{turn.alert} ends")
