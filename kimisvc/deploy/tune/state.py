"""What a search has to remember: its question, its candidates, each start and what it came to.

One JSON file, replaced as a whole before and after each start, by root alone.
A search that was cut off (a kill, a reboot) goes on from it. The candidates'
profiles lie beside it as they were when the search began: whoever edits the
originals meanwhile changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.measure.comparison import MARGIN
from kimisvc.measure.tuning import Search
from kimisvc.profile.loader import restore
from kimisvc.records.profile import Risk
from kimisvc.records.proof import Interval, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.layout import Layout
    from kimisvc.records.profile import Profile

SCHEMA = 1
LINES_KEPT = 200
"""So many lines of the log are kept for who follows."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator asked for. None and "": not asked for.

    `budget_s`: seconds in all. `drain_s`: how long to wait for requests to end
    before each restart. `window`: the hours in which restarts may happen.
    """

    target: str = ""
    search: Search = Search.FIRST_THAT_MEETS
    max_risk: Risk = Risk.SAFE_ISH
    budget_s: float | None = None
    max_starts: int | None = None
    margin: float = MARGIN
    drain_s: float | None = None
    window: str = ""
    actor: str = ""

    @property
    def acting(self) -> str:
        """Who acts in it, as history names it."""
        return f"{self.actor} (tune)" if self.actor else "tune"


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate as it is kept. `differences`: settings in which it differs from the first.

    `file` is where its profile lies, for who wants to apply it again; "" where a
    search of an older kimisvc did not keep that.
    """

    name: str
    risk: Risk
    differences: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One start of a candidate. `seconds`: all it took, a rollback after it too.

    `verdict` is against the target of the search; `started`: the model was
    started for it, or its gate, so that it counts against --max-starts.
    `error` is the standard error of the figure's mean (tok/s). `further_runs`: so
    many were made after those of its gate, and the figure is of all of them.
    """

    candidate: str
    at: float
    seconds: float
    verdict: VerdictKind
    reason: str
    outcome: str
    started: bool
    generation: int | None = None
    decode_tok_s: Interval | None = None
    error: float = 0.0
    further_runs: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A start that was begun: `since` is the history's sequence before it, `at` the moment."""

    candidate: str
    since: int
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search ended, and what runs now. `exit`: the status its command ends with."""

    at: float
    why: str
    winner: str
    left: str
    exit: int


@dataclass(frozen=True, slots=True)
class TuneState:
    """A search from its first to its last moment.

    `before`: the generation that was accepted when it began. `restoring_s`:
    seconds that went into leaving the right profile in place.
    """

    instance: str
    begun_at: float
    asked: Asked
    candidates: tuple[Contender, ...]
    before: int | None = None
    trials: tuple[TrialRow, ...] = ()
    pending: Pending | None = None
    restoring_s: float = 0.0
    log: tuple[tuple[float, str], ...] = ()
    ended: Ended | None = None

    @property
    def spent_s(self) -> float:
        """All seconds spent so far, without what it waited for a window or for requests to end."""
        return sum(trial.seconds for trial in self.trials) + self.restoring_s

    def file_of(self, name: str) -> str:
        """Given a candidate's name, return where its profile lies; "" where that was not kept."""
        return next((one.file for one in self.candidates if one.name == name), "")

    def saying(self, at: float, text: str) -> TuneState:
        """Given a moment and a line, return it with that line in its log."""
        return replace(self, log=(*self.log, (at, text))[-LINES_KEPT:])


# --------------------------------------------------------------------- the file


def write_state(layout: Layout, state: TuneState) -> None:
    """Given a search, keep it. Raise HostError where that fails; what was kept before stays."""
    value = {"schema": SCHEMA, **asdict(state)}
    text = json.dumps(value, indent=1, default=lambda enum: enum.name)
    files.write_atomic(layout.tune, text + "\n", mode=0o644)


def read_state(layout: Layout) -> TuneState | None:
    """Given an instance, return its last search; None before the first.

    Raise KimisvcError where the file is damaged or of a newer kimisvc.
    """
    if not files.exists(layout.tune):
        return None
    try:
        data = json.loads(files.read_text(layout.tune))
        if data.pop("schema") != SCHEMA:
            raise ValueError("it is of another kimisvc")  # noqa: TRY301 - told as damage is
        return _state(data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KimisvcError(
            "tune-damaged",
            f"{layout.tune}: {error}",
            hint=f"remove it with: kimisvc tune --cancel --instance {layout.instance};"
            " history and generations are not touched",
        ) from error


def unfinished(layout: Layout) -> bool:
    """Given an instance, say whether a search of it has not ended; a damaged one has."""
    try:
        state = read_state(layout)
    except KimisvcError:
        return False
    return state is not None and state.ended is None


def _state(data: dict[str, Any]) -> TuneState:
    asked = dict(data.pop("asked"))
    asked |= {"search": Search[asked["search"]], "max_risk": Risk[asked["max_risk"]]}
    pending, ended = data.pop("pending"), data.pop("ended")
    contenders = tuple(
        Contender(**{**one, "risk": Risk[one["risk"]]}) for one in data.pop("candidates")
    )
    return TuneState(
        asked=Asked(**asked),
        candidates=contenders,
        trials=tuple(_trial(one) for one in data.pop("trials")),
        pending=Pending(**pending) if pending else None,
        log=tuple((float(at), str(text)) for at, text in data.pop("log")),
        ended=Ended(**ended) if ended else None,
        **data,
    )


def _trial(data: dict[str, Any]) -> TrialRow:
    speed = data.pop("decode_tok_s")
    return TrialRow(
        **{**data, "verdict": VerdictKind[data["verdict"]]},
        decode_tok_s=Interval(**speed) if speed else None,
    )


# --------------------------------------------------------------------- the profiles

_RESOLVED, _AS_WRITTEN = ".toml", ".as-written"


def keep_profile(layout: Layout, name: str, written: str, resolved: str) -> None:
    """Given a candidate's profile, as written and as resolved, keep both beside the state."""
    files.make_folder(layout.tune_profiles)
    files.write_atomic(_resolved(layout, name), resolved)
    files.write_atomic(_written(layout, name), written)


def forget_profiles(layout: Layout) -> None:
    """Given an instance, remove the candidates of an earlier search."""
    for path in files.entries(layout.tune_profiles):
        if path.suffix in (_RESOLVED, _AS_WRITTEN):  # what else lies there is somebody else's
            files.remove(path)


def kept_profile(layout: Layout, name: str) -> tuple[Profile, str]:
    """Given a candidate's name, return its profile and its text as written. Raise KimisvcError."""
    path = _resolved(layout, name)
    return restore(path), files.read_text(_written(layout, name))


def _resolved(layout: Layout, name: str) -> Path:
    return layout.tune_profiles / f"{name}{_RESOLVED}"


def _written(layout: Layout, name: str) -> Path:
    return layout.tune_profiles / f"{name}{_AS_WRITTEN}"
