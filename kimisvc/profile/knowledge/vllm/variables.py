"""What a vLLM makes of the VLLM_* variables in [env]: unknown, removed, misread.

vLLM ignores a variable it does not know (0.17.1 and newer say so in the log,
and end with --fail-on-environ-validation), and it has five ways to read a
switch: "true" ends it, is on, or is silently off (vllm/envs.py). 0 and 1 mean
the same to all of them.
"""

from __future__ import annotations

import ipaddress
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.near_names import leave
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.options import OWNED_VARIABLES
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import KnownFrom, VariableReading, VllmVariable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

_PREFIX = "VLLM_"
_ALIKE = 0.88
"""So alike names have to be for one to be meant by the other (difflib's ratio, 0 to 1)."""
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off", "")
_TAKEN_FOR_ON: Mapping[VariableReading, tuple[str, ...]] = MappingProxyType(
    {
        VariableReading.ONE: ("1",),
        VariableReading.TRUE: ("1", "true"),
        VariableReading.ONLY_TRUE: ("true",),
    }
)


def vllm_variable_findings(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    """Given a profile and what its vLLM knows, yield what is wrong with VLLM_* in [env]."""
    for name, value in draft.env.items():
        if not name.startswith(_PREFIX) or name in OWNED_VARIABLES:
            continue
        if name not in vllm.variables:
            yield _unknown(name, draft, vllm)
            continue
        if name in _OF_LOGGING and not _logs_by_these(draft):
            continue
        fault = _VALUES[name](value) if name in _VALUES else _misread(name, value, vllm)
        fault = fault or _no_logging(name, value, draft)
        if fault:
            yield Finding(("env", name), fault)
        elif name == "VLLM_PORT":
            yield from _port(value, draft)


def _unknown(name: str, draft: Profile, vllm: VllmKnowledge) -> Finding:
    """Given a variable that is not known, return what is said of it."""
    path = ("env", name)
    strict = draft.args.get("fail-on-environ-validation") is True
    doubt = Severity.ERROR if strict else Severity.WARNING
    gone = REMOVED.get(name)
    if gone:
        message = f"was removed in vLLM {gone.removed_in}, which ignores it. {gone.instead}"
        return Finding(path, message, doubt)
    newer = shipped_knowledge()
    if name in newer.variables:
        message = (
            f"is ignored by the installed vLLM {vllm.version}; vLLM {newer.version} reads it. "
            "Upgrade, or leave it out"
        )
        return Finding(path, message, doubt)
    from difflib import get_close_matches  # only a profile with a problem pays

    near = get_close_matches(name, vllm.variables, 1, _ALIKE)
    if near and name not in draft.allow_risky:
        message = (
            f"is no variable of vLLM {vllm.version}. Did you mean {near[0]}? {leave(name, draft)}"
        )
        asked = vllm.known_from is KnownFrom.ASKED
        severity = Severity.ERROR if asked else doubt
        return Finding(path, message, severity, reads=(("allow_risky",),))
    message = f"is no variable of vLLM {vllm.version}, which would ignore it. Leave it out"
    return Finding(path, message, doubt)


def _misread(name: str, value: str, vllm: VllmKnowledge) -> str:
    """Given a known variable, say how vLLM would misread its value; "" if it does not."""
    variable = vllm.readings.get(name, VllmVariable())
    reads, ends = variable.reads, f"{shown(value)} ends vLLM at its start"
    if reads is VariableReading.SWITCH:
        return "" if _whole(value) else f"{ends}: it is read as {reads.value}. {_write(value)}"
    if reads is VariableReading.INTEGER:
        return "" if _whole(value) else f"{ends}: it is read as {reads.value}"
    if reads is VariableReading.NUMBER:
        return "" if _float(value) else f"{ends}: it is read as {reads.value}"
    if reads in (VariableReading.CHOICE, VariableReading.WORD):
        folds = reads is VariableReading.WORD
        known = [word.lower() if folds else word for word in variable.choices]
        listed = ", ".join(variable.choices)
        word = value.lower() if folds else value
        return "" if word in known else f"{ends}: it reads one of {listed}"
    return _misread_switch(value, reads)


def _misread_switch(value: str, reads: VariableReading) -> str:
    """A switch that vLLM never complains about: what is meant has to be what it takes it for."""
    word = value.strip().lower()
    if reads in _TAKEN_FOR_ON:
        taken = word in _TAKEN_FOR_ON[reads]
    elif reads is VariableReading.NOT_ZERO:
        taken = value != "0"
    else:
        return ""
    meant = True if word in _ON else False if word in _OFF else None
    if meant is taken:
        return ""
    right = ("true" if reads is VariableReading.ONLY_TRUE else "1") if meant else "0"
    hint = f'Write "{right}"' if meant is not None else 'Write "0" or "1"'
    return (
        f"{shown(value)} would be taken for {'on' if taken else 'off'} without a word: vLLM reads "
        f"{reads.value}. {hint}"
    )


def _write(value: str) -> str:
    word = value.strip().lower()
    if word in _ON or word in _OFF:
        return f'Write "{int(word in _ON)}"'
    return 'Write "0" or "1"'


def _whole(value: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", value) is not None


def _float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- addresses


def _port_number(value: str) -> str:
    if _whole(value):
        return ""
    why = ", and a service discovery seems to have set it to a URI" if "://" in value else ""
    return (
        f"{shown(value)} ends vLLM at its start: it is the first port of its own processes{why}. "
        "Leave it out"
    )


def _host_ip(value: str) -> str:
    if not value:
        return ""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return f"{shown(value)} is refused: it takes an IP address, no name and no port"
    if address.is_unspecified:
        return (
            f"{shown(value)} is refused: the processes of vLLM connect to this address. The "
            "address to listen at is [vllm] host"
        )
    return ""


# ---------------------------------------------------------------- logging

_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARNING", "WARN", "INFO", "DEBUG", "NOTSET")
"""Levels of Python's logging, which vLLM takes in any case, and no number (logging.config)."""
_OF_LOGGING = ("VLLM_LOGGING_LEVEL", "VLLM_LOGGING_STREAM")


def _logs_by_these(draft: Profile) -> bool:
    """Whether vLLM sets its log up by variables: not with a file for that, nor if it shall not."""
    off = draft.env.get("VLLM_CONFIGURE_LOGGING", "1") == "0"
    return not off and not draft.env.get("VLLM_LOGGING_CONFIG_PATH")


def _level(value: str) -> str:
    if value.upper() in _LEVELS:
        return ""
    return f"{shown(value)} ends vLLM at its start: it is one of {', '.join(_LEVELS)}"


def _stream(value: str) -> str:
    if value.startswith("ext://"):
        return ""
    return (
        f"{shown(value)} is no stream, and nothing would be logged. Write "
        '"ext://sys.stdout" or "ext://sys.stderr"'
    )


def _no_logging(name: str, value: str, draft: Profile) -> str:
    off = draft.env.get("VLLM_CONFIGURE_LOGGING", "1") == "0"
    if name != "VLLM_LOGGING_CONFIG_PATH" or not value or not off:
        return ""
    return "ends vLLM at its start while VLLM_CONFIGURE_LOGGING is 0. Leave one of the two out"


_VALUES = MappingProxyType(
    {
        "VLLM_PORT": _port_number,
        "VLLM_HOST_IP": _host_ip,
        "VLLM_LOGGING_LEVEL": _level,
        "VLLM_LOGGING_STREAM": _stream,
    }
)
"""How the value of a variable is judged of which vLLM does not tell more than that it is text."""


def _port(value: str, draft: Profile) -> Iterator[Finding]:
    if int(value) == draft.vllm.port:
        yield Finding(
            ("env", "VLLM_PORT"),
            f"{value} is the first port of vLLM's own processes, and the API listens there, too. "
            "Leave it out: the port of the API is [vllm] port",
            Severity.WARNING,
            reads=(("vllm", "port"),),
        )
