"""Which parts of a command line or unit are secrets, and how a part is shown without one."""

from __future__ import annotations

from kimisvc.profile.problems import CONTROL
from kimisvc.profile.secret_signs import Name, looks_secret, name_says, names_a_secret, secret_in

_LONGEST = 48
_HIDDEN = "(not shown)"
_OPTION = "api-key"
_UNLIKE = len("api-")
"""An abbreviation of --api-key is longer than what other options begin with, too."""
VARIABLES = {"api-key": "VLLM_API_KEY", "hf-token": "HF_TOKEN"}
"""Options of vLLM that carry a secret, and the variable it reads instead."""


def secret_option(name: str) -> bool:
    """Given an option without its dashes, return whether any value of it is a secret.

    Also of an abbreviation or near miss of one, whatever vLLM makes of that.
    """
    short = len(name) > _UNLIKE and _OPTION.startswith(name)
    return short or name_says(name) is Name.SECRET


def secret_variable(name: str, value: str) -> bool:
    """Given a variable, return whether it holds a secret, as `kimisvc check` would find."""
    return bool(value) and bool(secret_in(name, value))


def shown(word: str) -> str:
    """Given a word of the original, return it for a comment: one line, short, no secret in it."""
    name, equals, value = word.partition("=")
    if equals and value and (names_a_secret(name.lstrip("-")) or looks_secret(value)):
        return f"{CONTROL.sub('?', name)}=... {_HIDDEN}"
    if looks_secret(word):
        return f"a value that looks like a secret {_HIDDEN}"
    plain = CONTROL.sub("?", word)
    return f"{plain[:_LONGEST]}..." if len(plain) > _LONGEST else plain
