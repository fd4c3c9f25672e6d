"""Scenes of a start that no gate has seen ready, since it was stopped or broke: it loads, or serves."""

from __future__ import annotations

from prometheus_scenes import (
    BEGAN,
    CANARY_AT,
    CANARY_DUE,
    CANARY_FAILED,
    FAILED_ONCE,
    GATE_AT,
    GONE,
    IDLE,
    MISSING,
    NO_VLLM,
    REACHABLE,
    READY,
    REFUSED,
    SPEED,
    STALLED,
    VLLM_UP,
    Scene,
    alerts,
    always,
    at,
    became,
    traffic,
    unit,
    verdict,
)  # fmt: skip

NONE = alerts()
UNSEEN_START = {
    **verdict((0, "")),
    **unit("gate", "inactive"),
    READY: GONE,
    GATE_AT: GONE,
}
"""Its gate was stopped before it saw the server ready, and rests."""
UNSEEN_LOAD = {
    **UNSEEN_START,
    **NO_VLLM,
    VLLM_UP: at((0, 1), (20, 0), (50, 1)),
    REACHABLE: at((0, 1), (20.5, 0), (50, 1)),
    STALLED: GONE,
    MISSING: GONE,
    BEGAN: at((0, -7200), (20, 1205)),
    READY: at((0, 1), (20, 0), (21, None)),
    **verdict((0, "PASS"), (20, "")),
    **became("gate", (0, "inactive"), (20, "activating"), (21, "inactive")),
}
"""A restart at minute 20, the gate of which is stopped a minute later; it serves from minute 50 on."""

UNWATCHED = (
    Scene("its gate was stopped, and it serves", UNSEEN_START,
          ((9, NONE), (11, alerts("GateStale")), (200, alerts("GateStale")))),
    Scene("its gate was stopped while it loaded, and it serves", UNSEEN_LOAD,
          ((21, NONE), (30.5, NONE), (32, alerts("GateStale")), (49, alerts("GateStale")),
           (60, alerts("GateStale")))),
    Scene("its gate never began, and a scrape was late", {
        **UNSEEN_LOAD, READY: at((0, 1), (20, None)), VLLM_UP: at((0, 1), (20.5, 0), (50, 1)),
        **unit("gate", "failed"), BEGAN: at((0, -7200), (20.5, 1225)),
    }, ((22, NONE), (24, NONE), (29.5, NONE), (32, alerts("GateStale")), (49, alerts("GateStale")),
        (60, alerts("GateStale")))),
    Scene("its gate was stopped, and it loads for ever", {
        **UNSEEN_LOAD, VLLM_UP: at((0, 1), (20, 0)), REACHABLE: at((0, 1), (20.5, 0)),
    }, ((66, alerts("GateStale")), (70, alerts("GateStale", "VllmTargetDown")))),
    Scene("its gate was stopped, it loads for ever, and Prometheus does not ask it", {
        **UNSEEN_LOAD, VLLM_UP: GONE, REACHABLE: at((0, 1), (20.5, 0)),
    }, ((40, alerts("GateStale")), (66, alerts("GateStale")), (70, alerts("GateStale", "VllmTargetDown")))),
    Scene("its gate was stopped, it served for a while, and hangs", {
        **UNSEEN_LOAD, VLLM_UP: at((0, 1), (20, 0), (40, 1), (50, 0)),
        REACHABLE: at((0, 1), (20.5, 0), (40, 1), (50, 0)),
    }, ((49, alerts("GateStale")), (51, alerts("GateStale")), (53, alerts("GateStale", "VllmTargetDown")))),
    Scene("its gate was stopped, it served for a while, and hangs, where Prometheus does not ask it", {
        **UNSEEN_LOAD, VLLM_UP: GONE, REACHABLE: at((0, 1), (20.5, 0), (40, 1), (50, 0)),
    }, ((49, alerts("GateStale")), (51, alerts("GateStale")), (55, alerts("GateStale", "VllmTargetDown")))),
    Scene("its gate was stopped, and the exporter sees a stall", {
        **UNSEEN_START, STALLED: at((0, 0), (20, 1)), SPEED: GONE,
    }, ((20.5, alerts("GateStale")), (22, alerts("GateStale", "EngineStalled")))),
    Scene("its gate was stopped, and one stream is under the floor", {**UNSEEN_START, **traffic(1, 39)},
          ((9, NONE), (15, alerts("GateStale", "DecodeUnderFloor")))),
    Scene("its gate was stopped, and it is wedged while nothing counts as running", {
        **FAILED_ONCE, **UNSEEN_START,
    }, ((65, alerts("GateStale")), (72, alerts("GateStale", "CanaryFailed")))),
    Scene("its gate was stopped, and canaries fly no more", {
        **UNSEEN_START, CANARY_DUE: always(630),
    }, ((19, alerts("GateStale")), (22, alerts("GateStale", "CanarySilent")))),
    Scene("its gate was stopped, and vLLM is not scraped", {**UNSEEN_START, **NO_VLLM, VLLM_UP: GONE},
          ((9, NONE), (11, alerts("GateStale", "VllmNotScraped")))),
    Scene("a canary failed, and of the start anew the gate was stopped", {
        **UNSEEN_LOAD, CANARY_FAILED: at((0, 0), (10, 1)), CANARY_AT: at((0, 0), (55, 3300)),
        **IDLE, **NO_VLLM, CANARY_DUE: always(50000),
    }, ((15, alerts("CanaryFailed")), (24, NONE), (40, alerts("GateStale")), (57, alerts("GateStale")))),
    Scene("the gate failed it at the deadline, and nothing is about to take its place", {
        **REFUSED, **verdict((0, "FAIL")), **unit("gate", "failed"), READY: always(0), GATE_AT: GONE,
    }, ((30, alerts("GateFailed")),)),
)  # fmt: skip
