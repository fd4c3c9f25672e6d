"""A unit of somebody's own is found where systemd finds it, with its drop-ins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kimisvc.errors import HostError
from kimisvc.host.unit_files import find_unit, read_found

if TYPE_CHECKING:
    from pathlib import Path


def put(root: Path, name: str, text: str = "x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def search(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "etc", tmp_path / "usr"


def test_the_first_folder_of_the_search_path_counts(search: tuple[Path, Path]) -> None:
    put(search[1], "v.service", "vendor")
    mine = put(search[0], "v.service", "mine")
    for given in ("v", "v.service"):
        found = find_unit(given, search)
        assert (found.name, found.texts) == ("v.service", ((mine, "mine"),))


def test_drop_ins_of_all_folders_in_the_order_of_their_names(search: tuple[Path, Path]) -> None:
    put(search[1], "a-b.service")
    put(search[1], "a-b.service.d/50-x.conf", "hidden by the one in etc")
    put(search[1], "a-b.service.d/60-y.conf", "60")
    put(search[0], "a-b.service.d/50-x.conf", "50")
    put(search[0], "a-.service.d/55.conf", "55")
    put(search[0], "service.d/10.conf", "10")
    put(search[0], "a-b.service.d/notes.txt")
    found = find_unit("a-b", search)
    assert [text for _, text in found.texts] == ["x", "10", "50", "55", "60"]


def test_an_instance_is_read_from_its_template(search: tuple[Path, Path]) -> None:
    template = put(search[0], "v@.service")
    put(search[0], "v@.service.d/1.conf", "all")
    put(search[0], "v@big.service.d/2.conf", "big")
    found = find_unit("v@big", search)
    assert found.name == "v@big.service"
    assert found.texts[0][0] == template
    assert [text for _, text in found.texts[1:]] == ["all", "big"]


def test_a_file_by_its_path_with_the_drop_ins_beside_it(tmp_path: Path) -> None:
    path = put(tmp_path, "v.service")
    put(tmp_path, "v.service.d/1.conf", "one")
    assert [text for _, text in find_unit(str(path)).texts] == ["x", "one"]


def test_a_drop_in_that_is_masked_is_left_out(search: tuple[Path, Path]) -> None:
    put(search[0], "v.service")
    (search[0] / "v.service.d").mkdir()
    (search[0] / "v.service.d" / "1.conf").symlink_to("/dev/null")
    assert len(find_unit("v", search).texts) == 1


def test_a_unit_that_is_not_there_or_masked_says_so(search: tuple[Path, Path]) -> None:
    search[0].mkdir()
    (search[0] / "m.service").symlink_to("/dev/null")
    with pytest.raises(HostError, match="is masked"):
        find_unit("m", search)
    with pytest.raises(HostError, match="no unit of that name"):
        find_unit("n", search)
    with pytest.raises(HostError, match="/no/such"):
        find_unit("/no/such/v.service")


def test_what_systemd_names_is_read(tmp_path: Path) -> None:
    unit, drop_in = put(tmp_path, "v.service"), put(tmp_path, "1.conf", "one")
    found = read_found("v.service", str(unit), [str(drop_in)])
    assert found.texts == ((unit, "x"), (drop_in, "one"))


def test_a_unit_or_drop_in_that_is_no_file_is_named(tmp_path: Path) -> None:
    unit, drop_in = put(tmp_path, "v.service"), tmp_path / "1.conf"
    drop_in.symlink_to(drop_in)
    with pytest.raises(HostError, match=r"1\.conf: Too many levels"):
        read_found("v.service", str(unit), [str(drop_in)])
    drop_in.unlink()
    os.mkfifo(drop_in)
    with pytest.raises(HostError, match=r"1\.conf: .* a named pipe"):
        read_found("v.service", str(unit), [str(drop_in)])
    loop = tmp_path / "l.service"
    loop.symlink_to(loop)
    with pytest.raises(HostError, match=r"l\.service: Too many levels"):
        find_unit(str(loop))
