"""Variables of any process, and of the folders that vLLM's libraries write to: one row each."""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.variables.grammar import absolute_path, folders
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_XDG = "XDG Base Directory Specification"
_ENVIRON = "environ(7)"
_FILES = "changes where files are found only"
_COMPILED = "changes where compiled kernels lie only; the first start into it compiles anew"

process = partial(
    Variable, acts_on=ActsOn.PROCESS, syntax=absolute_path, risk=Risk.SAFE, why=_FILES
)

OF_THE_PROCESS: tuple[Variable, ...] = (
    process("PATH", "Folders where programs are looked for.", document=_ENVIRON,
            syntax=folders(":"), risk=Risk.SAFE_ISH,
            why="other compilers, or other programs of the same name, may be found"),
    process("HOME", "Folder that programs take for the user's own.", document=_ENVIRON),
    process("TMPDIR", "Folder of temporary files, sockets between processes among them.",
            document=_ENVIRON),
    process("XDG_CACHE_HOME", "Folder of caches that have no variable of their own.",
            document=_XDG),
    process("XDG_CONFIG_HOME", "Folder of settings that have no variable of their own.",
            document=_XDG),
    process("TRITON_CACHE_DIR", "Folder of the kernels that Triton compiled.", why=_COMPILED,
            document="Triton, knobs.py"),
    process("TRITON_HOME", "Folder in which Triton has its .triton.", why=_COMPILED,
            document="Triton, knobs.py"),
    process("TORCHINDUCTOR_CACHE_DIR", "Folder of what torch.compile compiled.", why=_COMPILED,
            document="PyTorch, Compile Time Caching Configuration"),
    process("TORCH_HOME", "Folder of models of torch.hub.", document="PyTorch, torch.hub"),
    process("TORCH_EXTENSIONS_DIR", "Folder of the extensions that PyTorch compiled.",
            why=_COMPILED, document="PyTorch, torch.utils.cpp_extension"),
    process("FLASHINFER_WORKSPACE_BASE", "Folder in which FlashInfer keeps its kernels.",
            why=_COMPILED, document="FlashInfer, jit/env.py"),
    process("HF_XET_CACHE", "Folder of pieces of downloaded models.",
            document="huggingface_hub manual, Environment variables"),
    process("HF_ASSETS_CACHE", "Folder of what libraries of Hugging Face make.",
            document="huggingface_hub manual, Environment variables"),
    process("DO_NOT_TRACK", "1 sends no statistics of use.", syntax=None,
            why="changes what is reported to others only", document="consoledonottrack.com"),
)  # fmt: skip
"""Every variable of theirs that is known here."""
