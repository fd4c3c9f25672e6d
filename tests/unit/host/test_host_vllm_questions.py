"""The questions a vLLM is asked, put to parsers and readers made up here."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import os
import subprocess
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

import like_pydantic
import pytest
from like_pydantic import bounded

from kimisvc.host.vllm_inspect import program
from kimisvc.host.vllm_questions import first_sentence, options, variables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def optional_type(return_type: Callable[[str], Any]) -> Callable[[str], Any]:
    """As vLLM has it: what it converts to lies in a closure."""

    def _optional_type(value: str) -> Any:
        return None if value in ("", "None") else return_type(value)

    return _optional_type


def human_readable_int(value: str) -> int:
    return int(value)


def human_readable_int_or_auto(value: str) -> int:
    return int(value)


def union_dict_and_str(value: str) -> Any:
    return value


class EnableDisable(argparse.BooleanOptionalAction):
    """As vLLM 0.33 has it: a second opposite, and help hides the first."""

    def __init__(self, option_strings: list[str], dest: str, **rest: Any) -> None:
        super().__init__(option_strings, dest, **rest)
        inverse = option_strings[0].replace("--enable-", "--disable-")
        self.negative_option_strings = {inverse}
        self.option_strings = [*self.option_strings, inverse]


def asked(*names: str, **rest: Any) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument(*names, **rest)
    (row,) = options(parser)
    return row


@pytest.mark.parametrize(
    ("convert", "kind"),
    [
        (int, "INTEGER"),
        (float, "NUMBER"),
        (str, "TEXT"),
        (None, "TEXT"),
        (json.loads, "JSON"),
        (human_readable_int, "SIZE"),
        (union_dict_and_str, "JSON_OR_TEXT"),
    ],
)
def test_kinds(convert: Any, kind: str) -> None:
    assert asked("--x", type=convert)["kind"] == kind
    if convert:
        row = asked("--x", type=optional_type(convert))
        assert (row["kind"], row["unset"]) == (kind, True)


def test_a_length_has_words_beside_numbers() -> None:
    row = asked("--max-model-len", type=human_readable_int_or_auto)
    assert (row["kind"], row["choices"]) == ("SIZE", ["auto", "-1"])


def test_names_long_and_short() -> None:
    row = asked("--gpu-memory", "--device-memory", "-gm", type=float, default=0.92)
    assert row["name"] == "gpu-memory"
    assert row["aliases"] == ["device-memory", "gm"]
    assert row["short"] == ["gm"]
    assert row["default"] == "0.92"


def test_flags_and_their_opposites() -> None:
    assert "negatives" not in asked("--headless", action="store_true")
    assert asked("--x", action=argparse.BooleanOptionalAction)["negatives"] == ["no-x"]
    row = asked("--enable-x", action=EnableDisable)
    assert row["negatives"] == ["no-enable-x", "disable-x"]
    assert row["kind"] == "FLAG"


def test_choices() -> None:
    assert asked("--x", choices=["a", "b", None])["choices"] == ["a", "b"]
    folding = asked("--x", choices=["a_b"], type=lambda v: v.lower().replace("-", "_"))
    assert folding["choice_rule"] == "ANY_CASE"
    known = asked("--x", metavar=("a", "b"), nargs=2)
    assert (known["choices"], known["choice_rule"]) == (["a", "b"], "OPEN")


@pytest.mark.parametrize(
    "rest", [{"nargs": "+"}, {"nargs": "*"}, {"nargs": 2}, {"action": "append"}]
)
def test_several_values(rest: dict[str, Any]) -> None:
    assert asked("--x", **rest)["many"] is True


def test_help_and_positionals_are_no_options() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model_tag")
    parser.add_argument("-v", "--version", action="version", version="1")
    assert options(parser) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, ""),
        (argparse.SUPPRESS, ""),
        ("\n\nAPI docs: x", ""),
        ("One. Two.", "One."),
        ("One\nline 50%% long.\n\nMore", "One line 50% long."),
        ("In v0.33.0 it goes, e.g. here. - x", "In v0.33.0 it goes, e.g. here."),
    ],
)
def test_the_first_sentence_of_a_help(text: str | None, sentence: str) -> None:
    assert first_sentence(text) == sentence


# ---------------------------------------------------------------- values


class Level(enum.IntEnum):
    NONE = 0
    FULL = 3


@like_pydantic.like_pydantic
class Inner:
    fuse: bool = False
    share: float = bounded(0.5, gt=0, le=1)


@like_pydantic.like_pydantic
class Outer:
    made: typing.ClassVar[int] = 0
    mode: Level = Level.NONE
    role: typing.Literal["reader", "writer"] | None = None
    many: int | None = bounded(None, ge=1)
    unsure: int | str | None = None
    open: typing.Any = None
    names: list[str] = dataclasses.field(default_factory=list)
    extra: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    inner: Inner = dataclasses.field(default_factory=Inner)
    hidden: int = dataclasses.field(default=0, init=False)
    text: str = ""

    def __post_init__(self) -> None:
        Outer.made += 1


def _parse_dataclass(value: str, cls: Any = Outer) -> Any:
    return cls(**json.loads(value))


_parse_dataclass.__name__ = "parse_dataclass"


@pytest.fixture(autouse=True)
def _pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", like_pydantic)


def test_a_table_tells_what_its_fields_take() -> None:
    row = asked("--x", type=_parse_dataclass)
    assert set(row["fields"]) == {
        "mode", "role", "many", "unsure", "open", "names", "extra", "inner", "text",
    }  # fmt: skip
    assert row["value"] == {
        "fields": {
            "mode": {
                "kind": "WORDS",
                "choices": ["0", "FULL", "3", "NONE"],
                "choice_rule": "ANY_CASE",
            },
            "role": {"kind": "WORDS", "choices": ["reader", "writer"]},
            "many": {"kind": "INTEGER", "ge": 1},
            "names": {"kind": "LIST"},
            "extra": {"kind": "TABLE"},
            "text": {"kind": "TEXT"},
            "inner": {
                "kind": "TABLE",
                "fields": {
                    "fuse": {"kind": "SWITCH"},
                    "share": {"kind": "NUMBER", "gt": 0, "le": 1},
                },
            },
        }
    }
    assert Outer.made == 0  # asked without being made


def test_a_table_that_takes_any_field_is_not_tried() -> None:
    @dataclasses.dataclass
    class Plain:
        a: int = 0

    def parse_dataclass(value: str, cls: Any = Plain) -> Any:
        return cls(value)

    row = asked("--x", type=parse_dataclass)
    assert row["fields"] == ["a"]
    assert "value" not in row


def grouped(monkeypatch: pytest.MonkeyPatch, name: str, group: str = "Outer", **rest: Any) -> Any:
    """What is told of an option in a group that is named after a dataclass of vllm.config."""
    config = types.ModuleType("vllm.config")
    config.Outer = Outer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.config", config)
    parser = argparse.ArgumentParser()
    parser.add_argument_group(group).add_argument(name, **rest)
    (row,) = options(parser)
    return row.get("value")


def test_a_plain_number_has_the_bounds_of_the_field_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert grouped(monkeypatch, "--many", type=int) == {"ge": 1}
    assert grouped(monkeypatch, "--share", type=float) == {"gt": 0, "le": 1}
    assert grouped(monkeypatch, "--many", type=int, nargs="+") is None
    assert grouped(monkeypatch, "--many", type=int, group="Other") is None
    assert grouped(monkeypatch, "--other", type=int) is None
    assert grouped(monkeypatch, "--role", type=str) is None  # words are the parser's to tell


# ---------------------------------------------------------------- variables


def _get() -> str:
    return os.environ["VLLM_X"]


def _chosen(*words: str, fold: Callable[[str], str] = str) -> Callable[[], str]:
    def read() -> str:
        if fold(_get()) not in words:
            raise ValueError(f"Invalid value '{_get()}' for VLLM_X. Valid options: {list(words)}.")
        return _get()

    return read


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (lambda: bool(int(_get())), ["SWITCH"]),
        (lambda: _get() == "1", ["ONE"]),
        (lambda: _get().lower() in ("1", "true"), ["TRUE"]),
        (lambda: _get().lower() == "true", ["ONLY_TRUE"]),
        (lambda: _get() != "0", ["NOT_ZERO"]),
        (lambda: int(_get()), ["INTEGER"]),
        (lambda: float(_get()), ["NUMBER"]),
        (lambda: json.loads(_get())["a"], ["TEXT"]),
        (lambda: _get().split(","), ["TEXT"]),
        (_chosen("spawn", "fork"), ["CHOICE", "spawn", "fork"]),
        (_chosen("high", "low", fold=str.lower), ["WORD", "high", "low"]),
        (lambda: [_chosen("a", "b", "a,b")()], ["TEXT"]),
    ],
)
def test_how_a_variable_is_read(read: Callable[[], Any], row: list[str]) -> None:
    assert variables({"VLLM_X": read}) == {"VLLM_X": row}


def test_asking_changes_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_X", "kept")
    monkeypatch.delenv("VLLM_Y", raising=False)
    assert set(variables({"VLLM_X": _get, "VLLM_Y": _get, "HOME": _get})) == {"VLLM_X", "VLLM_Y"}
    assert os.environ["VLLM_X"] == "kept"
    assert "VLLM_Y" not in os.environ


# ---------------------------------------------------------------- the program


def test_the_questions_run_where_no_kimisvc_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program()], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "No module named 'vllm'" in done.stderr.splitlines()[-1]
