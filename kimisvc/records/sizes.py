"""Bytes in the units in which people speak of memory."""

from __future__ import annotations

MIB, GIB = 1 << 20, 1 << 30
"""Bytes in a mebibyte and a gibibyte."""
