"""The report as one page: no script, nothing from a network, and a policy that lets nothing in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from kimisvc.observe.report.contest import drawing, reach
from kimisvc.observe.report.ink import shape
from kimisvc.observe.report.loads import load_chart
from kimisvc.observe.report.speed import frame, speed_chart
from kimisvc.observe.report.tables import (
    bench_table,
    canary_table,
    environment_table,
    event_table,
    load_table,
    verdict_table,
)
from kimisvc.observe.report.timeline import timeline
from kimisvc.observe.report.words import moment, number, plain, span
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from markupsafe import Markup

    from kimisvc.observe.report.axes import Scale
    from kimisvc.observe.report.story import Story
    from kimisvc.observe.report.tables import Table

TEMPLATE = Path(__file__).with_name("page.html.j2")
MOST_PROFILES = 8
"""Profiles that are drawn: those used last."""
MOST_MODELS = 4
MOST_CONTESTS = 20


@dataclass(frozen=True, slots=True)
class Section:
    """One chart with its heading and the tables beside it."""

    heading: str
    chart: Markup
    tables: tuple[Table, ...]


def page(story: Story) -> str:
    """Given a story, return its page of HTML; its size is bounded whatever the history holds."""
    from jinja2 import Environment, StrictUndefined

    shown = story.profiles[:MOST_PROFILES]
    scales = frame(story)
    across = scales[0]
    rows = story.contests.rows[:MOST_CONTESTS]
    scale = reach(rows)
    first, last = story.moments()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        instance=plain(story.instance),
        made_at=moment(story.made_at),
        period=f"{moment(first)} to {moment(last)}" if story.profiles else "",
        tiles=tiles(story),
        legend=[(kind.value, shape(kind, 8.0, 8.0)) for kind in VerdictKind],
        speeds=[_of_profile(story, name, scales, f"speed-{n}") for n, name in enumerate(shown)],
        hidden=len(story.profiles) - len(shown),
        loads=[
            Section(
                model, load_chart(story, model, across, f"load-{n}"), (load_table(story, model),)
            )
            for n, model in enumerate(_models(story))
        ],
        gate=Section("Gate timeline", timeline(story, shown, across, "timeline"), (event_table(story),)),
        contests=[(row, drawing(row, scale)) for row in rows],
        gaps=plain(story.gaps.words),
        apart=[plain(text) for text in story.contests.apart[:MOST_CONTESTS]],
        benches=bench_table(story),
        environments=environment_table(story),
    )  # fmt: skip


def tiles(story: Story) -> list[tuple[str, str, str]]:
    """Given a story, return what is told first: a name, a figure, and a remark for each."""
    newest = story.verdicts[-1] if story.verdicts else None
    loads = [row.load_s for row in story.starts if row.load_s is not None]
    told = []
    if newest is not None:
        seen = newest.decode_tok_s
        told = [
            ("Newest verdict", newest.verdict.kind.value,
             f"{newest.profile}, generation {newest.generation}, {moment(newest.at)}"),
("Decode speed", number(seen.mean if seen else None),
             f"{seen.low:.4g} to {seen.high:.4g} tok/s, one stream" if seen else "not measured"),
        ]  # fmt: skip
    if loads:
        told.append(("Load time", span(median(loads)), f"median of {len(loads)}"))
    told.append(("Starts", str(len(story.starts)), f"of {len(story.profiles)} profiles"))
    told.append(("Rollbacks", str(len(story.rollbacks)), ""))
    return told


def _of_profile(story: Story, profile: str, scales: tuple[Scale, Scale], identity: str) -> Section:
    tables = (verdict_table(story, profile), canary_table(story, profile))
    return Section(
        profile, speed_chart(story, profile, scales, identity), tuple(t for t in tables if t.rows)
    )


def _models(story: Story) -> list[str]:
    return list(dict.fromkeys(row.model for row in reversed(story.starts)))[:MOST_MODELS]
