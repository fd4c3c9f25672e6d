"""Asking a vLLM what it knows: a made-up package in an environment as pip leaves it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kimisvc.host.vllm_binary import cache_folders, knowledge
from kimisvc.host.vllm_inspect import NoAnswer
from kimisvc.records.vllm import KnownFrom, OptionKind, VariableReading, VllmKnowledge

if TYPE_CHECKING:
    from collections.abc import Iterator

STAND_IN = Path(__file__).parents[2] / "fake_vllm" / "vllm"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root asks as another")

FILES = {
    "__init__.py": "import os\n__version__ = f'9.9.9+asked.by.{os.geteuid()}'\n",
    "platforms/__init__.py": (
        "class current_platform:\n    @staticmethod\n    def is_unspecified(): return False\n"
    ),
    "utils/__init__.py": "",
    "utils/argparse_utils.py": (
        "import argparse\nclass FlexibleArgumentParser(argparse.ArgumentParser): pass\n"
    ),
    "entrypoints/__init__.py": "",
    "entrypoints/cli/__init__.py": "",
    "entrypoints/cli/serve.py": (
        "class Serve:\n"
        "    def subparser_init(self, commands):\n"
        "        print('noise on stdout')\n"
        "        parser = commands.add_parser('serve')\n"
        "        parser.add_argument('--size', '-s', type=int, default=1, help='How large. Or not.')\n"
        "        return parser\n"
        "def cmd_init(): return [Serve()]\n"
    ),
    "envs.py": (
        "import os\n"
        "environment_variables = {\n"
        "    'VLLM_X': lambda: bool(int(os.environ['VLLM_X'])),\n"
        "    'CUDA_HOME': lambda: None,\n"
        "}\n"
    ),
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that nobody may look into as well, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def environment(place: Path, **files: str) -> Path:
    """Make an environment with a vLLM 9.9.9; `files` replace some of its own."""
    packages = place / "lib" / "python3.11" / "site-packages"
    (packages / "vllm-9.9.9.dist-info").mkdir(parents=True)
    written = {**FILES, **{name.replace("__", "/") + ".py": text for name, text in files.items()}}
    for name, text in written.items():
        file = packages / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    program = place / "bin" / "vllm"
    program.parent.mkdir()
    (place / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    program.write_text(f"#!{place}/bin/python3\nraise SystemExit(9)\n")
    program.chmod(0o755)
    return program


def reason(program: Path, *caches: Path) -> str:
    """Why a vLLM tells nothing of itself."""
    known = knowledge(program, caches)
    assert isinstance(known, NoAnswer)
    return known.why


def test_what_a_vllm_tells(place: Path) -> None:
    known = knowledge(environment(place), ())
    assert isinstance(known, VllmKnowledge)
    assert known.known_from is KnownFrom.ASKED
    assert list(known.options) == ["size"]
    size = known.options["size"]
    assert (size.kind, size.aliases, size.default, size.help) == (
        OptionKind.INTEGER, ("s",), "1", "How large.",
    )  # fmt: skip
    assert known.variables == {"VLLM_X"}
    assert known.readings["VLLM_X"].reads is VariableReading.SWITCH


@as_root
def test_root_asks_as_nobody(place: Path) -> None:
    known = knowledge(environment(place), ())
    assert isinstance(known, VllmKnowledge)
    assert known.version == "9.9.9+asked.by.65534"


@as_root
def test_what_nobody_may_not_read_its_owner_is_asked_for(place: Path) -> None:
    program = environment(place)
    for path in (place, *place.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    place.chmod(0o700)
    known = knowledge(program, ())
    assert isinstance(known, VllmKnowledge)
    assert known.version == "9.9.9+asked.by.12345"


@as_root
def test_what_root_alone_may_read_is_not_asked(place: Path) -> None:
    program = environment(place)
    place.chmod(0o700)
    why = reason(program)
    assert why.startswith("ended with 126: ")
    assert why.endswith("Permission denied")


def test_asking_sees_no_secret_and_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    envs = (
        "import os\nfrom pathlib import Path\n"
        "assert 'HF_TOKEN' not in os.environ\n"
        "(Path.home() / 'litter').write_text('x')\n"
        "assert os.getcwd() == os.environ['HOME']\n"
        "environment_variables = {'VLLM_X': lambda: os.environ['HOME']}\n"
    )
    before = set(Path(tempfile.gettempdir()).iterdir())
    assert isinstance(knowledge(environment(place, envs=envs), ()), VllmKnowledge)
    left = {p for p in Path(tempfile.gettempdir()).iterdir() if p.name.startswith("kimisvc-ask-")}
    assert left <= before
    assert list(place.rglob("__pycache__")) == []


def test_it_is_asked_once(place: Path, tmp_path: Path) -> None:
    program = environment(place)
    asked: list[str] = []
    cache = tmp_path / "cache"
    first = knowledge(program, (cache,), asking=lambda: asked.append("once"))
    (place / "bin" / "python3").unlink()  # no way to ask again
    assert isinstance(first, VllmKnowledge)
    assert knowledge(program, (cache,), asking=lambda: asked.append("twice")) == first
    assert asked == ["once"]
    assert "No such file" in reason(program, tmp_path / "other")


def test_that_there_was_no_answer_hides_none_that_lies_elsewhere(
    place: Path, tmp_path: Path
) -> None:
    program, system, own = environment(place), tmp_path / "system", tmp_path / "own"
    first = knowledge(program, (own,))
    (note,) = own.iterdir()
    system.mkdir()
    nothing = {**json.loads(note.read_text()), "told": None, "asked_at": time.time()}
    (system / note.name).write_text(json.dumps(nothing))
    assert isinstance(first, VllmKnowledge)
    assert knowledge(program, (system, own)) == first


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a note that is root's")
def test_that_root_was_told_nothing_is_no_answer_to_a_user(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root asks as nobody; this user's group may read what nobody may not."""

    def asked() -> None:
        raise InterruptedError

    program = environment(place, entrypoints__cli__serve="raise SystemExit(1)")
    assert reason(program, tmp_path) == "ended with 1"
    assert knowledge(program, (tmp_path,), asking=asked) == NoAnswer("ended with 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InterruptedError):
        knowledge(program, (tmp_path,), asking=asked)


def test_another_installation_is_asked_again(place: Path, tmp_path: Path) -> None:
    program = environment(place)
    assert isinstance(knowledge(program, (tmp_path,)), VllmKnowledge)
    packages = place / "lib" / "python3.11" / "site-packages"
    (packages / "vllm_some_plugin-1.0.dist-info").mkdir()
    os.utime(packages, (1, 1))
    (place / "bin" / "python3").unlink()
    assert "No such file" in reason(program, tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"executable": 1}', "[" * 100000])
def test_a_broken_answer_is_asked_for_again(place: Path, tmp_path: Path, text: str) -> None:
    program = environment(place)
    known = knowledge(program, (tmp_path,))
    (kept,) = tmp_path.iterdir()
    good = kept.read_text()
    kept.write_text(text)
    assert knowledge(program, (tmp_path,)) == known
    assert kept.read_text() == good


def test_an_answer_of_another_form_is_asked_for_again(place: Path, tmp_path: Path) -> None:
    program = environment(place)
    known = knowledge(program, (tmp_path,))
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text().replace('"INTEGER"', '"ODD"'))
    assert knowledge(program, (tmp_path,)) == known


@as_root
def test_an_answer_of_another_user_is_not_believed(place: Path, tmp_path: Path) -> None:
    program = environment(place)
    known = knowledge(program, (tmp_path,))
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text().replace("How large.", "planted"))
    os.chown(kept, 12345, 12345)
    assert knowledge(program, (tmp_path,)) == known


def test_a_link_in_the_cache_is_not_followed(place: Path, tmp_path: Path) -> None:
    program = environment(place)
    known = knowledge(program, (tmp_path / "cache",))
    (kept,) = (tmp_path / "cache").iterdir()
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert knowledge(program, (tmp_path / "cache",)) == known
    assert not kept.is_symlink()


def test_a_cache_that_cannot_be_written_is_no_harm(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(knowledge(environment(place), (tmp_path / "file" / "cache",)), VllmKnowledge)


def test_an_answer_that_lies_in_one_of_the_folders_is_read_from_there(
    place: Path, tmp_path: Path
) -> None:
    program, asked = environment(place), []
    (tmp_path / "file").write_text("")
    shut, own = tmp_path / "file" / "cache", tmp_path / "own"
    first = knowledge(program, (shut, own), asking=lambda: asked.append("once"))
    for caches in ((shut, own), (own, shut), (tmp_path / "empty", own)):
        assert knowledge(program, caches, asking=lambda: asked.append("again")) == first
    assert asked == ["once"]


@pytest.mark.parametrize(
    ("envs", "why"),
    [
        ("raise RuntimeError('no driver')\n", "ended with 1: RuntimeError: no driver"),
        ("raise SystemExit(3)\n", "ended with 3"),
        ("raise SystemExit(0)\n", "told nothing of what it was asked"),
        ("import os\nos.abort()\n", f"was ended by signal {signal.SIGABRT.value}"),
        ("environment_variables = None\n", "ended with 1: AttributeError: 'NoneType' object has"),
        ("print('kimisvc-vllm-knowledge {')\nraise SystemExit(0)\n", "told nothing of what it"),
        ("print('kimisvc-vllm-knowledge [1]')\nraise SystemExit(0)\n", "told nothing of what it"),
    ],
)
def test_a_vllm_that_cannot_tell(place: Path, tmp_path: Path, envs: str, why: str) -> None:
    asked: list[int] = []
    program = environment(place, envs=envs)
    first = knowledge(program, (tmp_path,), asking=lambda: asked.append(1))
    assert isinstance(first, NoAnswer)
    assert first.why.startswith(why)
    assert knowledge(program, (tmp_path,), asking=lambda: asked.append(2)) == first
    assert asked == [1]  # for an hour it is not asked in vain again, and the reason is kept

    (kept,) = tmp_path.iterdir()
    note = json.loads(kept.read_text())
    for moment in (note["asked_at"] - 7200, note["asked_at"] + 7200, "yesterday"):
        kept.write_text(json.dumps({**note, "asked_at": moment}))
        assert knowledge(program, (tmp_path,), asking=lambda: asked.append(3)) == first
        assert asked.pop() == 3


def test_a_note_of_a_kimisvc_that_kept_no_reason_still_counts(place: Path, tmp_path: Path) -> None:
    program = environment(place, envs="raise SystemExit(3)\n")
    reason(program, tmp_path)
    (kept,) = tmp_path.iterdir()
    note = json.loads(kept.read_text())
    del note["why"]
    kept.write_text(json.dumps(note))
    assert reason(program, tmp_path) == "told nothing of what it was asked"
    kept.write_text(json.dumps({**note, "why": "\x1b[2Jbad"}))
    assert reason(program, tmp_path) == " [2Jbad"


def test_the_reason_holds_no_secret_no_control_character_and_no_novel(
    place: Path, tmp_path: Path
) -> None:
    said = f"\\x1b[2Jtoken hf_{'aB3' * 10} {'x ' * 5000}"
    why = reason(environment(place, envs=f"raise RuntimeError('{said}')\n"), tmp_path)
    assert why.startswith("ended with 1: RuntimeError:  [2Jtoken [redacted] x x")
    assert len(why) < 300
    (kept,) = tmp_path.iterdir()
    assert "aB3aB3" not in kept.read_text()


def test_a_vllm_that_takes_too_long(place: Path) -> None:
    program = environment(place, envs="import time\ntime.sleep(1000)\n")
    assert knowledge(program, (), timeout=0.5) == NoAnswer("did not end within 0.5 s")


def test_where_there_is_no_vllm_nothing_is_known(tmp_path: Path) -> None:
    assert reason(tmp_path / "nope") == "No such file or directory"
    assert reason(tmp_path) == "is not a file"
    assert reason(tmp_path / "n\0pe") == "is no name that a file could have"
    alone = "no environment with vLLM in it belongs to it"
    assert reason(STAND_IN) == alone
    program = environment(tmp_path / "env")
    shutil.rmtree(tmp_path / "env" / "lib")
    assert reason(program) == alone
    program.chmod(0o644)
    assert reason(program) == "is not executable"


def test_what_it_tells_cannot_play_with_the_terminal(place: Path) -> None:
    serve = FILES["entrypoints/cli/serve.py"].replace("How large.", "\\x1b[2JHow\\u2028large.")
    known = knowledge(environment(place, entrypoints__cli__serve=serve), ())
    assert isinstance(known, VllmKnowledge)
    assert known.options["size"].help == "?[2JHow large."


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/kimisvc"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/kimisvc"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/kimisvc"),
    ],
)
def test_where_answers_are_kept(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cache_folders() == (Path("/var/cache/kimisvc"), Path(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cache_folders() == (Path("/var/cache/kimisvc"),)
