"""Links that are missing or lead to damage, a history that is lost: no command tells more than it knows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_box import (
    SERVICE,
    Silent,
    Systemd,
    impatient,
    leave,
    no_server,
    two_generations,
)

from kimisvc.cli.apply import applied_text
from kimisvc.cli.plan import plan_text
from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.apply import apply
from kimisvc.deploy.at_rest import Left, ending_at_rest, ending_cut_off
from kimisvc.deploy.generations import RESOLVED, Draft
from kimisvc.deploy.history import Accepted, ApplyRow, RollbackRow
from kimisvc.deploy.numbering import MANIFEST
from kimisvc.deploy.obstacles import in_the_way
from kimisvc.deploy.outcome import Evidence, Outcome
from kimisvc.deploy.restorable import last_proven, proven_earlier
from kimisvc.deploy.rollback import Restoring, for_unit, to_generation
from kimisvc.deploy.status import read_status
from kimisvc.deploy.wish import Checks, Following, HandEdits, Wish, plan_of
from kimisvc.errors import KimisvcError, PreflightRefusedError
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.proof import VerdictKind
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box

CHECKS = Checks(lambda _: (), lambda _: (), lambda: None, lambda _: {}, no_server)


@pytest.fixture
def systemd() -> Systemd:
    made = Systemd()
    made.gate = replace(made.gate, active_state="inactive", sub_state="dead")
    return made


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Generation 3 is current and installed, 2 is accepted; history has the applies and no proof."""
    made = impatient(two_generations(tmp_path, systemd, monkeypatch))
    three = profile("three")
    unit = UnitFile(SERVICE, "[Service]\n# three\n")
    found = made.generations.add(Draft("three", "", to_toml(three), (unit,), {}), 1.0)
    made.layout.installed(SERVICE).write_text(unit.text)
    for number in (1, 2, 3):
        before = number - 1 or None
        made.history.begin_apply(ApplyRow(1.0, None, number, before, "p", "root", (), None, None))
    made.generations.make_current(found)
    made.generations.accept(made.generations.get(2))
    return made


def profile(name: str) -> Profile:
    return Profile(name, VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))


def prove(box: Box, *numbers: int, kind: VerdictKind = VerdictKind.PASS) -> None:
    """Have history tell that gates judged generations, in this order."""
    for number in numbers:
        name = f"r{box.history.sequence()}"
        record = leave(box, kind, name, generation=number)
        box.layout.record(name).unlink()
        box.history.add_record(record, Accepted.YES if kind.accepted else Accepted.NO)


def lose_history(box: Box) -> None:
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()


def spoil_history(box: Box) -> None:
    lose_history(box)
    box.layout.history.write_bytes(b"no database at all" * 100)


def spoil(box: Box, number: int, name: str = MANIFEST) -> None:
    path = box.generations.get(number).path / name
    path.chmod(0o644)
    path.write_text("x\n")


def rows(box: Box) -> dict[str, str]:
    """The rows of status by their names; of those with the same name the first."""
    found: dict[str, str] = {}
    for line in status_text(read_status(box), box).splitlines():
        name, _, words = line.partition("  ")
        found.setdefault(name, words.strip())
    return found


def wanted(name: str, edits: HandEdits = HandEdits.REFUSE) -> Wish:
    text = to_toml(profile(name))
    units = (UnitFile(SERVICE, f"[Service]\n# {name}\n"),)
    return Wish(profile(name), "", text, units, "root", edits, Following.LEAVE)


class Heard(Silent):
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


# ---------------------------------------------------------------- rollback by hand, history lost


@pytest.mark.parametrize("lose", [lose_history, spoil_history])
def test_a_rollback_without_a_history_does_not_say_that_none_was_accepted(
    box: Box, lose: Callable[[Box], None]
) -> None:
    prove(box, 1, 2, 3)
    box.generations.accept(box.generations.get(3))
    lose(box)
    heard = Heard()
    with pytest.raises(KimisvcError) as caught:
        to_generation(box, Restoring(None, "root"), lambda _: (), heard)
    assert "what the history held is lost, so which generations were accepted is not known" in (
        caught.value.message
    )
    assert caught.value.hint == "--to N takes any of them (generations on disk: 1, 2, 3)"
    aside = [*box.layout.history.parent.glob("history.sqlite.damaged-*")]
    told = [f"warning: the history is damaged; kept as {path}, a new one begins" for path in aside]
    assert heard.steps == told
    assert len(told) == (lose is spoil_history)
    to_generation(box, Restoring(2, "root", Following.LEAVE), lambda _: (), heard)
    assert box.generations.current_number() == 2


def test_a_history_that_names_none_is_told_as_what_it_is(box: Box) -> None:
    prove(box, 3)
    box.generations.accept(box.generations.get(3))
    with pytest.raises(KimisvcError, match="history tells of no other generation of kimi that was"):
        to_generation(box, Restoring(None, "root"), lambda _: (), Silent())


def test_a_rollback_by_its_unit_tells_of_a_history_that_it_sets_aside(
    box: Box, systemd: Systemd
) -> None:
    spoil_history(box)
    fail(systemd)
    assert for_unit(box) is not None
    (aside,) = box.layout.history.parent.glob("history.sqlite.damaged-*")
    assert rows(box)["last rollback"].endswith("from 3, to 2")
    told = read_status(box).last_rollback
    assert told is not None
    assert told.reason.endswith(f"; the history was damaged, and is kept as {aside}")


# ---------------------------------------------------------------- no link to the current one


def test_a_current_that_is_missing_is_not_an_instance_that_never_was(box: Box) -> None:
    box.layout.current.unlink()
    (told,) = status_json(read_status(box))["drift"]
    assert told == (
        f"{box.layout.current} is missing beside 3 generations, so which of them is in force is"
        " not known: kimisvc apply PROFILE, or kimisvc rollback --instance kimi --to 2 (the last"
        " accepted one)"
    )
    said = rows(box)
    assert said["accepted"].startswith("2 (two), /")
    assert said["unit"].startswith("active (running)")
    assert said["drift"] == told
    assert said["verdict"] == "not known: which generation is in force is not known"
    with pytest.raises(KimisvcError, match=f"{box.layout.current} is missing, so which"):
        for_unit(box)


@pytest.mark.parametrize("how", ["apply", "rollback"])
def test_what_status_advises_for_a_missing_current_works(box: Box, how: str) -> None:
    box.layout.current.unlink()
    if how == "apply":
        apply(box, wanted("three"), CHECKS, Silent())
    else:
        to_generation(box, Restoring(3, "root", Following.LEAVE), lambda _: (), Silent())
    assert read_status(box).drift == ()
    assert box.generations.current_number() == (4 if how == "apply" else 3)


def test_where_no_proof_is_known_either_whoever_reads_it_chooses(box: Box) -> None:
    box.layout.current.unlink()
    box.layout.accepted.unlink()
    (told,) = read_status(box).drift
    assert told.endswith("or kimisvc rollback --instance kimi --to N")


def test_an_apply_that_broke_before_its_switch_put_nothing_in_force(box: Box) -> None:
    box.layout.current.unlink()
    box.layout.installed(SERVICE).unlink()
    (told,) = read_status(box).drift
    assert told == (
        f"3 generations written, and none put in force: {SERVICE} is not installed:"
        " kimisvc apply PROFILE"
    )


def test_a_current_that_leads_elsewhere_is_named_and_is_no_generation_none(box: Box) -> None:
    box.layout.current.unlink()
    box.layout.current.symlink_to("/etc")
    told = read_status(box).drift
    assert told == (
        (
            f"{box.layout.current} points at /etc, which is no generation: kimisvc apply PROFILE,"
            " or kimisvc rollback --instance kimi --to 2 (the last accepted one)"
        ),
    )
    assert "None" not in status_text(read_status(box), box)
    with pytest.raises(KimisvcError, match="points at /etc, which is no generation, so which"):
        for_unit(box)


def test_where_no_current_is_known_no_ending_names_it(systemd: Systemd) -> None:
    kept = RollbackRow(5.0, 3, None, "slow", sequence=9)
    for rollbacks in ((), (kept,)):
        seen = Evidence(3, (), rollbacks, systemd.service, systemd.gate, systemd.rollback)
        left = Left(None, None, {}, None)
        assert ending_cut_off(seen, left) is None
        ending = ending_at_rest(seen, left)
        assert "None" not in ending.reason
    assert ending.outcome is not Outcome.ROLLED_BACK


def test_a_unit_beside_which_no_generation_lies_is_told(box: Box) -> None:
    box.layout.current.unlink()
    box.layout.accepted.unlink()
    for number in box.generations.numbers():
        path = box.generations.get(number).path
        path.rename(box.layout.state / f"lost-{number}")
    (told,) = read_status(box).drift
    assert told.startswith(f"{SERVICE} is installed, and no generation in")
    assert told.endswith(": kimisvc apply --overwrite PROFILE")
    box.layout.installed(SERVICE).unlink()
    assert "nothing was ever applied here" in status_text(read_status(box), box)


# ---------------------------------------------------------------- no link to the accepted one


def fail(systemd: Systemd) -> None:
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)


@pytest.mark.parametrize(
    ("proofs", "to"),
    [
        ((1, 2), 2),
        ((2, 1), 1),  # the link would lead to the newest proof, not to the highest number
        ((1,), 1),
        ((1, 2, 3), None),  # what runs is itself the last accepted one
        ((), None),
    ],
)
@pytest.mark.parametrize("link", ["gone", "elsewhere"])
def test_without_the_link_what_was_accepted_is_gone_back_to_by_history(
    box: Box, systemd: Systemd, proofs: tuple[int, ...], to: int | None, link: str
) -> None:
    prove(box, *proofs)
    prove(box, 3, kind=VerdictKind.FAIL)
    box.layout.accepted.unlink()
    if link == "elsewhere":
        box.layout.accepted.symlink_to("/etc")
    fail(systemd)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation == to
    assert box.generations.current_number() == (to or 3)
    restored = box.generations.get(to or 3).units()[0].text
    assert box.layout.installed(SERVICE).read_text() == restored


@pytest.mark.parametrize("link", ["there", "gone", "damaged"])
@pytest.mark.parametrize("newest", [1, 2])
def test_the_unit_and_an_operator_go_back_to_the_same_one(box: Box, newest: int, link: str) -> None:
    """That of the newest proof, whatever its number; a link that is lost or damaged changes nothing."""
    four = box.generations.add(Draft("four", "", "", (UnitFile(SERVICE, "# 4\n"),), {}), 2.0)
    prove(box, *{1: (2, 1), 2: (1, 2)}[newest])
    prove(box, 4, kind=VerdictKind.FAIL)
    box.generations.make_current(four)
    box.generations.accept(box.generations.get(newest))
    if link == "gone":
        box.layout.accepted.unlink()
    if link == "damaged":  # its proof was newer still
        prove(box, 3)
        box.generations.accept(box.generations.get(3))
        spoil(box, 3)
    by_unit = last_proven(box, 4)
    assert by_unit is not None
    assert (by_unit.number, proven_earlier(box, 4).number) == (newest, newest)


def test_what_mends_an_instance_names_it(box: Box) -> None:
    """Without a name a command takes the only instance that is in order, which is another one."""
    box.layout.current.unlink()
    command = "kimisvc rollback --instance kimi --to "
    assert command in " ".join(read_status(box).drift)
    assert command in box.generations.no_current().hint


def why_kept(box: Box, systemd: Systemd) -> str:
    fail(systemd)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation is None
    return row.reason


def test_why_nothing_is_gone_back_to_is_no_more_than_what_is_known(
    box: Box, systemd: Systemd
) -> None:
    box.layout.accepted.unlink()
    assert "no generation was ever accepted" in why_kept(box, systemd)
    prove(box, 1)
    spoil(box, 1)
    assert "no generation that was accepted before it is whole" in why_kept(box, systemd)
    lose_history(box)
    assert "so which generations were accepted is not known" in why_kept(box, systemd)
    lose_history(box)
    box.layout.history.mkdir()
    assert "the history cannot be read, so which generations" in why_kept(box, systemd)


def test_a_last_accepted_one_that_is_not_whole_gives_way_to_one_before(
    box: Box, systemd: Systemd
) -> None:
    prove(box, 1, 2)
    box.layout.accepted.unlink()
    spoil(box, 2)
    fail(systemd)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation == 1


def generation_row(box: Box) -> str:
    return rows(box)["generation"].removeprefix("3, ")


def test_status_says_none_ever_was_accepted_only_where_history_says_so(box: Box) -> None:
    box.layout.accepted.unlink()
    assert generation_row(box) == "not accepted, and none ever was"
    assert read_status(box).drift == ()
    prove(box, 1)
    assert generation_row(box) == "whether it is accepted is not known"
    (told,) = read_status(box).drift
    assert told.startswith(f"{box.layout.accepted} is missing, and history tells of accepted")
    lose_history(box)
    assert generation_row(box) == "whether it is accepted is not known: what history held is lost"
    box.layout.history.mkdir()
    assert generation_row(box) == "whether it is accepted is not known: the history cannot be read"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("generations/0009", "not accepted; generation 9, the last accepted one, is damaged"),
        ("/etc", "whether it is accepted is not known"),
    ],
)
def test_an_accepted_link_that_leads_to_nothing_is_not_told_as_none_ever_was(
    box: Box, target: str, words: str
) -> None:
    box.layout.accepted.unlink()
    box.layout.accepted.symlink_to(target)
    assert generation_row(box) == words
    (told,) = read_status(box).drift
    assert told.startswith("the accepted generation is damaged: ")


# ---------------------------------------------------------------- a damaged current generation


def test_of_a_damaged_current_generation_the_verdict_and_a_way_out_are_told(box: Box) -> None:
    prove(box, 3)
    box.generations.accept(box.generations.get(3))
    spoil(box, 3)
    found = read_status(box)
    assert "generation 3, the current one, is damaged: kimisvc apply --overwrite PROFILE" in (
        found.drift
    )
    assert status_json(found)["verdict"] == "PASS"
    assert rows(box)["verdict"].startswith("PASS")


def test_status_names_overwriting_only_where_it_is_needed(box: Box) -> None:
    """Generation 2 wrote what is installed, and says so."""
    box.layout.installed(SERVICE).write_text(box.generations.get(2).units()[0].text)
    spoil(box, 3)
    assert "generation 3, the current one, is damaged: kimisvc apply PROFILE" in (
        read_status(box).drift
    )


def test_a_profile_that_is_not_what_was_written_is_told(box: Box) -> None:
    spoil(box, 3, RESOLVED)
    path = box.generations.get(3).path / RESOLVED
    assert read_status(box).drift == (f"{path} is not what kimisvc wrote: kimisvc apply PROFILE",)


def test_units_of_a_damaged_generation_are_not_said_to_be_edited(box: Box) -> None:
    spoil(box, 3)
    wish = wanted("four")
    with pytest.raises(PreflightRefusedError) as caught:
        apply(box, wish, CHECKS, Silent())
    (refused,) = caught.value.reasons
    assert (refused.file, refused.message) == (
        SERVICE,
        (
            "is there, and the generation that is in force is damaged, so nobody can tell whether it"
            " is as kimisvc wrote it; --overwrite replaces it (a copy is kept)"
        ),
    )
    shown = plan_text(plan_of(box, wish), None, wish.profile, box.systemd.state(SERVICE))
    assert "edited by hand" not in shown
    assert f"{SERVICE}: no current generation tells whether kimisvc wrote it so" in shown
    done = apply(box, wanted("four", HandEdits.OVERWRITE), CHECKS, Silent())
    (copy,) = done.copies
    assert copy.read_text() == "[Service]\n# three\n"
    assert f"a unit that was there is kept as {copy}" in applied_text(done)
    assert "edited" not in applied_text(done)
    assert [line for line in read_status(box).drift if "damaged" in line] == []


def test_where_nobody_knows_what_is_in_force_a_strange_unit_is_not_called_edited(box: Box) -> None:
    box.layout.current.unlink()
    box.layout.installed(SERVICE).write_text("[Service]\n# strange\n")
    wish = wanted("four")
    (refused,) = in_the_way(box, wish, plan_of(box, wish), CHECKS)
    assert "which generation is in force is not known, so nobody can tell" in refused.message
    assert ": kimisvc apply --overwrite PROFILE, or kimisvc rollback" in read_status(box).drift[0]


def test_a_unit_that_was_edited_is_still_told_with_its_edit(box: Box) -> None:
    box.layout.installed(SERVICE).write_text("[Service]\n# three\nNice=5\n")
    wish = wanted("four")
    (refused,) = in_the_way(box, wish, plan_of(box, wish), CHECKS)
    assert refused.message.startswith("was edited by hand")
    assert "+Nice=5" in refused.message


def test_a_rollback_keeps_a_copy_and_does_not_call_it_edited(box: Box, systemd: Systemd) -> None:
    prove(box, 2)
    spoil(box, 3)
    fail(systemd)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation == 2
    assert "; a unit that was there is kept as " in row.reason
    assert "edited" not in row.reason
