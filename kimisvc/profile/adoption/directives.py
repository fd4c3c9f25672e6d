"""What becomes of each setting of a unit: one row a setting, or a family of them.

Where a row has a key, the value goes there; else it is left out, and `why`
says what kimisvc does in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HARDENED = "kimisvc's unit is hardened by itself, as far as GPUs allow"
_OWN_GATE = "readiness, golden answers and speed are proven by the gate at every start"
_OWN_LIMIT = (
    "made from load_timeout and starts: a limit shorter than all loads together never ends a "
    "crash loop"
)
_OWN_LOG = "the journal gets it, under the name of the instance and without a rate limit"


@dataclass(frozen=True, slots=True)
class Directive:
    """Settings whose names match `names` (a whole regular expression), and why they are left out."""

    names: str
    why: str


DIRECTIVES: tuple[Directive, ...] = (
    Directive(
        "Restart",
        "kimisvc restarts always: a vLLM whose engine died ends with status 0, which on-failure "
        "takes for success (vllm#48966)",
    ),
    Directive("RestartPreventExitStatus|SuccessExitStatus|RestartForceExitStatus",
              "kimisvc knows vLLM's statuses: 2 is an option that it refuses"),
    Directive("StartLimit.*|RestartSteps|RestartMaxDelaySec", _OWN_LIMIT),
    Directive("KillMode|SendSIGKILL|KillSignal|FinalKillSignal|SendSIGHUP",
              "kimisvc uses mixed: vLLM stops its workers, what is left after stop_timeout is "
              "killed"),
    Directive("Type|NotifyAccess|WatchdogSec|PIDFile|GuessMainPID|RemainAfterExit",
              f"vLLM speaks no sd_notify; kimisvc uses Type=exec, and {_OWN_GATE}"),
    Directive("OnFailure|OnSuccess", "kimisvc restores the last accepted generation on failure"),
    Directive("ExecStartPre|ExecCondition",
              "not run: what apply looks at beforehand (GPUs, port, model, memory) is its "
              "preflight; what else is needed belongs into a drop-in"),
    Directive("ExecStartPost", f"not run: {_OWN_GATE}"),
    Directive("ExecStop|ExecStopPost|ExecReload",
              "not run: SIGTERM ends vLLM, and it cannot reload"),
    Directive("Group|SupplementaryGroups", "the groups of the user hold"),
    Directive("DynamicUser", "kimisvc does so, unless [service] user is set"),
    Directive("Standard(Output|Error|Input).*|Syslog.*|LogRateLimit.*|LogLevelMax|TTY.*", _OWN_LOG),
    Directive("Protect.*|Private.*|Restrict.*|SystemCall.*|Capability.*|AmbientCapabilities|"
              "NoNewPrivileges|LockPersonality|MemoryDenyWriteExecute|UMask|DevicePolicy|"
              "DeviceAllow|SecureBits|KeyringMode|RemoveIPC|ReadWritePaths|ReadOnlyPaths|"
              "InaccessiblePaths|ReadWriteDirectories|ReadOnlyDirectories", _HARDENED),
    Directive("(Cache|State|Runtime|Logs|Configuration)Directory.*",
              "kimisvc gives vLLM a cache folder of the instance and points HOME to it"),
    Directive("LimitMEMLOCK|TasksMax|LimitNPROC|LimitCORE|OOMPolicy|LimitSTACK",
              "kimisvc sets it as many GPUs need it"),
    Directive("(Memory|CPU|IO|Tasks|IP)Accounting|MemoryHigh|Slice|Nice|OOMScoreAdjust|CPU.*|"
              "NUMA.*|IO.*|AllowedCPUs|AllowedMemoryNodes|MemoryLow|MemoryMin|MemorySwapMax|"
              "Limit.*|Delegate",
              "the profile has no key for it; a drop-in for kimisvc's unit can set it"),
    Directive("Description|Documentation|SourcePath", "kimisvc's unit has its own"),
    Directive("After|Before|Wants|Requires|Requisite|BindsTo|PartOf|Conflicts|Upholds|"
              "RequiresMountsFor|DefaultDependencies|.*IsolateOn.*",
              "kimisvc orders its units behind the network, the GPUs and the file systems of "
              "program and model; anything else belongs into a drop-in"),
    Directive("Condition.*|Assert.*",
              "a condition that fails skips the start in silence; apply's preflight refuses aloud"),
    Directive("WantedBy|RequiredBy|Alias|Also|DefaultInstance",
              "kimisvc.target starts it at boot, once applied"),
    Directive("TimeoutAbortSec|TimeoutStartFailureMode|TimeoutStopFailureMode|RuntimeMaxSec",
              "every deadline is made from load_timeout and stop_timeout"),
)  # fmt: skip

_COMMANDS = re.compile("Exec.*|Environment.*|SetCredential.*|LoadCredential.*")
"""Settings whose values may hold anything, and are never shown."""


def reason(key: str) -> str:
    """Given a setting of a unit, return why it is left out; "" if no row knows it."""
    return next((row.why for row in DIRECTIVES if re.fullmatch(row.names, key)), "")


def may_be_shown(key: str) -> bool:
    """Given a setting of a unit, return whether its value can stand in a comment."""
    return _COMMANDS.fullmatch(key) is None
