"""A profile file becomes a profile, or all of its problems at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loading import load

from kimisvc.errors import ExitStatus, ProfileRefusedError
from kimisvc.profile.loader import check
from kimisvc.profile.problems import format_problem
from kimisvc.profile.settings import FREE_TABLES, SETTINGS, TABLES
from kimisvc.profile.values import toml_key
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    SpeedTarget,
    VllmSettings,
)

BAD = Path(__file__).parent / "bad"
BAD_PROFILES = sorted(BAD.glob("*.toml"))
SHIPPED = Path(__file__).parents[3] / "profiles"
NAMES = (
    "baseline",
    "cpu_smollm2",
    "eagle3",
    "glm5",
    "kimi_k25_nvfp4",
    "ll",
    "ll_ring",
    "long_context",
    "minimax_m25_fp8",
    "pcie_ipc",
)
PARENTS = Path("parts")  # within BAD: what stands for the shipped folder there
VLLM = '[vllm]\nexecutable = "/opt/vllm/bin/vllm"\nmodel = "/srv/models/m"\n'


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def said(path: Path, shipped: Path = SHIPPED) -> list[str]:
    folder = f"{path.parent}/"
    return [
        format_problem(problem).replace(folder, "") for problem in check(path, shipped).problems
    ]


@pytest.mark.parametrize("path", BAD_PROFILES, ids=lambda path: path.stem)
def test_a_bad_profile_gets_exactly_the_problems_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BAD)
    checked = check(Path(path.name), PARENTS)
    lines = [format_problem(problem) for problem in checked.problems]
    assert "\n".join(lines) + "\n" == path.with_suffix(".expected").read_text()
    assert (checked.profile is None) == (path.stem != "warnings")
    assert not any("topsecret" in line for line in lines)


@pytest.mark.parametrize(
    ("kind", "why"),
    [("folder", "is a directory"), ("pipe", "is not a regular file"), ("large", "larger than 1 MiB"),
     ("endless", "TOML that no reader takes")],
)  # fmt: skip
def test_an_extended_file_that_is_none_is_told_where_it_is_named(
    tmp_path: Path, kind: str, why: str
) -> None:
    wrong = tmp_path / kind
    if kind == "folder":
        wrong.mkdir()
    elif kind == "pipe":
        os.mkfifo(wrong)
    else:
        wrong.write_text("#" * (1 << 21) if kind == "large" else "a = " + "[" * 100_000)
    written(tmp_path, f'schema = 1\nextends = "{kind}"\n', "middle.toml")
    top = written(tmp_path, 'schema = 1\nextends = "middle.toml"\n')
    (line,) = said(top)
    assert line.startswith(f'middle.toml:2: extends: "{kind}" leads to {kind}, which ')
    assert why in line
    (own,) = said(wrong)
    assert own.startswith(f"{kind}: ")  # the operator's own has nobody who names it


def test_every_expectation_has_its_profile() -> None:
    assert {path.stem for path in BAD.glob("*.expected")} == {path.stem for path in BAD_PROFILES}


def test_load_raises_with_all_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(ProfileRefusedError) as caught:
        load(Path("runs.toml"), PARENTS)
    assert caught.value.exit_status is ExitStatus.PROFILE_REFUSED
    assert caught.value.problems == (
        Problem(
            "min_runs 9 is more than max_runs 4. Lower the one or raise the other",
            "runs.toml",
            6,
            "probe.min_runs",
            Severity.ERROR,
        ),
    )


# ---------------------------------------------------------------- what a good file becomes


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_has_no_problem(name: str) -> None:
    checked = check(SHIPPED / f"{name}.toml", SHIPPED)
    assert checked.problems == ()
    assert checked.profile is not None
    assert checked.profile.name == name
    assert checked.text == (SHIPPED / f"{name}.toml").read_text()


def test_the_shipped_folder_holds_nothing_else() -> None:
    assert {path.name for path in SHIPPED.iterdir()} == {f"{name}.toml" for name in NAMES}


def test_every_table_arrives_in_its_record(tmp_path: Path) -> None:
    profile = load(
        written(
            tmp_path,
            "schema = 1\n" + VLLM + "[service]\nload_timeout = 90\nmemory_max = '16 GiB'\n"
            "[args]\nmax_model_len = 2048\n"
            "compilation_config.cache_dir = '/x'\n"
            "'speculative_config.num_tokens' = 3\nlist = [1, ['a']]\n"
            "[env]\nN = 1\nS = 'x'\n"
            "[gate]\ndecode_tok_s = '> 40 ~ 50'\nmax_ttft = '1.5s'\n"
            "[canary]\nevery = '10min'\n"
            "[[golden]]\nprompt = 'p'\nexpect = '/e/'\nwhere = 'reasoning'\n"
            "[[golden]]\nprompt = 'q'\nexpect = 'f'\n",
        ),
        SHIPPED,
    )
    assert profile.name == "mine"
    assert profile.vllm == VllmSettings("/opt/vllm/bin/vllm", "/srv/models/m")
    assert profile.service.load_timeout == 90.0
    assert profile.service.memory_max == 17_179_869_184
    assert profile.args == {
        "max-model-len": 2048,
        "compilation-config": {"cache_dir": "/x"},
        "speculative-config.num_tokens": 3,
        "list": (1, ("a",)),
    }
    assert profile.env == {"N": "1", "S": "x"}
    assert profile.gate == GateSettings(SpeedTarget(40, 50), 1.5)
    assert profile.canary == CanarySettings(600.0)
    assert [question.where.value for question in profile.golden] == ["reasoning", "content"]


# ---------------------------------------------------------------- extends


def test_a_file_takes_the_keys_of_another_and_only_writes_what_differs(tmp_path: Path) -> None:
    written(
        tmp_path,
        "schema = 1\nname = 'parent'\ndescription = 'd'\n"
        + VLLM
        + "port = 9000\n[args]\nmax-model-len = 4096\ndtype = 'auto'\n[env]\nA = '1'\n"
        "[[golden]]\nprompt = 'old'\nexpect = 'old'\n[[golden]]\nprompt = 'x'\nexpect = 'x'\n",
        "parent.toml",
    )
    child = written(
        tmp_path,
        "schema = 1\nextends = 'parent.toml'\n[vllm]\nmodel = 'org/name'\n"
        "[args]\nmax_model_len = 1024\n[env]\nB = '2'\n[[golden]]\nprompt = 'new'\nexpect = 'e'\n",
        "child.toml",
    )
    checked = check(child, SHIPPED)
    assert checked.problems == ()
    assert checked.files == (child, tmp_path / "parent.toml")
    profile = checked.profile
    assert profile is not None
    assert profile.name == "child"  # says of itself what it is; not its parent's name
    assert profile.description == "d"
    assert profile.vllm == VllmSettings("/opt/vllm/bin/vllm", "org/name", port=9000)
    assert profile.args == {"dtype": "auto", "max-model-len": 1024}
    assert profile.env == {"A": "1", "B": "2"}
    assert profile.golden == (GoldenQuestion("new", "e"),)


def test_a_file_elsewhere_extends_a_shipped_one(tmp_path: Path) -> None:
    child = written(tmp_path, "schema = 1\nextends = 'll_ring.toml'\nname = 'my'\n")
    checked = check(child, SHIPPED)
    assert checked.files == (child, SHIPPED / "ll_ring.toml", SHIPPED / "baseline.toml")
    assert checked.profile is not None
    assert checked.profile.name == "my"
    assert checked.profile.env["NCCL_ALGO"] == "Ring"
    assert checked.profile.args["tensor-parallel-size"] == 8


def test_the_file_beside_comes_before_the_shipped_one(tmp_path: Path) -> None:
    written(tmp_path, "schema = 1\n" + VLLM, "baseline.toml")
    child = written(tmp_path, "schema = 1\nextends = 'baseline.toml'\n")
    assert check(child, SHIPPED).files == (child, tmp_path / "baseline.toml")


def test_a_parents_bad_value_is_told_even_where_it_is_overridden(tmp_path: Path) -> None:
    written(tmp_path, "schema = 1\n" + VLLM + "port = 'x'\n", "parent.toml")
    child = written(tmp_path, "schema = 1\nextends = 'parent.toml'\n[vllm]\nport = 1024\n")
    assert said(child) == [
        'parent.toml:5: vllm.port: "x" is refused: port takes a whole number from 1 to 65535'
    ]


# ---------------------------------------------------------------- files that are no profile


def test_a_missing_file_is_a_problem_and_names_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, "", "baseline.toml")
    assert said(tmp_path / "baselin.toml") == [
        "baselin.toml: no such file. Did you mean baseline.toml?"
    ]
    assert said(tmp_path / "baseline") == ["baseline: no such file. Did you mean baseline.toml?"]
    assert said(tmp_path / "zzz.toml") == ["zzz.toml: no such file."]
    assert said(tmp_path / "none" / "zzz.toml") == ["zzz.toml: no such file."]


def test_a_directory_a_pipe_and_a_file_in_a_file_are_problems(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    file = written(tmp_path, "")
    assert said(tmp_path)[0].endswith(": is a directory. Name one of the files in it")
    assert said(pipe) == ["pipe.toml: is not a regular file"]
    assert said(file / "x.toml") == ["x.toml: cannot be read: Not a directory"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_of_another_user_is_a_problem(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    file.chmod(0)
    assert said(file) == ["mine.toml: may not be read by this user (permission denied)"]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux's /proc")
def test_a_file_that_fails_while_it_is_read_is_a_problem() -> None:
    assert said(Path("/proc/self/mem")) == ["mem: cannot be read: Input/output error"]


def test_a_file_far_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.toml"
    with file.open("wb") as opened:
        opened.truncate(2**40)
    assert said(file) == ["model.toml: is larger than 1 MiB: not a profile"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"schema = 1\n# caf\xe9\n", "mine.toml:2: byte 0xe9 is not UTF-8. Save the file as UTF-8"),
        ("schema = 1".encode("utf-16"), "mine.toml:1: is UTF-16. Save the file as UTF-8"),
        (b"a = " + b"[" * 5000, None),
        (b"a = " + b"1" * 5000, None),
    ],
)
def test_bytes_that_no_reader_takes_are_a_problem(
    tmp_path: Path, raw: bytes, message: str | None
) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(raw)
    nothing_reads = "mine.toml: is TOML that no reader takes: a number or a nesting without end"
    assert said(path) == [message or nothing_reads]


def test_a_byte_order_mark_is_one_problem_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbfschema = 1\n" + VLLM.encode() + b"prot = 1\n")
    assert said(path) == [
        "mine.toml:1: begins with a byte order mark. Save it as UTF-8 without one",
        "mine.toml:5: vllm.prot: unknown key. Did you mean port?",
    ]


def test_a_good_profile_is_checked_without_the_slow_reader() -> None:
    code = (
        "import sys, pathlib; from kimisvc.profile.loader import check;"
        "check(pathlib.Path(sys.argv[1]), pathlib.Path());"
        "sys.exit('tomlkit' in sys.modules or 'difflib' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, SHIPPED / "ll_ring.toml"], check=True)


# ---------------------------------------------------------------- nothing raises

ANY_PATH = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def holds_for_any_file(path: Path) -> None:
    checked = check(path, SHIPPED)
    errors = [problem for problem in checked.problems if problem.severity is Severity.ERROR]
    assert (checked.profile is None) == bool(errors)
    for problem in checked.problems:
        assert problem.message
        assert "\n" not in format_problem(problem)
        assert problem.line <= path.read_bytes().count(b"\n") + 1 or problem.file != str(path)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@ANY_PATH
def test_any_bytes_give_problems_and_never_raise(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "any.toml"
    path.write_bytes(raw)
    holds_for_any_file(path)


KEYS = st.sampled_from([row.key for row in SETTINGS] + ["NCCL_ALGO", "max-model-len", "x.y", "a"])
HEADERS = st.sampled_from(
    [f"[{table}]" for table in (*TABLES, *FREE_TABLES) if table]
    + ["[[golden]]", "[args.x]", "[[args.y]]", "[nothing]", "[[service]]", "[a.b.c]"]
)
TOML_VALUES = st.one_of(
    st.sampled_from(
        [
            "1", "true", "0xffffffffffffffffffffff", "nan", "-inf", "1.5", "1e400", "07:32:00",
            "1979-05-27T07:32:00Z", "[]", "{}", "[[1], ['a', { b = 2 }]]", '"""\n\n"""', "'/x'",
            '"45min"', '">40~50"', '"/(/"', '"org/name"', '"16 GiB"', "[1, 2.5, '']", '"\\u0000"',
            '"baseline.toml"', '"any.toml"', '"../"', "{ a = { b.c = 1 } }",
        ]
    ),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=8).map(lambda text: toml_key(text or "-") if text else '""'),
)  # fmt: skip


@given(
    st.lists(
        HEADERS
        | st.tuples(KEYS, TOML_VALUES).map(" = ".join)
        | st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(toml_key), TOML_VALUES
        ).map(" = ".join),
        max_size=12,
    )
)
@ANY_PATH
def test_any_mixture_of_keys_and_values_gives_problems_and_never_raises(
    tmp_path: Path, lines: list[str]
) -> None:
    path = tmp_path / "any.toml"
    path.write_text("\n".join(lines), errors="replace")
    holds_for_any_file(path)


@pytest.mark.parametrize("character", ["*", "?", "[", "\\"])
def test_a_secrets_file_is_one_file_and_no_pattern(tmp_path: Path, character: str) -> None:
    path = tmp_path / "p.toml"
    own = f"[service]\nsecrets_file = '/etc/kimisvc/a{character}b'\n"
    path.write_text(
        f'schema = 1\n{own}[vllm]\nexecutable = "/opt/vllm/bin/vllm"\nmodel = "/srv/m"\n'
    )
    (problem,) = check(path, PARENTS).problems
    assert problem.key == "service.secrets_file"
    assert f"because of its {character}: it would read" in problem.message


@pytest.mark.parametrize(
    ("written_as", "doubt"),
    [("every = 10", 10), ("every = 59", 59), ("every = 60", 0), ('every = "10s"', 0), ("every = 10.5", 0)],
)  # fmt: skip
def test_a_plain_number_that_may_be_one_of_minutes_is_doubted(
    tmp_path: Path, written_as: str, doubt: int
) -> None:
    checked = check(written(tmp_path, f"schema = 1\n{VLLM}[canary]\n{written_as}\n"), SHIPPED)
    messages = [p.message for p in checked.problems if p.key == "canary.every"]
    says = f"{doubt} is {doubt} seconds, as any plain number is."
    meant = f'Was "{doubt}min" meant? If not, write "{doubt}s"'
    assert messages == ([f"{says} {meant}"] if doubt else [])
    assert checked.profile is not None


@pytest.mark.parametrize(
    "line",
    ["[service]\nstop_timeout = 30", "[service]\nrestart_delay = 0", "[gate]\nmax_ttft = 2"],
)
def test_a_plain_number_of_what_takes_seconds_is_not_doubted(tmp_path: Path, line: str) -> None:
    assert check(written(tmp_path, f"schema = 1\n{VLLM}{line}\n"), SHIPPED).problems == ()
