"""tune: search for the profile to run, start by start."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, problem_json, problem_lines
from kimisvc.cli.tune_output import tell, tune_json
from kimisvc.errors import ExitStatus, KimisvcError, PreflightRefusedError, ProfileRefusedError
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.tune.candidates import Offered
    from kimisvc.deploy.tune.state import Asked, TuneState
    from kimisvc.deploy.tune.world import World
    from kimisvc.host.vllm_api import VllmApi
    from kimisvc.records.problems import Problem
    from kimisvc.records.units import UnitFile


Command = TypeVar("Command", bound="Callable[..., Any]")


class Do(Enum):
    """What the command is to do."""

    BEGIN = "begin"
    DRY_RUN = "dry-run"
    STATUS = "status"
    FOLLOW = "follow"
    CANCEL = "cancel"
    UNIT = "unit"


def _do(what: Do, text: str, **more: Any) -> Callable[[Command], Command]:
    return click.option(
        f"--{what.value}", "do", flag_value=what, type=Do, default=Do.BEGIN, help=text, **more
    )


@click.command()
@click.argument("profiles", metavar="[PROFILE]...", nargs=-1)
@click.option(
    "--plan", metavar="FILE", type=click.Path(path_type=Path),
    help="Read what to search for from a TOML file. Its keys: profiles (a list of bare names, and of"
    " files beside it), target, explore, max_risk, budget, max_starts, drain, window. What stands on"
    " the command line goes first.",
)  # fmt: skip
@click.option("--target", metavar='">40~50"', help="Floor and goal; else those of the first.")
@click.option("--explore", is_flag=True, default=None, help="Compare all, by several starts each.")
@click.option("--max-risk", metavar="CLASS", help="safe, safe-ish (unless said) or risky.")
@click.option("--budget", metavar="TIME", help="Spend so much at most, such as 3h.")
@click.option("--max-starts", metavar="N", type=int, help="Start so often at most.")
@click.option(
    "--drain", metavar="TIME",
    help="Wait so long for requests to end before a restart; then restart all the same.",
)  # fmt: skip
@click.option("--window", metavar="HH:MM-HH:MM", help="Restart within these hours only.")
@click.option("--no-follow", is_flag=True, help="Do not watch it; the search goes on.")
@_do(Do.DRY_RUN, "Say what would be tried, how long it takes, what is in its way.")
@_do(Do.STATUS, "Show the search that is under way, or the last.")
@_do(Do.FOLLOW, "Watch the search that is under way.")
@_do(Do.CANCEL, "End the search; a start under way is left to its gate.")
@_do(Do.UNIT, "Search (called by the unit of the search).", hidden=True)
@options.instance
@options.as_json
def tune(
    profiles: tuple[str, ...], plan: Path | None, no_follow: bool, do: Do, instance: str | None,
    form: Form, **words: Any,
) -> int:  # fmt: skip
    """Search for the profile to run: the first that meets the target, or with --explore the fastest.

    Measures the first PROFILE; where it meets the target, that is all. Else
    the others by risk, never above --max-risk. Each start goes through the same
    gate as apply. Works as a unit of its own: Ctrl-C, a lost connection or a
    reboot leave it at work. In the end the simplest profile that is not worse
    is in place.
    """
    if do in (Do.BEGIN, Do.DRY_RUN):
        return _begin(
            _asked(profiles, plan, words), do, _Then.LEAVE if no_follow else _Then.WATCH, form
        )
    if profiles or plan or any(value is not None for value in words.values()):
        raise click.UsageError(f"--{do.value} takes no profiles and nothing else that is asked for")
    if do is not Do.STATUS and do is not Do.FOLLOW:
        doors.need_root(f"tune --{do.value}")
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        box = doors.box(systemd, doors.instance_or_default(instance))
        return _HOW[do](box, form)


class _Then(Enum):
    WATCH = "watch"
    LEAVE = "leave"


def _asked(
    profiles: Sequence[str], plan: Path | None, words: dict[str, Any]
) -> tuple[tuple[str, ...], Asked]:
    from kimisvc.deploy.tune.asked import WORDS, asked_of, read_plan

    told: dict[str, Any] = dict(read_plan(plan, doors.named_profile)) if plan else {}
    for word in WORDS:
        value = words.get(word.key)
        if value is not None:
            try:
                told[word.key] = word.becomes(value)
            except ValueError as error:
                raise click.UsageError(f"--{word.key.replace('_', '-')}: {error}") from error
    names = tuple(profiles) or told.get("profiles", ())
    told.pop("profiles", None)
    if not names:
        raise click.UsageError("say which profiles to try, the one to begin with first")
    return names, asked_of(told, doors.actor())


def _offered(names: Sequence[str]) -> tuple[Offered, ...]:
    """Check all profiles; raise ProfileRefusedError with the problems of all."""
    from kimisvc.deploy.tune.candidates import Offered

    offered: list[Offered] = []
    problems: list[Problem] = []
    for name in names:
        found = doors.checked(name)
        problems += found.problems
        if found.profile is not None:
            offered.append(Offered(str(found.files[0].absolute()), found.text, found.profile))
    if len(offered) < len(names):
        raise ProfileRefusedError([p for p in problems if p.severity is Severity.ERROR])
    for line in problem_lines(problems):
        click.echo(line, err=True)
    return tuple(offered)


def _begin(wanted: tuple[tuple[str, ...], Asked], do: Do, then: _Then, form: Form) -> int:
    from kimisvc.deploy.tune.begin import begin, refuse_hopeless, with_target
    from kimisvc.deploy.tune.candidates import entries
    from kimisvc.deploy.tune.plan import fallback_of, longest, start_seconds
    from kimisvc.deploy.tune.state import TuneState
    from kimisvc.deploy.tune.summary import outlook
    from kimisvc.host.systemd import Systemd

    names, asked = wanted
    offered = _offered(names)
    tried = entries(offered)
    first = offered[0].profile
    asked = with_target(asked, first)
    if do is Do.BEGIN:
        doors.need_root("tune")
    with Systemd() as systemd:
        box = doors.box(systemd, first.service.instance)
        draft = TuneState(
            first.service.instance, box.now(), asked, tuple(entry.contender for entry in tried)
        )
        start_s = {
            one.profile.name: start_seconds(box, one.profile, asked.search) for one in offered
        }
        resolved = {entry.contender.name: entry.resolved for entry in tried}
        fallback = fallback_of(box, resolved, None)
        said = outlook(draft, start_s, fallback)
        at_most = {
            one.profile.name: start_s[one.profile.name] or longest(one.profile) for one in offered
        }
        refuse_hopeless(draft, at_most, fallback)
        if do is Do.DRY_RUN:
            return _propose(box, draft, offered, said, form)
        refusal = _refusal(box, asked)
        if refusal is not None:
            raise refusal
        begin(box, asked, tried, _unit(box))
        click.echo(f"kimisvc: {said}", err=True)
        if then is _Then.LEAVE:
            follow = f"kimisvc tune --follow --instance {box.layout.instance}"
            click.echo(f"kimisvc: watch it with: {follow}", err=True)
            return _status(box, form)
        return _follow(box, form)


def _refusal(box: Box, asked: Asked) -> KimisvcError | None:
    """Return why none may begin now, whatever its candidates: another kimisvc at work, live traffic."""
    from kimisvc.deploy.apply import refuse_beside
    from kimisvc.deploy.tune.begin import refuse_traffic

    try:
        refuse_beside(box)
        refuse_traffic(box, asked, _server(box))
    except KimisvcError as error:
        return error
    return None


def _propose(box: Box, draft: TuneState, offered: Sequence[Offered], said: str, form: Form) -> int:
    """Say what would be tried and all that is in its way; end as tune would, 7 where none could start."""
    from kimisvc.cli.reporter import Plain
    from kimisvc.deploy.tune.beforehand import beforehand, refused
    from kimisvc.deploy.tune.summary import proposal

    would, found = proposal(draft), beforehand(_world(box, Plain()), draft, offered)
    reasons = refused(found)
    refusal = _refusal(box, draft.asked)
    if refusal is None and reasons:
        refusal = PreflightRefusedError(reasons)
    status = int(refusal.exit_status if refusal else ExitStatus.DONE)
    if form is Form.JSON:
        told = {**tune_json(draft), "begun_at": None, "summary": would, "outlook": said}
        listed = {name: [problem_json(one) for one in of] for name, of in found.items()}
        why = refusal.message if refusal else None
        emit_json({**told, "problems": listed, "refused": why, "exit": status})
        return status
    click.echo(f"{would}\n{said}")
    if not isinstance(refusal, PreflightRefusedError):
        for name, problems in found.items():
            for line in problem_lines(problems):
                click.echo(f"{name}: {line}", err=True)
    if refusal is not None:
        raise refusal
    return status


def _server(box: Box) -> VllmApi | None:
    """The door to the server that runs; None where none does, or nobody can say where it listens."""
    current = box.generations.sound_current()
    if current is None or box.systemd.state(box.layout.units.service).active_state != "active":
        return None
    try:
        return doors.api(current.settings())
    except ProfileRefusedError:
        return None  # a damaged generation


def _unit(box: Box) -> UnitFile:
    from kimisvc.render.tune_unit import TEMPLATE, render_tune

    template = doors.templates().get(TEMPLATE)
    if template is None:
        raise KimisvcError("no-template", f"{TEMPLATE} is not part of this installation")
    return render_tune(template, box.layout.place, box.layout.instance, box.layout.tune_unit)


def _follow(box: Box, form: Form) -> int:
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.tune.watch import watch

    with reporter() as shown:
        state = watch(box, shown)
    return tell(state, form)


def _status(box: Box, form: Form) -> int:
    from kimisvc.deploy.tune.meanwhile import stopped
    from kimisvc.deploy.tune.state import read_state

    halted, state = stopped(box), read_state(box.layout)
    if state is None:
        raise KimisvcError("no-search", f"there was no search of {box.layout.instance} yet")
    tell(state, form, halted)
    return 0


def _cancel(box: Box, form: Form) -> int:
    from kimisvc.deploy.tune.begin import cancel

    state = cancel(box)
    if state is None:
        raise KimisvcError("no-search", f"there was no search of {box.layout.instance} to cancel")
    tell(state, form)
    return 0


def _search(box: Box, form: Form) -> int:
    """Be the unit of the search: carry it on to its end, then remove the unit."""
    from kimisvc.cli.reporter import Plain
    from kimisvc.deploy.tune.begin import remove_unit
    from kimisvc.deploy.tune.search import search

    state = search(_world(box, Plain()))
    remove_unit(box)
    if state is not None:
        tell(state, form)
    return 0  # how it ended is in its state; the unit did what it is for


def _world(box: Box, shown: Any) -> World:
    from kimisvc.cli.apply import checks
    from kimisvc.deploy.tune.trial import Means
    from kimisvc.deploy.tune.world import World
    from kimisvc.deploy.wish import Wish
    from kimisvc.profile.resolved import to_toml

    return World(
        Means(box, checks(box), shown, doors.api_of_root),
        lambda profile, written, file: Wish(
            profile, written, to_toml(profile), doors.units_of(profile), "tune", file=file
        ),
    )


_HOW = {Do.STATUS: _status, Do.FOLLOW: _follow, Do.CANCEL: _cancel, Do.UNIT: _search}
