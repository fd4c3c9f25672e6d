"""Values are read as NCCL reads them, and what was likely meant is said."""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.knowledge.nccl.selections import (
    ALGORITHMS,
    COLLECTIVES,
    algorithms,
    allowed_algorithms,
    allowed_protocols,
    protocols,
)
from kimisvc.profile.knowledge.variables.allocator import allocator_options
from kimisvc.profile.knowledge.variables.devices import visible_devices
from kimisvc.profile.knowledge.variables.grammar import (
    absolute_path,
    distance,
    exact_words,
    flag,
    folders,
    plain_number,
    whole_number,
    word_list,
    words,
)
from kimisvc.profile.knowledge.variables.integers import as_read, is_clear, likely_meant
from kimisvc.profile.knowledge.variables.table import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.strtoll.restype = ctypes.c_longlong
LIBC.strtoll.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERISH = st.text(" \t+-0123456789abcdefxXoOkKmMgG_.,#eEiB", max_size=30)


def strtoll(text: str) -> int | None:
    """What the C library of this machine reads, None for a number it refuses."""
    ctypes.set_errno(0)
    number = LIBC.strtoll(text.encode(), None, 0)
    return None if ctypes.get_errno() == errno.ERANGE else int(number)


@given(NUMBERISH | st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_any_text_is_read_as_strtoll_reads_it(text: str) -> None:
    if text.strip().lower().lstrip("+-").startswith("0b"):
        return  # newer C libraries read binary numbers, where the compiler asked for C23
    assert as_read(text) == strtoll(text)


@given(INT64)
def test_numbers_that_python_and_nccl_read_alike_are_legal(number: int) -> None:
    for text in (str(number), hex(number), f" {number}", f"{number}\n"):
        assert as_read(text) == number == int(text, 0)
        assert is_clear(text)
        assert whole_number()(text) == ""


@given(st.text(max_size=40) | NUMBERISH)
def test_what_python_reads_otherwise_than_nccl_is_refused(text: str) -> None:
    if not text:
        return
    try:
        python: int | None = int(text, 0)
    except ValueError:
        python = None
    legal = whole_number()(text) == ""
    assert legal == (python is not None and python == as_read(text) and is_clear(text))


@pytest.mark.parametrize(
    ("text", "read", "meant"),
    [
        ("16M", 16, 16777216),
        ("16MB", 16, 16777216),
        ("16 MiB", 16, 16777216),
        ("4k", 4, 4096),
        ("16_777_216", 16, 16777216),
        ("1e7", 1, 10000000),
        ("1.5e3", 1, 1500),
        ("16777216 # 16 MiB", 16777216, 16777216),
        ("010", 8, 10),
        ("08", 0, 8),
        ("0x10", 16, 16),
        ("16.0", 16, 16),
        ("true", 0, 1),
        ("Off", 0, 0),
        ("abc", 0, None),
        ("", 0, None),
        ("0x", 0, None),
        ("99999999999999999999", None, None),
        ("1e30", 1, None),
    ],
)
def test_what_was_meant_is_told_from_what_is_read(
    text: str, read: int | None, meant: int | None
) -> None:
    assert as_read(text) == read
    assert likely_meant(text) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "16M",
            (
                '"16M" would be read as 16: NCCL stops at the first character that is not a digit. '
                "Write 16777216"
            ),
        ),
        (
            "02048",
            '"02048" would be read as 132: a leading zero makes the number octal. Write 2048',
        ),
        (
            "abc",
            (
                '"abc" holds no number at its beginning: NCCL would read 0. '
                "Write a whole number from 1024 to 33554432"
            ),
        ),
        (
            "9" * 30,
            (
                f'"{"9" * 30}" is more than 64 bits: NCCL would keep its default. '
                "Write a whole number from 1024 to 33554432"
            ),
        ),
        (
            "512",
            "512 is too small: NCCL would use 1024. Write a whole number from 1024 to 33554432",
        ),
        ("33554433", "33554433 is too large. Write a whole number from 1024 to 33554432"),
        ("0x400", ""),
        ("", ""),
    ],
)
def test_a_range_is_told_with_what_nccl_would_use(text: str, message: str) -> None:
    assert whole_number(1024, 2**25, below="NCCL would use 1024")(text) == message


def test_multiples_are_asked_for() -> None:
    threads = whole_number(64, 512, multiple_of=32, uneven="NCCL would use 512")
    assert threads("96") == ""
    assert threads("100") == (
        "100 is not a multiple of 32: NCCL would use 512. "
        "Write a whole number from 64 to 512, a multiple of 32"
    )


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("true", "NCCL would read 0. Write 1"),
        ("off", "NCCL would read 0. Write 0"),
        ("2", "is neither 0 nor 1. Write 0 or 1"),
        ("01", "Write 1"),
        ("1 ", "is neither 0 nor 1. Write 1"),
    ],
)
def test_a_switch_is_0_or_1(text: str, end: str) -> None:
    assert flag(text).endswith(end)


def test_0_and_1_switch() -> None:
    assert not flag("0")
    assert not flag("1")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("sys", "Write SYS"),
        ("phb ", "Write PHB"),
        ("NODE", "Write LOC, NVL, PIX, PXB, PHB or SYS"),
        ("2", "is a legacy number, read as PXB. Write PXB"),
        ("7", "read as SYS. Write SYS"),
        ("9" * 40, "read as SYS. Write SYS"),
    ],
)
def test_a_distance_is_one_exact_word(text: str, end: str) -> None:
    assert distance(text).endswith(end)
    assert not distance(end.rsplit(maxsplit=1)[-1])


def test_words_are_told_with_what_becomes_of_others() -> None:
    debug = words("VERSION", "WARN", "INFO", otherwise="NCCL would log nothing")
    assert not debug("warn")
    assert debug("warning") == (
        '"warning" is not a word it knows: NCCL would log nothing. Write WARN'
    )
    assert debug("x").endswith("Write VERSION, WARN or INFO")
    assert exact_words("PCI_BUS_ID", otherwise="ignored")("pci_bus_id").endswith("Write PCI_BUS_ID")
    listed = word_list("INIT", "ENV", otherwise="NCCL would ignore it")
    assert not listed("^init, ENV")
    assert listed("INIT,ENVX").endswith("Write ENV")


def test_plain_numbers_and_paths() -> None:
    connections = plain_number(1, 32, "CUDA takes 1 to 32")
    assert not connections("32")
    assert connections("64").startswith('"64" is out of range: CUDA takes 1 to 32')
    assert connections("0x10").endswith("Write 16")
    assert connections("٣").endswith("Write a whole number from 1 to 32")
    assert not absolute_path("/a")
    assert "no shell" in absolute_path("~/a")
    assert "Write an absolute path" in absolute_path("a")


@pytest.mark.parametrize("value", ["", "/a", "/a:/b", "/a;/b", "$ORIGIN/../lib:/a", "${LIB}"])
def test_folders_where_libraries_are_looked_for(value: str) -> None:
    assert folders(":;")(value) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/a:", "has an empty part, which stands for the folder the service runs in"),
        (":/a", "empty part"),
        ("/a::/b", "empty part"),
        ("/a:b", '"b" depends on the folder the service runs in'),
        (".", "depends on the folder"),
        ("/a:~/b", "no shell reads it"),
    ],
)
def test_folders_that_depend_on_where_the_service_runs(value: str, words: str) -> None:
    assert words in folders(":;")(value)
    assert words in folders(":")(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONHASHSEED", "0"), ("PYTHONHASHSEED", "random"), ("PYTHONHASHSEED", "4294967295"),
        ("PYTHONUTF8", "1"), ("PYTHONUTF8", "0"), ("PYTHONMALLOC", "malloc"),
        ("PYTHONINTMAXSTRDIGITS", "0"), ("PYTHONINTMAXSTRDIGITS", "640"),
        ("PYTHONIOENCODING", "utf-8:replace"), ("PYTHONIOENCODING", ":strict"),
        ("PYTHONHOME", ""),
    ],
)  # fmt: skip
def test_what_python_starts_with_is_legal(name: str, value: str) -> None:
    assert started(name, value)
    assert grammar_of(name)(value) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONHOME", "/x"), ("PYTHONPLATLIBDIR", "x"), ("PYTHONHASHSEED", "a"),
        ("PYTHONHASHSEED", "4294967296"), ("PYTHONUTF8", "x"), ("PYTHONMALLOC", "x"),
        ("PYTHONINTMAXSTRDIGITS", "3"), ("PYTHONIOENCODING", "bad"),
    ],
)  # fmt: skip
def test_what_python_ends_with_is_not(name: str, value: str) -> None:
    assert not started(name, value)
    assert grammar_of(name)(value)


def started(name: str, value: str) -> bool:
    """Whether a real Python starts with a variable."""
    words, env = [sys.executable, "-c", ""], {name: value}
    return subprocess.run(words, env=env, capture_output=True, check=False).returncode == 0


def grammar_of(name: str) -> Callable[[str], str]:
    syntax = VARIABLES[name].syntax
    assert syntax is not None
    return syntax


# ---------------------------------------------------------------- NCCL_ALGO and NCCL_PROTO


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Ring",
        "ring,TREE",
        "^tree",
        "ring,,tree",
        "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
        "allreduce:^tree",
        "ring;",
    ],
)
def test_lists_as_the_manual_writes_them_are_legal(value: str) -> None:
    assert algorithms(value) == ""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Rings", '"Rings" is no algorithm it knows. Write Ring'),
        ("ring;tree", "Write a comma to add Tree to the first, or a collective before it"),
        (";ring", "only the first list may stand without a collective"),
        ("Ring, Tree", '" Tree" holds a space, and spaces count. Write Tree'),
        ("Collnet", "Write CollNetChain or CollNetDirect"),
        ("allreduc:ring", '"allreduc" is no collective it knows. Write AllReduce'),
        ("allreduce:", "allreduce has no list. Write allreduce:Ring"),
        ("allgather:ring,broadcast:ring", "Separate the collectives by semicolons"),
        ("^", "a list that names nothing"),
        ("ring;:", "a colon with nothing around it"),
        ("LL", "There are: Ring, Tree"),
    ],
)
def test_other_lists_are_told_what_is_wrong(value: str, reason: str) -> None:
    assert reason in algorithms(value)


def test_a_list_allows_by_collective() -> None:
    allowed = allowed_algorithms("ring,tree;allreduce:tree")
    assert allowed["AllReduce"] == {"Tree"}
    assert all(allowed[name] == {"Ring", "Tree"} for name in COLLECTIVES if name != "AllReduce")
    assert allowed_algorithms("^ring")["Reduce"] == set(ALGORITHMS) - {"Ring"}
    assert allowed_algorithms("allreduce:tree") == {"AllReduce": frozenset({"Tree"})}
    assert allowed_protocols("LL64") == {}
    assert allowed_protocols("^simple")["AllGather"] == {"LL", "LL128"}


# ---------------------------------------------------------------- neighbours


def test_gpus_are_listed_once_by_number_or_uuid() -> None:
    assert not visible_devices("")
    assert not visible_devices("0,1, 2,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
    assert "hides all after it" in visible_devices("0,-1,1")
    assert "listed twice" in visible_devices("0,1,0")
    assert visible_devices("0;1")


def test_options_of_the_allocator() -> None:
    assert not allocator_options("expandable_segments:True,max_split_size_mb:128")
    assert not allocator_options("roundup_power2_divisions:[256:1,512:2,>:4], backend:native")
    assert not allocator_options("newer_option_of_tomorrow:1")
    assert not allocator_options("pinned_max_cached_size_gb:1,max_merge_size_mb:2")
    assert allocator_options("expandable_segments=True").endswith("Write expandable_segments:True")
    assert allocator_options("expandable_segments:true").endswith("Write expandable_segments:True")
    assert allocator_options("expandable_segment:True").endswith("Write expandable_segments")
    assert allocator_options("backend:x").endswith("Write backend:native or cudaMallocAsync")


@given(st.text(";:,^ abLRing18treSmpl", max_size=40) | st.text(max_size=40))
def test_no_list_makes_a_grammar_raise(value: str) -> None:
    for grammar in (algorithms, protocols, visible_devices, allocator_options, distance):
        assert isinstance(grammar(value), str)
    for name, allowed in allowed_algorithms(value).items():
        assert name in COLLECTIVES
        assert allowed <= set(ALGORITHMS)
