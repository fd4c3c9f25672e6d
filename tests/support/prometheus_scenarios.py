"""The table of scenes: each alert fires in one at least, and is held silent near its border."""

from __future__ import annotations

from prometheus_scenes import (
    ACCEPTED,
    ANSWERED,
    CANARY_AT,
    CANARY_DUE,
    CANARY_FAILED,
    CANARY_HIGH,
    CANARY_MEASURED,
    DECODE_S,
    DRIFT,
    EXPORTER_UP,
    FAILED_ONCE,
    GATE_AT,
    GENERATION,
    GONE,
    HEALTHY,
    IDLE,
    KV_CACHE,
    LEFT,
    LOAD_BEGAN,
    MISSING,
    MOVED,
    NO_VLLM,
    PROVEN,
    REACHABLE,
    READY,
    REFUSED,
    REQUESTS,
    RESTARTS,
    RESTORED,
    RUNNING,
    SPEED,
    STALLED,
    STANDING,
    START_LIMIT,
    STARTS,
    TOKENS,
    UNKEPT,
    VLLM_UP,
    WAITING,
    WEDGED,
    Scene,
    alerts,
    always,
    at,
    became,
    every,
    growing,
    kimi,
    moments,
    refused,
    traffic,
    unit,
    verdict,
)  # fmt: skip
from prometheus_unwatched import UNWATCHED

NONE = alerts()
LOADING = {
    **REFUSED, **unit("gate", "activating"), **verdict((0, "")),
    READY: always(0), LOAD_BEGAN: always(0), CANARY_AT: always(0), GATE_AT: GONE,
}  # fmt: skip
STOPPED = {
    **REFUSED,
    **verdict((0, "")),
    **unit("gate", "inactive"),
    READY: always(0),
    GATE_AT: GONE,
}
NO_EXPORTER = {name: GONE for name in HEALTHY if name.startswith("kimisvc_")}
BURSTS = " ".join(["8", "0"] * 480)
ONE_TOKEN = {TOKENS: growing(30), REQUESTS: growing(30), DECODE_S: growing(0), SPEED: GONE}
ENDLESS = {TOKENS: always(0), REQUESTS: always(0), DECODE_S: always(0), ANSWERED: always(0)}
PREFILL = {
    RUNNING: at((0, 0), (20, 1), (80, 0)), WAITING: always(0), MOVED: always(5000), SPEED: GONE,
    KV_CACHE: "0.1+0x39 0.1+0.001x119 0+0x800",
}  # fmt: skip
OF_3_TOKENS = {
    **traffic(1, 80),
    TOKENS: growing(17.9),
    REQUESTS: growing(5.96),
    DECODE_S: growing(5.96 * 2 / 80),
}
SCENES = (
    # ------------------------------------------------------------- nothing is wrong
    Scene("healthy", fires=((5, NONE), (30, NONE), (400, NONE))),
    Scene("idle", IDLE, ((30, NONE), (400, NONE))),
    Scene("busy: each stream slower than the floor, by design", {**traffic(16, 20), WAITING: always(4)}),
    Scene("bursts of eight, whose mean over time is four", {**traffic(4, 20), RUNNING: BURSTS}),
    Scene("rare bursts, whose mean over time is under one", {
        **traffic(0.8, 20), RUNNING: " ".join(["8", *["0"] * 9] * 96), SPEED: GONE,
    }),
    Scene("requests of one token say nothing about decoding", {**IDLE, **ONE_TOKEN}),
    Scene("requests of one token, and an exporter that takes their prompts for decoding", {
        **traffic(1, 80), **ONE_TOKEN, MOVED: growing(30), SPEED: always(1),
    }, ((9, NONE), (15, NONE), (60, NONE))),
    Scene("requests of three tokens, and an exporter that takes their prompts for decoding", {
        **OF_3_TOKENS, SPEED: always(0.6),
    }, ((15, NONE), (60, NONE))),
    Scene("too few tokens to say something", {
        **traffic(1, 20), TOKENS: growing(15), DECODE_S: growing(0.7), SPEED: GONE,
    }),
    Scene("a restart by hand, of which the stop takes three minutes", {
        **became("service", (0, "active"), (20, "deactivating"), (23.5, "active")),
        **became("gate", (0, "inactive"), (20, "activating"), (50, "inactive")),
        **verdict((0, "PASS"), (20, ""), (50, "PASS")),
        **NO_VLLM, VLLM_UP: at((0, 1), (20, 0), (50, 1)), REACHABLE: at((0, 1), (20, 0), (50, 1)),
        READY: at((0, 1), (20, 0), (50, 1)), STARTS: at((0, 3), (50, 4)),
        LOAD_BEGAN: at((0, None), (23.5, 1410), (50, None)),
    }, ((21, NONE), (22.5, NONE), (23, NONE), (25, NONE), (40, NONE), (60, NONE))),
    Scene("one canary failed, and clients were served through it all", {
        **traffic(16, 60), **{k: v for k, v in FAILED_ONCE.items() if "canary" in k},
    }, ((70, NONE), (71, NONE), (72, NONE), (75, NONE), (240, NONE), (400, NONE))),
    Scene("loading for 40 of 45 minutes", LOADING, ((10, NONE), (40, NONE))),
    Scene("a crash, and the pause before the start anew", {
        **became("service", (0, "active"), (20, "activating"), (21, "active")),
        **became("gate", (0, "inactive"), (21, "activating"), (50, "inactive")),
        **verdict((0, "PASS"), (20, ""), (50, "PASS")),
        **NO_VLLM, VLLM_UP: at((0, 1), (20, 0), (50, 1)), REACHABLE: at((0, 1), (20, 0), (50, 1)),
        READY: at((0, 1), (20, 0), (50, 1)), RESTARTS: at((0, 0), (20, 1)),
        STARTS: at((0, 3), (50, 4)), LOAD_BEGAN: at((0, None), (21, 1260), (50, None)),
    }, ((22, NONE), (25, NONE), (49, NONE), (60, NONE))),
    Scene("a long pause before the start anew", {
        **STOPPED, **became("service", (0, "active"), (10, "activating")), RESTARTS: at((0, 0), (10, 1)),
    }, ((30, NONE),)),
    Scene("vLLM is gone a moment before kimisvc knows", {
        VLLM_UP: at((0, 1), (29, 0)), **REFUSED | {VLLM_UP: at((0, 1), (29, 0))},
        READY: at((0, 1), (30, 0)),
    }, ((30, NONE), (30.5, NONE))),
    Scene("stopped for good, that is: disabled", {
        **STOPPED, **became("service", (0, "active"), (10, "inactive")), DRIFT: at((0, 0), (10, 1)),
        kimi("kimisvc_should_run"): at((0, 1), (10, 0)),
    }, ((12, NONE), (30, NONE), (400, NONE))),
    Scene("the exporter is started anew", {
        EXPORTER_UP: at((0, 1), (29, 0), (30, 1)), kimi("kimisvc_up"): at((0, 1), (29, None), (30, 1)),
    }, ((29.5, NONE), (31, NONE), (40, NONE))),
    Scene("an operator tries five profiles in an afternoon", {
        ACCEPTED: every(40, until=200), STARTS: every(40, first=3, until=200),
    }, ((240, NONE), (350, NONE))),
    Scene("no canary is asked for, and no floor is set", {
        name: GONE for name in HEALTHY if "canary" in name or "floor" in name
    }, ((30, NONE),)),
    Scene("the verdict is DEGRADED", verdict((0, "DEGRADED"))),
    Scene("iterations stand still for a moment", {
        RUNNING: at((0, 0), (20, 1), (21.5, 0)), SPEED: GONE, **STANDING,
    }, ((21.5, NONE), (25, NONE))),
    Scene("one long prompt is read for an hour, alone: vLLM counts no iteration without a token", {
        **PREFILL, **ENDLESS,
    }, ((21, NONE), (24, NONE), (50, NONE), (79, NONE))),
    Scene("one long prompt is read for an hour, and there is no exporter", {
        **PREFILL, **ENDLESS, **NO_EXPORTER, EXPORTER_UP: always(0),
    }, ((24, alerts("ExporterDown")), (50, alerts("ExporterDown")), (79, alerts("ExporterDown")))),

    # -------------------------------------------------------------- down, in a loop
    Scene("failed", {**STOPPED, **became("service", (0, "active"), (20, "failed"))},
          ((21, NONE), (23, alerts("ServiceDown")))),
    Scene("stopped, and not started again", {
        **STOPPED, **became("service", (0, "active"), (20, "deactivating"), (23, "inactive")),
    }, ((24.5, NONE), (26, alerts("ServiceDown")))),
    Scene("the engine died, exit 0, and nothing starts it", {**STOPPED, **unit("service", "inactive")},
          ((30, alerts("ServiceDown")),)),
    Scene("systemd does not know the service", {
        **STOPPED, **dict.fromkeys(unit("service", "active"), GONE),
    }, ((30, alerts("ServiceDown")),)),
    Scene("back again", {
        **became("service", (0, "failed"), (20, "active")), READY: at((0, 0), (20, 1)),
        **verdict((0, ""), (20, "PASS")),
    }, ((10, alerts("ServiceDown")), (21, NONE))),
    Scene("dies after each 36 minutes", {
        **LOADING, RESTARTS: every(36), LOAD_BEGAN: moments(36), STARTS: every(36, first=3),
    }, ((100, NONE), (150, alerts("RestartLoop")), (400, alerts("RestartLoop")))),
    Scene("dies before a gate can record it", {**LOADING, RESTARTS: every(36), LOAD_BEGAN: moments(36)},
          ((100, NONE), (115, alerts("RestartLoop")))),
    Scene("two crashes in six hours are no loop", {RESTARTS: every(150, until=300)}, ((350, NONE),)),
    Scene("three candidates in three hours that die in loading, are tried twice, and rolled back", {
        **refused(60, 130, 200),
    }, (*((minute, alerts("RolledBack")) for minute in (70, 120, 140, 190, 209, 215, 240)),
        (204.5, NONE), (208, NONE), (300, NONE), (400, NONE))),
    Scene("a candidate is tried four times, as its starts allow, and then rolled back", {
        **refused(151.5), START_LIMIT: always(4), GENERATION: at((0, 3), (151.5, 2)),
        RESTARTS: at((0, 0), (40, 1), (77, 2), (114, 3), (151, 4), (151.5, 0)),
    }, ((113, NONE), (114.5, NONE), (150, NONE), (151, NONE), (151.5, NONE), (154, NONE))),
    Scene("a candidate passes at the last of its six tries, and runs", {
        GENERATION: always(3), PROVEN: at((0, 2), (235, 3)), START_LIMIT: always(6),
        RESTARTS: at((0, 0), *((19 + 36 * n, n) for n in range(1, 6)), (235.5, 0)),
        STARTS: at((0, 3), *((19 + 36 * n, 3 + n) for n in range(1, 6)), (235, 9)),
        ACCEPTED: at((0, 2), (236, 3)),
    }, ((129, NONE), (200, NONE), (235, NONE), (236, NONE), (240, NONE), (300, NONE), (400, NONE))),
    Scene("the first candidate that there ever was, within its tries", {
        RESTARTS: every(36, until=180), START_LIMIT: always(6), PROVEN: GONE,
    }, ((115, NONE), (187, NONE), (350, NONE))),
    Scene("a candidate that is to be tried twenty times dies after each 36 minutes", {
        GENERATION: always(3), RESTARTS: every(36), START_LIMIT: always(20),
    }, ((150, NONE), (280, NONE), (290, alerts("RestartLoop")), (479, alerts("RestartLoop")))),
    Scene("a server whose starts are four dies after each 36 minutes", {
        RESTARTS: every(36), START_LIMIT: always(4),
    }, ((100, NONE), (115, alerts("RestartLoop")))),
    *(
        Scene(f"a server whose starts are {starts} dies after each 36 minutes of loading", {
            **LOADING, RESTARTS: every(36), LOAD_BEGAN: moments(36), STARTS: every(36, first=3),
            START_LIMIT: always(starts),
        }, ((100, NONE), (150, alerts("RestartLoop")), (400, alerts("RestartLoop")),
            (479, alerts("RestartLoop"))))
        for starts in (9, 10, 20)
    ),
    Scene("a server whose starts are twenty loads, passes, has systemd count anew, and dies", {
        RESTARTS: at((0, 0), *((36 * n + d, 1 - d / 30) for n in range(1, 14) for d in (0, 30))),
        STARTS: every(36, first=3, begin=30), START_LIMIT: always(20),
    }, ((100, NONE), (150, alerts("RestartLoop")), (400, alerts("RestartLoop")),
        (479, alerts("RestartLoop")))),
    Scene("one that was to be tried ten times was rolled back, and what is restored loops", {
        **refused(10), START_LIMIT: at((0, 2), (10, 10), (18.5, 2)),
        RESTARTS: at((0, 0), (14, 1), (18, 2), (18.5, 0), *((60 + 36 * n, n) for n in range(1, 12))),
    }, ((95, NONE), (140, NONE), (170, alerts("RestartLoop")), (400, alerts("RestartLoop")))),
    Scene("the count of a candidate is seen a moment longer than the candidate", {
        **refused(10), START_LIMIT: always(5),
        RESTARTS: at((0, 0), (11, 1), (12, 2), (14, 3), (16, 4), (18, 5), (19.5, 0)),
    }, ((18, NONE), (19, alerts("RolledBack")), (30, alerts("RolledBack")), (120, NONE))),
    Scene("restarted by something else every 40 minutes, though its starts are twenty", {
        STARTS: every(40, first=3), START_LIMIT: always(20),
    }, ((100, NONE), (200, alerts("RestartLoop")))),
    Scene("a loop, and an exporter that cannot read its generations", {
        RESTARTS: every(36), GENERATION: GONE, PROVEN: GONE, START_LIMIT: GONE,
    }, ((100, NONE), (115, alerts("RestartLoop")))),
    Scene("a candidate was rolled back, and what is restored dies after each 36 minutes", {
        **refused(10),
        RESTARTS: at((0, 0), (14, 1), (18, 2), (18.5, 0), *((60 + 36 * n, n) for n in range(1, 12))),
    }, ((95, NONE), (230, alerts("RestartLoop")), (400, alerts("RestartLoop")))),
    Scene("a loop, and an exporter that cannot read what was rolled back", {
        RESTARTS: every(36), RESTORED: GONE, START_LIMIT: GONE,
    }, ((100, NONE), (115, alerts("RestartLoop")))),
    Scene("starts that nobody asked for, and an exporter that cannot read what was rolled back", {
        STARTS: every(40, first=3), RESTORED: GONE, START_LIMIT: GONE,
    }, ((100, NONE), (200, alerts("RestartLoop")))),
    Scene("restarted by something else every 40 minutes", {STARTS: every(40, first=3)},
          ((100, NONE), (200, alerts("RestartLoop")))),
    Scene("the load is stuck", {**LOADING, kimi("kimisvc_load_timeout_seconds"): always(600)},
          ((10.5, NONE), (12, NONE), (14, alerts("LoadStuck")))),
    Scene("an edit by hand", {DRIFT: at((0, 0), (20, 2))}, ((34, NONE), (36, alerts("UnitDrift")))),
    Scene("disabled, and it runs on", {
        kimi("kimisvc_should_run"): at((0, 1), (20, 0)), DRIFT: at((0, 0), (20, 1)),
    }, ((34, NONE), (36, alerts("UnitDrift")))),
    Scene("its unit is gone, and it does not run", {
        **STOPPED, **unit("service", "inactive"), DRIFT: always(1),
    }, ((14, alerts("ServiceDown")), (16, alerts("ServiceDown", "UnitDrift")))),

    # --------------------------------------------------------------- alive and dead
    Scene("the exporter sees a stall", {STALLED: at((0, 0), (20, 1)), SPEED: GONE},
          ((20.5, NONE), (22, alerts("EngineStalled")))),
    Scene("a stall, and no exporter that sees it", {
        **NO_EXPORTER, EXPORTER_UP: always(0), RUNNING: always(1), **STANDING, **ENDLESS,
    }, ((30, alerts("EngineStalled", "ExporterDown")),)),
    Scene("a stall of a vLLM that does not tell of its cache", {
        RUNNING: always(1), **STANDING, KV_CACHE: GONE, SPEED: GONE, **ENDLESS,
    }, ((30, alerts("EngineStalled")),)),
    Scene("a stall in the middle of a long prompt", {
        **PREFILL, **ENDLESS, KV_CACHE: "0.1+0x39 0.1+0.001x19 0.12+0x880",
    }, ((31, NONE), (34, alerts("EngineStalled")))),
    Scene("a stall of what waits", {
        RUNNING: always(0), WAITING: always(3), SPEED: GONE, **STANDING, **ENDLESS,
    }, ((30, alerts("EngineStalled")),)),
    Scene("wedged while nothing counts as running", FAILED_ONCE,
          ((65, NONE), (72, alerts("CanaryFailed")), (120, alerts("CanaryFailed")))),
    Scene("wedged after the last answer, and clients leave", {
        **FAILED_ONCE, ANSWERED: at((0, 50), (68, 51)), LEFT: every(1, begin=68),
    }, ((65, NONE), (73, alerts("CanaryFailed")), (120, alerts("CanaryFailed")))),
    Scene("wedged between the same two scrapes in which somebody was answered", {
        **WEDGED, CANARY_FAILED: at((0, 0), (70, 1), (80, 2)), ANSWERED: at((0, 50), (70, 51)),
    }, ((75, NONE), (79, NONE), (83, alerts("CanaryFailed")))),
    Scene("somebody was answered after a canary had failed", {
        **FAILED_ONCE, ANSWERED: at((0, 50), (90, 51)),
    }, ((80, alerts("CanaryFailed")), (92, NONE), (120, NONE), (400, NONE))),
    Scene("wedged, and every canary fails", {**WEDGED, CANARY_FAILED: every(10, begin=60)},
          ((72, alerts("CanaryFailed")), (200, alerts("CanaryFailed")))),
    Scene("the next canary measured again", {
        **IDLE, CANARY_FAILED: at((0, 0), (70, 1)), CANARY_AT: at((0, 3600), (80, 4800)),
    }, ((75, alerts("CanaryFailed")), (81, NONE), (300, NONE))),
    Scene("a new start was proven since", {
        **WEDGED, CANARY_FAILED: at((0, 0), (70, 1)), READY: at((0, 1), (71, 0), (110, 1)),
        GATE_AT: at((0, 0), (71, None), (110, 6600)),
    }, ((72.5, NONE), (100, NONE), (112, NONE))),
    Scene("the server hangs", {**REFUSED, REACHABLE: at((0, 1), (20, 0)), VLLM_UP: at((0, 1), (20, 0))},
          ((21, NONE), (23, alerts("VllmTargetDown")))),
    Scene("only the exporter cannot reach it", {REACHABLE: always(0)}, ((30, NONE), (400, NONE))),
    Scene("the exporter cannot reach it, and Prometheus does not ask it", {
        **NO_VLLM, VLLM_UP: GONE, REACHABLE: at((0, 1), (20, 0)),
    }, ((19, alerts("VllmNotScraped")), (23, alerts("VllmNotScraped", "VllmTargetDown")))),
    Scene("the exporter cannot reach it, and Prometheus asks another instance", {
        **NO_VLLM, VLLM_UP: GONE, REACHABLE: always(0),
        'up{host="box",instance="other",job="vllm"}': always(1),
    }, ((30, alerts("VllmNotScraped", "VllmTargetDown")),)),
    Scene("no vLLM and no exporter", {**NO_EXPORTER, **NO_VLLM, EXPORTER_UP: always(0), VLLM_UP: always(0)},
          ((30, alerts("VllmTargetDown", "ExporterDown")),)),

    *UNWATCHED,

    # ------------------------------------------------------------------------ speed
    Scene("one stream under the floor", traffic(1, 39),
          ((9, NONE), (15, alerts("DecodeUnderFloor")))),
    Scene("one stream over the floor", traffic(1, 41), ((60, NONE),)),
    Scene("under the floor for five minutes only", {
        **IDLE, TOKENS: always(0), SPEED: at((0, None), (20, 30), (25, None)),
        RUNNING: at((0, 0), (20, 1), (25, 0)), MOVED: growing(900),
    }, ((24, NONE), (32, NONE), (40, NONE))),
    Scene("one request that never ends, under the floor", {**traffic(1, 30), **ENDLESS},
          ((9, NONE), (15, alerts("DecodeUnderFloor")))),
    Scene("answers so slow that five minutes hold few tokens", {**traffic(1, 0.6, tokens=30), SPEED: GONE},
          ((20, alerts("DecodeUnderFloor")),)),
    Scene("between requests there are pauses", {
        **traffic(0.5, 30), RUNNING: " ".join(["1", "0"] * 480), SPEED: GONE,
    }, ((30, alerts("DecodeUnderFloor")),)),
    Scene("slow by the exporter, but two run", {
        **traffic(2, 30), **ENDLESS, SPEED: always(30),
    }),
    Scene("slow by the exporter, but now and then two run", {
        **traffic(1, 30), **ENDLESS, RUNNING: " ".join(["1", "1", "1", "2"] * 240),
    }),
    Scene("answers of two tokens, of which one is decoded", {**traffic(1, 30, tokens=2), SPEED: GONE},
          ((15, alerts("DecodeUnderFloor")),)),
    Scene("fast again", {
        **IDLE, TOKENS: always(0), SPEED: at((0, 30), (30, 80)), RUNNING: always(1), MOVED: growing(900),
    }, ((20, alerts("DecodeUnderFloor")), (31, NONE))),
    Scene("the canary is slow", {CANARY_HIGH: at((0, 83), (20, 39.5))},
          ((20.5, NONE), (22, alerts("CanarySlow")))),
    Scene("the canary's interval reaches over the floor", {CANARY_HIGH: always(40.5)}),

    Scene("canaries fly no more", {CANARY_DUE: moments(10, until=60, later=630)},
          ((70, NONE), (80, NONE), (81, alerts("CanarySilent")), (300, alerts("CanarySilent")))),
    Scene("a canary that is at work for long, as the server hangs", {
        CANARY_DUE: always(630), **unit("canary", "activating"),
    }),
    Scene("canaries fly no more, and the last has failed", {
        CANARY_DUE: always(630), **unit("canary", "failed"),
    }, ((30, alerts("CanarySilent")),)),
    Scene("canaries fly again", {CANARY_DUE: at((0, 630), (30, 2430))},
          ((29, alerts("CanarySilent")), (31, NONE))),
    Scene("no canaries while it loads for long", {**LOADING, CANARY_DUE: always(630)}, ((40, NONE),)),
    Scene("no canary is asked for", {CANARY_DUE: GONE, CANARY_AT: GONE, CANARY_MEASURED: GONE}),

    # ------------------------------------------------------------------------- gate
    Scene("FAIL, and kept", verdict((0, ""), (20, "FAIL")), ((20.5, NONE), (22, alerts("GateFailed")))),
    Scene("FAIL, and rolled back within the minute", {
        **verdict((0, ""), (20, "FAIL"), (20.5, ""), (50, "PASS")),
        **became("gate", (0, "activating"), (20, "failed"), (20.5, "activating"), (50, "inactive")),
        RESTORED: at((0, 0), (20.5, 1)),
    }, ((30, alerts("RolledBack")), (79, alerts("RolledBack")), (82, NONE))),
    Scene("rolled back on a full disk, where history takes it an hour later", {
        UNKEPT: at((0, 0), (20.5, 1), (80, 0)), RESTORED: at((0, 0), (80, 1)),
    }, ((19, NONE), (30, alerts("RolledBack")), (138, alerts("RolledBack")), (142, NONE))),
    Scene("nothing to restore", {
        **verdict((0, ""), (20, "FAIL")), kimi("kimisvc_rollbacks_total", restored="no"): at((0, 0), (21, 1)),
        **became("gate", (0, "activating"), (20, "failed")),
    }, ((30, alerts("GateFailed")),)),
    Scene("INCONCLUSIVE", {**verdict((0, ""), (20, "INCONCLUSIVE")),
                           **became("gate", (0, "activating"), (20, "inactive"))},
          ((29, NONE), (31, alerts("GateInconclusive")))),
    Scene("no verdict on what runs", {**verdict((0, "")), **unit("gate", "failed")},
          ((9, NONE), (11, alerts("GateStale")))),
    Scene("the verdict of nobody", {**dict.fromkeys(verdict((0, "")), GONE), **unit("gate", "inactive")},
          ((11, alerts("GateStale")),)),

    # ------------------------------------------------------------------------- data
    Scene("a series is not there", {
        MISSING: at((0, 0), (20, 1)),
        kimi("kimisvc_metric_contract_broken", metric="vllm:prompt_tokens_total"): always(1),
    },
          ((24, NONE), (26, alerts("MetricContractBroken")))),
    Scene("the exporter does not answer", {**NO_EXPORTER, EXPORTER_UP: always(0)},
          ((1, NONE), (3, alerts("ExporterDown")), (200, alerts("ExporterDown")))),
    Scene("the exporter is not scraped", {**NO_EXPORTER, EXPORTER_UP: GONE}, ((3, alerts("ExporterDown")),)),
    Scene("there is nothing at all", dict.fromkeys(HEALTHY, GONE) | {"other": always(1)},
          ((3, alerts("ExporterDown")),)),
    Scene("a source cannot be read", {kimi("kimisvc_up"): at((0, 1), (20, 0))},
          ((24, NONE), (26, alerts("NoData")))),
    Scene("the exporter finds no instance", NO_EXPORTER, ((4, NONE), (6, alerts("NoData")))),
    Scene("vLLM is not scraped", {**NO_VLLM, VLLM_UP: GONE}, ((9, NONE), (11, alerts("VllmNotScraped")))),
    Scene("vLLM is scraped under another instance", {**NO_VLLM, VLLM_UP: GONE,
          'up{host="box",instance="127.0.0.1:8000",job="vllm"}': always(1)},
          ((11, alerts("VllmNotScraped")),)),
)  # fmt: skip

WITHOUT = {
    EXPORTER_UP: alerts("ExporterDown"),
    VLLM_UP: alerts("VllmNotScraped"),
    kimi("kimisvc_up"): alerts("NoData"),
    kimi("kimisvc_unit_state", unit="service", state="active"): alerts("ServiceDown"),
    kimi("kimisvc_gate_verdict", verdict="PASS"): alerts("GateStale"),
}
"""What fires when a single series of the healthy box is missing; all others: nothing."""

UNSEEN = {"slow by the exporter, but now and then two run"}
"""Scenes of which a scrape a minute does not see what they are about."""
