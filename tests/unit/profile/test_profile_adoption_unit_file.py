"""A unit and its drop-ins are merged as systemd merges them."""

from __future__ import annotations

import pytest

from kimisvc.profile.adoption.directives import DIRECTIVES, may_be_shown, reason
from kimisvc.profile.adoption.unit_file import UnitText, read_unit, specifier_values, unescaped

MAIN = UnitText(
    "/etc/systemd/system/v.service",
    """# a comment
[Unit]
Description=one \\
# a comment in between is left out
   two
[Service]
ExecStart=/a b
Environment=A=1
Environment=B=2
TimeoutStartSec=90
  User = vllm\x20
rubbish
Ends=\\\\
[Install]
WantedBy=x
""",
)
DROP_IN = UnitText(
    "/etc/systemd/system/v.service.d/a.conf",
    "[Service]\r\nExecStart=\r\nExecStart=/c d\r\nEnvironment=C=3\r\nTimeoutStartSec=5min\r\n",
)


def test_drop_ins_come_after_and_an_empty_value_begins_anew() -> None:
    unit = read_unit("v.service", [MAIN, DROP_IN])
    assert unit.all("ExecStart") == ("/c d",)
    assert unit.all("Environment") == ("A=1", "B=2", "C=3")
    assert unit.last("TimeoutStartSec") == "5min"
    assert unit.last("User") == "vllm"
    assert unit.last("Description", "Unit") == "one     two"
    assert unit.last("Ends") == r"\\"
    assert unit.last("WantedBy", "Install") == "x"
    assert unit.last("Nothing") == ""
    assert unit.ignored == ("rubbish",)
    assert unit.files == (MAIN.path, DROP_IN.path)


def test_a_line_that_goes_on_at_the_end_of_the_file_is_read() -> None:
    assert read_unit("v", [UnitText("v", "[Service]\nUser=a\\")]).last("User") == "a"


def test_what_a_unit_is_called_fills_its_specifiers() -> None:
    known = specifier_values(r"a-b@srv-m\x2d1.service")
    assert (known["p"], known["i"], known["I"], known["j"]) == (
        "a-b",
        r"srv-m\x2d1",
        "srv/m-1",
        "b",
    )
    assert unescaped(r"x\xzz") == r"x\xzz"


@pytest.mark.parametrize(
    "key",
    ["Restart", "StartLimitBurst", "KillMode", "Type", "OnFailure", "ExecStartPre", "Group",
     "ProtectSystem", "StandardOutput", "After", "WantedBy", "LimitMEMLOCK", "CacheDirectory"],
)  # fmt: skip
def test_what_every_unit_has_is_left_out_with_a_reason(key: str) -> None:
    assert reason(key)


def test_each_reason_is_a_sentence_of_its_own_and_commands_are_not_shown() -> None:
    assert len({row.why for row in DIRECTIVES}) == len(DIRECTIVES)
    assert reason("NoSuchSetting") == ""
    assert not may_be_shown("ExecStartPre")
    assert may_be_shown("Restart")
