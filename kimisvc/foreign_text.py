"""Makes a text that others wrote (a server, a unit, a file name) fit for where it is shown or kept. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Given a text from outside, return it without what would steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def well_formed(text: str) -> str:
    """Given a text, return it without halves of surrogate pairs, which JSON can bring and UTF-8 not hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
