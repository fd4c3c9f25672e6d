"""What was likely meant by a key or table that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.problems import key_name
from kimisvc.profile.settings import FREE_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADERS = {"golden": "[[golden]]", "": "the top of the file, above the first table"}


def near_name(name: str, names: Iterable[str]) -> str:
    """Given a name that is not among the names, return the nearest that is, or ""."""
    from difflib import get_close_matches  # only a profile with a problem pays

    found = get_close_matches(name.lower().replace("-", "_"), list(names), 1)
    return found[0] if found else ""


def header(table: str) -> str:
    """Given the name of a table, return how a profile writes its header."""
    return _HEADERS.get(table, f"[{table}]")


def unknown_key(table: str, key: str) -> str:
    """Given a table and a key it does not have, return the message, with what was meant."""
    message = "unknown key."
    if not table and key in (*TABLES, *FREE_TABLES):
        return f"is a table. Write {header(key)} on a line of its own, and its keys below"
    near = near_name(key, TABLES[table])
    homes = [header(other) for other, rows in TABLES.items() if other != table and key in rows]
    if near:
        message += f" Did you mean {near}?"
    shown = key_name((key,))
    if homes:
        message += f" {shown} belongs in {' or '.join(homes)}"
    elif key.isupper():
        message += f" If {shown} is an environment variable, it belongs in [env]"
    elif not near and table in ("vllm", "service"):
        message += " If it is an option of `vllm serve`, it belongs in [args]"
    elif not near:
        keys = ", ".join(TABLES[table])
        message += f" The keys here are: {keys}"
    return message


def unknown_table(name: str) -> str:
    """Given a table that does not exist, return the message, with what was meant."""
    tables = [table for table in TABLES if table] + list(FREE_TABLES)
    near = near_name(name, tables)
    meant = (
        f"Did you mean {header(near)}?"
        if near
        else "There are: " + " ".join(header(table) for table in tables)
    )
    return f"unknown table. {meant}"
