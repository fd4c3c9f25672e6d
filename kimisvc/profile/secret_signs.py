"""How a secret that was written into a profile by mistake is known, so that it is never shown.

Profiles, units and command lines can be read by any user of the box; secrets
belong in the file that `service.secrets_file` names.
"""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?:.*_)?(?:TOKEN|KEY|SECRET|PASSWD|PASSWORD)|.*PASSWORD", re.IGNORECASE | re.DOTALL
)
_VALUE = re.compile(r"\s*(?:hf_|sk-)[A-Za-z0-9]|.*://[^/\s@:]*:[^/\s@]+@", re.DOTALL)

WHERE_TO = 'Put it in a file of mode 0600 and name that file: [service] secrets_file = "/..."'


def names_a_secret(name: str) -> bool:
    """Given the name of an environment variable, return whether such hold secrets."""
    return _NAME.fullmatch(name) is not None


def looks_secret(value: object) -> bool:
    """Given a raw value, return whether it is (or holds) a token or a URL with a password."""
    if isinstance(value, str):
        return _VALUE.match(value) is not None
    if isinstance(value, dict):
        return any(looks_secret(key) or looks_secret(item) for key, item in value.items())
    return isinstance(value, list) and any(looks_secret(item) for item in value)
