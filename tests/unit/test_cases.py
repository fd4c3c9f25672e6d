"""What went wrong for others, as files of tests/cases: to add a case is to add a file.

A file NN_name.toml is a public report, or NAME.toml a fact without a number:

    report      where it was reported, or which fact it is
    right       what a tool does that does it right
    elsewhere   tests, as path::name, that hold what no profile and no host shows
    later       what of it is not held yet, and where it belongs

and any number of trials, each with what is `expect`ed: problems with their `key`,
`severity` and `words`, in any order, and no other; an empty list expects none.

    [[profile]]  text: a profile, or what one says beside `extends = "baseline.toml"`;
                 config: the model's config.json; never_shown: what no message may hold
    [[unit]]     text of a unit; words that its profile must say after `kimisvc import --unit`
    [[secrets]]  text of a secrets file; lines of problems count instead of keys
    [[host]]     the one check that must speak, and how a good host is spoiled: see SPOILERS
"""

from __future__ import annotations

import ast
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from good_host import Host, good_host, program, write
from staged_host import GIB, Nvml, NvmlError, process

from kimisvc.deploy.checks.secrets import content_problems
from kimisvc.host import reach
from kimisvc.host.secrets_file import parse
from kimisvc.profile.adoption.adopt import adopt_unit
from kimisvc.profile.adoption.draft import Lookup
from kimisvc.profile.adoption.unit_file import UnitText, read_unit
from kimisvc.profile.knowledge.court import Sight, judged
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.loader import check
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

REPOSITORY = Path(__file__).parents[2]
FILES = sorted((REPOSITORY / "tests" / "cases").glob("*.toml"))
PUBLIC = frozenset(
    (1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 23, 24, 25, 26, 30, 31, 33, 34,
     36, 38, 39, 41, 42, 43)
)  # fmt: skip
"""The numbers of the public reports, none of which may be lost."""
ABOUT = ("report", "right", "elsewhere", "later")
TRIALS = ("profile", "unit", "secrets", "host")
HEAD = 'schema = 1\nextends = "baseline.toml"\n'


@dataclass(frozen=True)
class Trial:
    """One table of a case: what is tried, and where it stands."""

    kind: str
    content: Mapping[str, Any]
    name: str

    @property
    def expected(self) -> Sequence[Mapping[str, Any]]:
        """The problems that have to be told, no more and no fewer."""
        expected: Sequence[Mapping[str, Any]] = self.content["expect"]
        return expected


@cache
def read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


def trials(kind: str) -> list[Trial]:
    return [
        Trial(kind, content, f"{file.stem}-{number}")
        for file in FILES
        for number, content in enumerate(read(file).get(kind, ()), 1)
    ]


def each(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("trial", trials(kind), ids=lambda trial: trial.name)


def same(problem: Problem, wanted: Mapping[str, Any]) -> bool:
    return (
        problem.key == wanted.get("key", problem.key)
        and problem.line == wanted.get("line", problem.line)
        and problem.severity.value == wanted["severity"]
        and all(words in problem.message for words in wanted["words"])
    )


def told_as_expected(trial: Trial, found: Sequence[Problem]) -> None:
    """Each expectation is met by one problem, and each problem was expected."""
    rest = list(found)
    for wanted in trial.expected:
        met = next((problem for problem in rest if same(problem, wanted)), None)
        assert met is not None, f"{wanted} is not among {rest}"
        rest.remove(met)
    assert rest == []


# ------------------------------------------------------------------ what is tried


@each("profile")
def test_a_profile_is_told_what_is_wrong_with_it(trial: Trial, tmp_path: Path) -> None:
    text = trial.content["text"]
    path = write(tmp_path / "case.toml", text if "schema" in text else HEAD + text)
    sight = Sight(lambda _: shipped_knowledge(), lambda _: trial.content.get("config"))
    found = check(path, shipped("profiles"), lambda draft: judged(draft, sight))
    told_as_expected(trial, found.problems)
    assert all(problem.file == str(path) for problem in found.problems)
    for secret in trial.content.get("never_shown", ()):
        assert all(secret not in problem.message for problem in found.problems)


@each("unit")
def test_a_unit_that_is_adopted_loses_its_fault_and_is_told_so(trial: Trial) -> None:
    nothing = Lookup(read=lambda _: "", program=lambda _, __: "")
    texts = [UnitText("/etc/systemd/system/kimi.service", trial.content["text"])]
    found = adopt_unit(read_unit("kimi.service", texts), nothing, shipped_knowledge())
    said = " ".join(line.removeprefix("#").strip() for line in found.text.splitlines())
    for words in trial.content["words"]:
        assert words in said


@each("secrets")
def test_a_secrets_file_is_told_what_systemd_would_make_of_it(trial: Trial) -> None:
    profile = Profile("case", VllmSettings("/opt/vllm/bin/vllm", "org/model"))
    told_as_expected(trial, content_problems(profile, parse(trial.content["text"].encode())))


# ------------------------------------------------------------------ hosts


def put_files(host: Host, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        write(host.root / path, text)


def put_programs(host: Host, paths: Sequence[str]) -> None:
    for path in paths:
        program(host.root / path)


def remove(host: Host, paths: Sequence[str]) -> None:
    for path in paths:
        (host.root / path).unlink()


def relink(host: Host, links: Mapping[str, str]) -> None:
    for path, to in links.items():
        (host.root / path).unlink()
        (host.root / path).symlink_to(to)


def break_nvml(host: Host, words: str) -> None:
    host.nvml = Nvml(says={"nvmlInit": NvmlError(words)})


def run(host: Host, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        process(host.root / "proc", **row)


def set_variables(host: Host, variables: Mapping[str, str]) -> None:
    host.env(**variables)


def occupy(host: Host, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        host.card(row["index"], pids=tuple(row["pids"]), used=int(row["used_gib"] * GIB))


SPOILERS: Mapping[str, Callable[[Host, Any], None]] = {
    "files": put_files,  # path = "text"
    "programs": put_programs,  # [path]
    "gone": remove,  # [path]
    "links": relink,  # path = "to"
    "nvml": break_nvml,  # the words that NVML fails with
    "processes": run,  # [{ pid, name, unit, title }]
    "env": set_variables,  # NAME = "value", of the profile
    "cards": occupy,  # [{ index, pids, used_gib }]
}
"""How a good host is spoiled, by the key of the case; paths are below its root."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A good host in a folder that the service would see, although it lies in /tmp.

    It is none of pytest's: another session closes the folder above those to others.
    """
    monkeypatch.setattr(reach, "HIDDEN", {})
    with tempfile.TemporaryDirectory(prefix="kimisvc-case-") as folder:
        Path(folder).chmod(0o755)
        yield good_host(Path(folder))


@each("host")
def test_a_host_is_told_what_would_fail_late(trial: Trial, host: Host) -> None:
    assert host.ask(trial.content["check"]) == []
    for key, value in trial.content.items():
        if key not in ("check", "expect"):
            SPOILERS[key](host, value)
    told_as_expected(trial, host.ask(trial.content["check"]))


# ------------------------------------------------------------------ that no case is lost


def test_every_public_report_has_its_file() -> None:
    numbers = [file.stem.partition("_")[0] for file in FILES]
    found = [int(number) for number in numbers if number.isdigit()]
    assert set(found) >= PUBLIC
    assert len(found) == len(set(found)), "two files have one number"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_case_says_where_it_is_from_and_is_tried_somewhere(file: Path) -> None:
    case = read(file)
    assert set(case) <= {*ABOUT, *TRIALS}
    assert case["report"]
    assert case["right"]
    assert any(case.get(kind) for kind in (*TRIALS, "elsewhere"))


@pytest.mark.parametrize(
    "named",
    sorted({named for file in FILES for named in read(file).get("elsewhere", ())}),
)
def test_a_test_that_a_case_is_left_to_exists(named: str) -> None:
    path, _, name = named.partition("::")
    tree = ast.parse((REPOSITORY / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_trial_can_fail() -> None:
    trial = Trial("host", {"expect": [{"severity": "error", "words": ["reboot"]}]}, "x")
    told_as_expected(trial, [Problem("reboot, please")])
    for wrong in ([], [Problem("restart")], [Problem("reboot"), Problem("and more")]):
        with pytest.raises(AssertionError):
            told_as_expected(trial, wrong)
