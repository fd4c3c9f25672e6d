"""Where a run takes place, and the profiles that are made for it out of one base profile.

A place is a TOML file of `places/`: its base profile, and what tells the second, the refused and
the poisoned profile from it.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
UNREACHABLE = 100_000
"""A floor that no server reaches (tok/s)."""
BASE, SECOND, FLOOR, POISONED, REFUSED = (
    "gpu_base", "gpu_second", "gpu_floor", "gpu_poisoned", "gpu_refused",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """What the steps have to know of the place. `second_env` is what the second profile adds."""

    base: Path
    shipped: Path
    executable: Path
    model: str
    served: str
    port: int
    instance: str
    env: Mapping[str, str]
    second_env: Mapping[str, str]
    poison: str
    poison_env: Mapping[str, str]
    poison_words: str
    refused_by_check: Mapping[str, str]
    bench_prompts: int
    max_tokens: int
    prompt_tokens: int

    @property
    def url(self) -> str:
        """Where the server is reached."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> str:
        """The unit of vLLM."""
        return f"kimisvc-{self.instance}.service"

    @property
    def python(self) -> Path:
        """The Python that vLLM runs with."""
        return self.executable.parent / "python3"


def place(path: Path, shipped: Path) -> Place:
    """Given a place's file and the folder of shipped profiles, return the place."""
    told = tomllib.loads(path.read_text())
    base = path.parent / told["base"]
    settings = with_parents(base, shipped)
    second = told.get("second_env")
    if second is None:
        second = tomllib.loads((shipped / f"{told['second']}.toml").read_text())["env"]
    vllm, probe = settings["vllm"], settings["probe"]
    return Place(
        base=base, shipped=shipped, executable=Path(vllm["executable"]), model=vllm["model"],
        served=vllm["served_model_name"], port=vllm["port"],
        instance=settings["service"]["instance"], env=settings.get("env", {}), second_env=second,
        poison=told["poison"], poison_env=told["poison_env"], poison_words=told["poison_words"],
        refused_by_check=told["refused_by_check"], bench_prompts=told["bench_prompts"],
        max_tokens=probe["max_tokens"], prompt_tokens=probe["prompt_tokens"],
    )  # fmt: skip


def with_parents(path: Path, shipped: Path) -> dict[str, Any]:
    """Given a profile, return its keys over those of what it extends, table by table."""
    own = tomllib.loads(path.read_text())
    if "extends" not in own:
        return own
    beside = path.parent / own["extends"]
    merged = with_parents(beside if beside.exists() else shipped / own["extends"], shipped)
    for key, value in own.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def write_profiles(where: Place, folder: Path, gpus: int, target: str) -> dict[str, Path]:
    """Given a place, write all profiles of a run into a folder; return them by name.

    `gpus` of them work together; 0 leaves that to the base profile. `target`
    "" leaves the base profile's own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(where.base, folder / "place_base.toml")
    poison = folder / "poison.env"
    poison.touch(mode=0o600)
    poison.write_text(f"{where.poison}\n")
    base: dict[str, Mapping[str, Any]] = {}
    if gpus:
        base = {"args": {"tensor-parallel-size": gpus}, "hardware": {"gpus": gpus}}
    if target:
        base["gate"] = {"decode_tok_s": target}
    texts = {
        BASE: extending("place_base", BASE, base),
        SECOND: extending(BASE, SECOND, {"env": where.second_env}),
        FLOOR: extending(BASE, FLOOR, {"gate": {"decode_tok_s": UNREACHABLE}}),
        # One try: the second would fail alike, and take as long.
        POISONED: extending(
            BASE, POISONED,
            {"service": {"starts": 1, "secrets_file": str(poison)}, "env": where.poison_env},
        ),
        REFUSED: extending(BASE, REFUSED, {"env": where.refused_by_check}),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return {name: folder / f"{name}.toml" for name in texts}


def extending(parent: str, name: str, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Given what a profile extends, its name and its own tables, return its text."""
    lines = ["schema = 1", f'extends = "{parent}.toml"', f'name = "{name}"']
    for table, keys in tables.items():
        if keys:
            # A JSON string or number is one of TOML, too.
            lines += ["", f"[{table}]", *(f"{k} = {json.dumps(v)}" for k, v in keys.items())]
    return "\n".join(lines) + "\n"
