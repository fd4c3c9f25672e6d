"""What a profile asks vLLM to write to, and so what its unit has to open. Pure.

ProtectSystem=strict shows the whole box read-only to the service but for its
CacheDirectory= (systemd.exec(5)); a folder that an option or a variable names
would be found closed after the load. One row a key: `WRITTEN`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.render.arguments import option_name
from kimisvc.render.hub_caches import CACHES, Use, table, use_of
from kimisvc.render.quoting import list_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records.profile import Profile

CACHE = "/var/cache/kimisvc"
OF_ITS_OWN = ("/tmp", "/var/tmp", "/dev")  # noqa: S108 - named, not used
"""Where a unit may write as it is: its PrivateTmp=, and what ProtectSystem= leaves alone."""
HIDDEN = ("/home", "/root", "/run/user")
"""What ProtectHome= hides; ReadWritePaths= does not bring it back."""
_WHOLE = frozenset(
    {"/", "/media", "/mnt", "/opt", "/run", "/srv",
     "/var", "/var/cache", "/var/lib", "/var/log", "/var/spool"}
)  # fmt: skip
_ALL_BELOW = (
    "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/efi", "/sys", "/proc",
    "/var/lib/kimisvc", "/var/lib/systemd",
)  # fmt: skip


class Form(Enum):
    """What a value names: a folder, or what needs one that is there already."""

    FOLDER = "a folder"
    STANDING = "a folder that nobody makes"
    FILE = "a file"


class Lack(Enum):
    """What becomes of a service that cannot write there."""

    ENDS = "vLLM ends, or fetches nothing"
    LOST = "what was asked for is not written"
    READS = "to read it is enough, and needed: the model or a part of it lies there"
    NOTHING = "vLLM goes on: it needs nothing there, or nothing but what is there already"


@dataclass(frozen=True, slots=True)
class Written:
    """An option of [args] or a variable of [env] that names what is written to.

    `field` is a key within the table that the option takes.
    """

    table: str
    name: str
    form: Form
    lack: Lack
    field: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One value of such a key: as it is written, where that is, and the folder to be opened.

    `path` and `folder` are None where nobody can tell: a relative path without a
    working directory.
    """

    key: str
    word: str
    form: Form
    lack: Lack
    path: PurePosixPath | None
    folder: PurePosixPath | None


def _folders(lack: Lack, names: str) -> tuple[Written, ...]:
    return tuple(Written("env", name, Form.FOLDER, lack) for name in names.split())


def _files(names: str) -> tuple[Written, ...]:
    return tuple(Written("env", name, Form.FILE, Lack.LOST) for name in names.split())


WRITTEN: tuple[Written, ...] = (
    *_folders(
        Lack.ENDS, "HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_XET_CACHE HF_MODULES_CACHE"
    ),
    *_folders(Lack.ENDS, "VLLM_CACHE_ROOT TRITON_CACHE_DIR TRITON_HOME TILELANG_CACHE_DIR"),
    *_folders(Lack.ENDS, "TORCHINDUCTOR_CACHE_DIR TORCH_EXTENSIONS_DIR FLASHINFER_WORKSPACE_BASE"),
    *_folders(Lack.ENDS, "DG_JIT_CACHE_DIR NUMBA_CACHE_DIR MODELSCOPE_CACHE TVM_FFI_CACHE_DIR"),
    *_folders(Lack.ENDS, "TIKTOKEN_CACHE_DIR DATA_GYM_CACHE_DIR"),
    *_folders(Lack.LOST, "HOME TMPDIR XDG_CACHE_HOME CUDA_CACHE_PATH TORCH_HOME TORCH_TRACE"),
    *_folders(Lack.LOST, "HF_ASSETS_CACHE HUGGINGFACE_ASSETS_CACHE TORCH_COMPILE_DEBUG_DIR"),
    *_folders(Lack.LOST, "VLLM_ASSETS_CACHE VLLM_MEDIA_CACHE VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"),
    *_folders(Lack.LOST, "VLLM_DEBUG_DUMP_PATH TRITON_DUMP_DIR CUTE_DSL_CACHE_DIR"),
    *_folders(Lack.NOTHING, "XDG_CONFIG_HOME VLLM_CONFIG_ROOT"),
    *_folders(Lack.NOTHING, "FLASHINFER_CUBIN_DIR OUTLINES_CACHE_DIR"),
    Written("env", "VLLM_RPC_BASE_PATH", Form.STANDING, Lack.ENDS),
    *_files(
        "NCCL_DEBUG_FILE NCCL_TOPO_DUMP_FILE NCCL_GRAPH_DUMP_FILE CUDA_LOG_FILE TORCH_LOGS_OUT"
    ),
    Written("args", "download-dir", Form.FOLDER, Lack.ENDS),
    Written("args", "compilation-config", Form.FOLDER, Lack.ENDS, "cache_dir"),
    Written("args", "compilation-config", Form.FOLDER, Lack.LOST, "debug_dump_path"),
    Written("args", "profiler-config", Form.FOLDER, Lack.LOST, "torch_profiler_dir"),
    Written("args", "profiler-config", Form.FOLDER, Lack.LOST, "proton_profiler_dir"),
    Written("args", "mm-encoder-fp8-scale-save-path", Form.FILE, Lack.LOST),
)
"""Every key that names a folder or file which vLLM or a library in it writes.

From their manuals, and from vllm/envs.py of 0.32, huggingface_hub/constants.py
of 2.4, tiktoken/load.py and tvm_ffi/cpp/extension.py. VLLM_XLA_CACHE_PATH is
read by nothing. Nobody makes the folder of vLLM's sockets (utils/network_utils.py).
"""
_OF_USE = MappingProxyType({Use.READ: Lack.READS, Use.LEFT: Lack.NOTHING})
"""What the lack of a hub's cache means that nothing is written to."""


def targets(profile: Profile) -> Iterator[Target]:
    """Given a profile, yield all that it asks to be written, key by key."""
    base = profile.service.working_directory
    for row in WRITTEN:
        for key, word in _words(row, profile):
            path = _absolute(word, base)
            folder = _folder(path, row) if path else None
            yield Target(key, word, row.form, _lack(row, profile), path, folder)


def read_write_paths(profile: Profile) -> tuple[str, ...]:
    """Given a profile, return the words of ReadWritePaths=, quoted as systemd takes them.

    With a `-` a folder may be missing; without one the unit then fails at once,
    in the place of a load that ends there.
    """
    return tuple(_opening_words(profile).values())


def opened_by(profile: Profile) -> Mapping[str, tuple[str, ...]]:
    """Given a profile, return for each key that names a folder to be opened its words of ReadWritePaths=."""
    words = _opening_words(profile)
    found: dict[str, dict[str, None]] = {}
    for key, folder in _outside(profile, *Lack):
        opened = next(word for one, word in words.items() if folder.is_relative_to(one))
        found.setdefault(key, {})[opened] = None
    return {key: tuple(each) for key, each in found.items()}


def _opening_words(profile: Profile) -> dict[PurePosixPath, str]:
    needed = frozenset(_with_needed(profile))
    return {
        folder: list_word(str(folder) if folder in needed else f"-{folder}")
        for folder in _opened(profile)
    }


def mounted_folders(profile: Profile) -> tuple[PurePosixPath, ...]:
    """Given a profile, return the folders that have to be mounted first: to be written, or to be read.

    Each as it is named, whatever folder above it is opened, and the system's own as well:
    on each a file system of its own may lie, and those above come with it (systemd.unit(5),
    RequiresMountsFor=).
    """
    instance = profile.service.instance
    found = {
        target.folder
        for target in targets(profile)
        if target.folder and target.lack in (Lack.ENDS, Lack.READS)
    }
    return tuple(sorted(one for one in found if not _is_beside(one, instance)))


def needed_keys(profile: Profile) -> frozenset[str]:
    """Given a profile, return the keys that name a folder which its unit does not start without."""
    return frozenset(key for key, _ in _outside(profile, Lack.ENDS))


def _opened(profile: Profile) -> tuple[PurePosixPath, ...]:
    """All folders that the unit opens, but those in another: they are open, or made there."""
    folders = {folder for _, folder in _outside(profile, *Lack)}
    return tuple(folder for folder in sorted(folders) if folders.isdisjoint(folder.parents))


def _with_needed(profile: Profile) -> Iterator[PurePosixPath]:
    """The opened folders in which one lies that vLLM ends without."""
    needed = [folder for _, folder in _outside(profile, Lack.ENDS)]
    yield from (f for f in _opened(profile) if any(one.is_relative_to(f) for one in needed))


def _outside(profile: Profile, *lacks: Lack) -> Iterator[tuple[str, PurePosixPath]]:
    """Each key of these kinds with a folder that is not open already."""
    for target in targets(profile):
        folder = target.folder
        if folder and target.lack in lacks and is_opened(folder, profile.service.instance):
            yield target.key, folder


def is_opened(folder: PurePosixPath, instance: str) -> bool:
    """Given a folder, say whether a unit opens it: not what is open already, hidden or the system's."""
    return not _is_beside(folder, instance) and not is_the_systems(folder)


def _is_beside(folder: PurePosixPath, instance: str) -> bool:
    """Whether it is open as it is, or hidden, whatever a profile asks."""
    known = (*OF_ITS_OWN, *HIDDEN, f"{CACHE}/{instance}")
    return any(folder.is_relative_to(one) for one in known)


def is_the_systems(folder: PurePosixPath) -> bool:
    """Given a folder, say whether it is the system's own: to open it would undo the protection."""
    return str(folder) in _WHOLE or any(folder.is_relative_to(one) for one in _ALL_BELOW)


def _words(row: Written, profile: Profile) -> Iterator[tuple[str, str]]:
    """Each non-empty string that stands under a key: alone, in a table, in JSON, behind a dot."""
    if row.table == "env":
        if word := profile.env.get(row.name):
            yield f"env.{row.name}", word
        return
    for written, value in profile.args.items():
        name, _, field = option_name(written).partition(".")
        if name != row.name:
            continue
        inner: object = value if field.replace("-", "_") == row.field else None
        if not field and row.field:
            inner = table(value).get(row.field)
        if isinstance(inner, str) and inner:
            yield f"args.{written}", inner


def _absolute(word: str, base: str) -> PurePosixPath | None:
    path = PurePosixPath(base) / word
    return path if path.is_absolute() and ".." not in path.parts else None


def _folder(path: PurePosixPath, row: Written) -> PurePosixPath:
    """What has to be open: the folder, that of a file, or what stands before a %h of NCCL's."""
    folder = path.parent if row.form is Form.FILE else path
    if row.name != "NCCL_DEBUG_FILE":
        return folder
    patterned = (up for up in (*reversed(folder.parents), folder) if "%" in up.name)
    first = next(patterned, None)
    return first.parent if first else folder


def _lack(row: Written, profile: Profile) -> Lack:
    """Of what comes from a hub and is all there, reading is enough."""
    return _OF_USE.get(use_of(row.name, profile), row.lack) if row.name in CACHES else row.lack
