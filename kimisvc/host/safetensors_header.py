"""Whether a file of weights is whole, told from its first bytes and its size.

A safetensors file is 8 bytes (little-endian) with the length of a JSON header,
that header, and the tensors; its reader refuses a header over 100 MB and a file
whose size is not exactly where the last tensor ends (safetensors, README
"Format" and `SafeTensors::read_metadata`). So no tensor has to be read.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that git checked out without its content (git-lfs, docs/spec.md)."""
LONGEST_POINTER = 1024
GGUF_MAGIC = b"GGUF"
_POINTER_SIZE = re.compile(rb"^size (\d+)$", re.MULTILINE)
# Names are not needed, and a header of a large model takes json four times as long as this.
_ENDS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d+)\s*\]')


def fault(path: Path) -> str:
    """Given a file of weights of any kind, say what is wrong with it; "" if nothing is seen.

    Only a safetensors file tells its size; of others, that they are not empty,
    no git-lfs pointer, and of GGUF the magic.
    """
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(LONGEST_POINTER)
            common = _common_fault(size, start)
            if common:
                return common
            if path.suffix == ".safetensors":
                length = int.from_bytes(start[:LENGTH_BYTES], "little")
                if LENGTH_BYTES + length > size or length > LONGEST_HEADER:
                    return _header_fault(size, length)
                file.seek(LENGTH_BYTES)
                return _safetensors_fault(size, file.read(length))
    except OSError as error:
        return error.strerror or str(error)
    if path.suffix == ".gguf" and not start.startswith(GGUF_MAGIC):
        return "is no GGUF file (its first four bytes are not GGUF)"
    return ""


def _common_fault(size: int, start: bytes) -> str:
    if size == 0:
        return "is empty"
    if start.startswith(LFS_POINTER):
        meant = _POINTER_SIZE.search(start)
        how_much = f" of {human(int(meant[1]))}" if meant else ""
        return f"is a git-lfs pointer and not the file{how_much}: run git lfs pull there"
    return ""


def _header_fault(size: int, length: int) -> str:
    if length > LONGEST_HEADER:
        return "is no safetensors file (its header would be longer than 100 MB)"
    missing = LENGTH_BYTES + length - size
    return f"is cut off in its header: at least {missing:,} bytes are missing; fetch it again"


def _safetensors_fault(size: int, header: bytes) -> str:
    if not (header.startswith(b"{") and header.rstrip().endswith(b"}")):
        return "is no safetensors file (its header is no JSON object)"
    ends = max((int(end) for end in _ENDS.findall(header)), default=0)
    whole = LENGTH_BYTES + len(header) + ends
    if size < whole:
        missing = whole - size
        return f"is cut off: {missing:,} of {whole:,} bytes are missing; fetch it again"
    if size > whole:
        return f"is {size - whole:,} bytes longer than its header says; fetch it again"
    return ""


def human(size: int) -> str:
    """Given bytes, return them as an operator says them: `9.8 GB` (decimal, as hubs show them)."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
