"""What kv-transfer-config may cost: by its connector, which says where the cache of requests goes.

The names are those vLLM 0.32 registers (kv_transfer/kv_connector/factory.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.records.profile import ArgValue, Profile

_OPTION = "kv-transfer-config"
_CONNECTOR, _EXTRA = "kv_connector", "kv_connector_extra_config"
_DOCS = "https://docs.vllm.ai/en/stable"
_SECURITY = f"{_DOCS}/usage/security/"
_FEATURES = f"{_DOCS}/features/disagg_prefill/"
_MOST_WITHIN = 8
"""Connectors of several connectors, within each other; no real one goes deeper than two."""
OFFLOADED = Judgement(
    Risk.SAFE_ISH,
    "keeps the cache of requests in memory of the host, which it takes from all else there; "
    "nothing leaves the box",
    _FEATURES,
)
_SENT = Judgement(
    Risk.RISKY, "sends the cache of all requests over the network, unencrypted", _SECURITY
)
STORED = Judgement(
    Risk.RISKY,
    "may send the cache of all requests over the network, unencrypted: its own configuration, "
    "which is not judged here, says where to",
    _SECURITY,
)
_FILED = Judgement(
    Risk.RISKY, "writes the cache of all requests into files that nobody clears away", _SECURITY
)
_MADE_UP = Judgement(
    Risk.RISKY, "fills the cache with made up values: every answer is nonsense", _FEATURES
)
_OF_CONNECTOR = {
    "OffloadingConnector": OFFLOADED,
    "SimpleCPUOffloadConnector": OFFLOADED,
    "LMCacheConnectorV1": STORED,
    "LMCacheMPConnector": STORED,
    "FlexKVConnectorV1": STORED,
    "ExampleConnector": _FILED,
    "SharedStorageConnector": _FILED,
    "ExampleHiddenStatesConnector": _FILED,
    "DecodeBenchConnector": _MADE_UP,
}
"""All others send: NIXL, Mooncake, MoRIIO, P2pNccl, 3FS; and so may a plugin."""
_IN_MEMORY = ("CPUOffloadingSpec",)
"""Where the offloading connector keeps the cache by itself; other specs have other places."""
_ORDER = (Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY)


def transfer_risk(value: ArgValue, profile: Profile) -> Judgement:
    """Given a value of kv-transfer-config and its profile, return its risk: that of its connector.

    Also of one field of it, behind a dot. Of several connectors the worst counts.
    """
    whole = _table(value) or _from_fields(profile)
    return max(_judged(whole, 0), key=lambda judged: _ORDER.index(judged.risk))


def _judged(config: Mapping[str, object], depth: int) -> Iterator[Judgement]:
    extra = _table(config.get(_EXTRA))
    inner = extra.get("connectors")
    if config.get(_CONNECTOR) == "MultiConnector" and isinstance(inner, list | tuple) and inner:
        if depth == _MOST_WITHIN:
            yield _SENT
            return
        for one in inner:
            yield from _judged(_table(one), depth + 1)
        return
    judged = _OF_CONNECTOR.get(str(config.get(_CONNECTOR)), _SENT)
    if config.get("kv_connector_module_path"):
        judged = _SENT
    elif judged is OFFLOADED and extra.get("spec_name", _IN_MEMORY[0]) not in _IN_MEMORY:
        judged = STORED
    yield judged


def _table(value: object) -> Mapping[str, object]:
    """What a table holds, or a string of JSON; nothing where it is none."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _from_fields(profile: Profile) -> Mapping[str, object]:
    """What the options `kv-transfer-config.field` say together."""
    said: dict[str, object] = {}
    for name, value in profile.args.items():
        option, _, field = name.partition(".")
        if field and option.replace("_", "-") == _OPTION:
            said[field.replace("-", "_")] = _table(value) or value
    return said
