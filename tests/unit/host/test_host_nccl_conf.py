"""NCCL's configuration files, read by NCCL's own odd rules."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.host import nccl_conf
from kimisvc.host.nccl_conf import ConfFile


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("NCCL_PROTO=LL\n", {"NCCL_PROTO": "LL"}),
        ("NCCL_PROTO=LL", {"NCCL_PROTO": "LL"}),
        ("# NCCL_PROTO=LL\n", {}),
        (" # NCCL_PROTO=LL\n", {" # NCCL_PROTO": "LL"}),
        ("NCCL_BUFFSIZE=16777216 # 16 MiB\n", {"NCCL_BUFFSIZE": "16777216 # 16 MiB"}),
        ('NCCL_ALGO="Ring"\n', {"NCCL_ALGO": '"Ring"'}),
        ("NCCL_ALGO = Ring\n", {"NCCL_ALGO ": " Ring"}),
        ("NCCL_ALGO=Ring\nNCCL_ALGO=Tree\n", {"NCCL_ALGO": "Ring"}),
        ("A=b=c\n", {"A": "b=c"}),
        ("NCCL_ALGO\n\n=x\n", {}),
        ("A=1\r\n", {"A": "1\r"}),
        ("", {}),
    ],
)
def test_lines_are_taken_as_nccl_takes_them(text: str, variables: dict[str, str]) -> None:
    assert nccl_conf.parse(text) == variables


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(name and "\n" not in name for name in nccl_conf.parse(text))


def test_the_files_in_their_order() -> None:
    home, system = Path("/srv/vllm"), Path("/etc/nccl.conf")
    assert nccl_conf.conf_paths("", home) == (home / ".nccl.conf", system)
    assert nccl_conf.conf_paths("/opt/x.conf", home) == (Path("/opt/x.conf"), system)
    assert nccl_conf.conf_paths("", None) == (system,)


def test_the_home_is_that_of_the_user_database_whatever_home_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    me = pwd.getpwuid(os.getuid())
    assert nccl_conf.home_of(me.pw_name) == Path(me.pw_dir)
    assert nccl_conf.home_of("") == Path("/")
    assert nccl_conf.home_of("no-such-user") is None


def test_a_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    assert nccl_conf.read(path) == ConfFile(path, {}, f"{path}: No such file or directory")
    path.write_bytes(b"NCCL_PROTO=LL\nX=\xff\n")
    assert nccl_conf.read(path) == ConfFile(path, {"NCCL_PROTO": "LL", "X": "\ufffd"})


def test_a_pipe_is_not_waited_for_and_dev_null_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    os.mkfifo(path)
    assert nccl_conf.read(path) == ConfFile(
        path, {}, f"{path}: is no regular file but a named pipe"
    )
    assert nccl_conf.is_waited_for(path)
    for other in (tmp_path, Path("/dev/null"), tmp_path / "none", path / "below"):
        assert not nccl_conf.is_waited_for(other)
    assert nccl_conf.read(Path("/dev/null")) == ConfFile(Path("/dev/null"), {})
