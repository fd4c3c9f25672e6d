"""import and schema: what comes out is a profile, and says what is wrong with the original."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from typing import TYPE_CHECKING

import pytest

from kimisvc.cli.main import main
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.schema import schema

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "/opt/vllm/bin/vllm serve org/model -tp 2 --host 127.0.0.1 --port 8100"
UNIT = f"[Service]\nUser=vllm\nExecStart={GOOD}\nEnvironment=HF_TOKEN=topsecretTOPSECRET\n"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "topsecret" not in (said.out + said.err).casefold()
    return status, said.out, said.err


@pytest.mark.parametrize(
    "words", [[GOOD], ["--", *GOOD.split()], ["env", "A=1", *GOOD.split()[:3]]]
)
def test_a_command_as_one_text_or_as_words(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status, out, _ = call(capsys, "import", *words)
    assert status == 0
    assert tomllib.loads(out)["vllm"]["model"] == "org/model"


def test_what_comes_out_is_sound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    status, out, err = call(capsys, "import", GOOD, "-o", str(file), "--instance", "two")
    assert (status, out) == (0, "")
    assert tomllib.loads(file.read_text())["service"]["instance"] == "two"
    assert call(capsys, "check", str(file))[:2] == (0, f"{file}: sound\n"), err


def test_a_file_is_not_replaced_unless_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("precious")
    status, _, err = call(capsys, "import", GOOD, "-o", str(file))
    assert status == 1
    assert "--overwrite" in err
    assert file.read_text() == "precious"
    assert call(capsys, "import", GOOD, "-o", str(file), "--overwrite")[0] == 0
    assert tomllib.loads(file.read_text())["vllm"]["port"] == 8100


def test_a_device_or_pipe_is_never_replaced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, _, err = call(capsys, "import", GOOD, "-o", str(pipe), "--overwrite")
    assert status == 1
    assert "no plain file" in err
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_problems_of_the_original_are_named_and_it_is_printed_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"{GOOD} --ssl-keyfile /k --api-key topsecret --port 99999"
    status, out, err = call(capsys, "import", command)
    assert status == 3
    document = tomllib.loads(out)
    assert document["args"]["ssl-keyfile"] == "/k"
    lines = out.splitlines()
    for key, line in (("vllm.port", "port = 99999"), ("args.ssl-keyfile", "ssl-keyfile")):
        number = next(n for n, text in enumerate(lines, 1) if text.startswith(line))
        assert f"(profile):{number}: {key}: " in err
    assert "secrets left out, for the secrets file: VLLM_API_KEY (from --api-key)" in err


def test_a_unit_by_its_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    unit = tmp_path / "mine.service"
    unit.write_text(UNIT)
    status, out, err = call(capsys, "import", "--unit", str(unit))
    assert status == 0
    assert tomllib.loads(out)["service"]["user"] == "vllm"
    assert "HF_TOKEN" in err


def test_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "import", "--json", f"{GOOD} stray --api-key topsecret")
    answer = json.loads(out)
    assert (status, err) == (0, "")
    assert answer["name"] == "model"
    assert answer["secrets"] == ["VLLM_API_KEY"]
    assert answer["not_understood"][0]["what"] == "the word stray"
    assert tomllib.loads(answer["profile"])["args"] == {"tensor-parallel-size": 2}
    assert answer["problems"] == []


@pytest.mark.parametrize("words", [[], [GOOD, "--unit", "x"]])
def test_one_of_a_command_and_a_unit(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, err = call(capsys, "import", *words)
    assert (status, out) == (2, "")
    assert "--unit" in err


@pytest.mark.parametrize("words", [["llama-server"], ["--unit", "no-such-unit-at-all"]])
def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, err = call(capsys, "import", *words)
    assert (status, out) == (1, "")
    assert "hint: " in err


def args_of(capsys: pytest.CaptureFixture[str], words: str) -> tuple[dict[str, object], str]:
    """What stands in [args] for some words more than GOOD has, and the whole of what was said."""
    status, out, err = call(capsys, "import", f"{GOOD} {words}")
    assert (status, "error" in err) == (0, False), err
    found = tomllib.loads(out)["args"]
    del found["tensor-parallel-size"]
    return found, out + err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--default-chat-template-kwargs.enable_thinking false",
         {"default-chat-template-kwargs.enable_thinking": False}),
        ("""--hf-overrides.architectures '["X"]'""", {"hf-overrides.architectures": ["X"]}),
        ("--compilation-config.cudagraph_capture_sizes='[1,2,4,8]'",
         {"compilation-config.cudagraph_capture_sizes": [1, 2, 4, 8]}),
        ("-cc.custom_ops+ -rms_norm,+silu_and_mul",
         {"compilation-config.custom_ops": ["-rms_norm", "+silu_and_mul"]}),
    ],
)  # fmt: skip
def test_the_field_of_a_table_means_what_it_meant_to_vllm(
    capsys: pytest.CaptureFixture[str], words: str, found: dict[str, object]
) -> None:
    assert args_of(capsys, words)[0] == found


def test_an_abbreviation_is_no_secret_but_one_of_a_secret_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, said = args_of(capsys, "--max-num-batched-token=65536 --hf-tok topsecret")
    assert found == {"max-num-batched-tokens": 65536}
    assert "# written --max-num-batched-token\n" in said
    assert "secrets left out, for the secrets file: HF_TOKEN (from --hf-token)" in said


def test_a_field_that_toml_cannot_hold_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found, said = args_of(capsys, "--hf-overrides.rope_scaling null")
    assert found == {}
    assert "not understood: --hf-overrides.rope_scaling: was left out: " in said


@pytest.mark.parametrize("kind", ["pipe", "loop", "device", "endless"])
def test_a_file_that_is_none_is_named_and_nothing_waits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    odd, said = tmp_path / "odd.service", "is no regular file but a"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "loop":
        odd.symlink_to(odd)
        said = "Too many levels of symbolic links"
    elif kind == "device":
        odd.symlink_to("/dev/zero")
    else:
        with odd.open("wb") as file:
            file.truncate(1 << 40)
        said = "is larger than 16 MiB"
    for words in (["--unit", str(odd)], [f"{GOOD} --config {odd}"]):
        status, out, err = call(capsys, "import", *words)
        assert (status, out) == (1, "")
        assert str(odd) in err
        assert said in err
    unit = tmp_path / "good.service"
    unit.write_text(f"{UNIT}EnvironmentFile={odd}\n")
    status, out, err = call(capsys, "import", "--unit", str(unit))
    assert status == 0, err
    assert said in err.replace("\n", " ")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str], form: tuple[str, ...]) -> None:
    status, out, _ = call(capsys, "schema", *form)
    assert status == 0
    assert json.loads(out) == schema(shipped_knowledge())
    assert "tensor-parallel-size" in json.loads(out)["properties"]["args"]["properties"]
