"""The page and the short form: everything told, nothing that acts, and bounded in size."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import long_history
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimisvc.deploy.contests import Contests, contests
from kimisvc.deploy.history import BenchRow, CanaryResult, CanaryRow, History, Which
from kimisvc.observe.report import terminal
from kimisvc.observe.report.page import page
from kimisvc.observe.report.speed import Bucket, runs
from kimisvc.observe.report.story import Story, read_story
from kimisvc.observe.report.tables import (
    MOST_ROWS,
    Cell,
    bench_table,
    canary_table,
    environment_table,
)
from kimisvc.records.proof import Verdict, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

NOW = long_history.BEGAN + 200 * long_history.DAY
ACTIVE = {
    "script",
    "iframe",
    "object",
    "embed",
    "form",
    "input",
    "button",
    "base",
    "audio",
    "video",
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return long_history.write(tmp_path_factory.mktemp("history") / "history.sqlite", 86400.0)


@pytest.fixture(scope="module")
def story(history: History) -> Story:
    return read_story(long_history.box(history), Which(), NOW)


class Reader(HTMLParser):
    """Collects elements and attributes; fails where an element is closed that is not open."""

    VOID = frozenset({"meta", "link", "br", "img", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def read(self, text: str) -> Reader:
        self.feed(text)
        self.close()
        assert self._open == []
        return self


def harmless(text: str) -> Reader:
    read = Reader().read(text)
    assert not ACTIVE & set(read.elements)
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    linked = [value for name, value in read.attributes if name in {"href", "src", "xlink:href"}]
    assert linked == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    identities = [value for name, value in read.attributes if name == "id"]
    assert len(identities) == len(set(identities))
    return read


def test_the_page_is_well_formed_and_nothing_in_it_acts(story: Story) -> None:
    read = harmless(page(story))
    told = " ".join(read.texts)
    assert "<script>alert(1)</script>" in told  # as words that somebody reads
    assert "{{ 7*7 }}" in told
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_every_chart_has_a_title_and_a_description_and_a_table_beside_it(story: Story) -> None:
    text = page(story)
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert len(figures) == len(story.profiles) + 2
    for figure in figures:
        assert re.search(r'role="img" aria-labelledby="(\S+)-title \1-desc"', figure)
        assert re.search(r"<title id=.*?>.+?</title><desc id=.*?>.+?</desc>", figure)
        assert "<table>" in figure


def test_every_verdict_is_drawn_and_told(story: Story) -> None:
    text = page(story)
    speeds = text.split('<h2 id="comparison">')[0]
    for kind in VerdictKind:
        count = sum(v.verdict.kind is kind for v in story.verdicts)
        assert speeds.count(f'class="mark {kind.value.lower()}"') == count + 1  # and the legend's
    assert "goal 80" in text
    assert "floor 70" in text
    assert text.count('<g class="rollback"') == len(story.rollbacks) == 2
    assert 'class="changed">6.1.0-31-amd64' in text
    assert "8 x NVIDIA H200" in text


def test_the_year_is_not_stretched_to_1970(story: Story) -> None:
    first, last = story.moments()
    assert (last - first) < 200 * long_history.DAY
    assert "1970" not in re.sub(r"<table>.*?</table>", "", page(story), flags=re.DOTALL)


def test_comparisons_say_what_compare_says(story: Story) -> None:
    (row,) = story.contests.rows
    assert (row.base, row.other, row.starts) == ("baseline", "ll_ring", (4, 5))
    assert story.contests.apart == (
        "long_context: no accepted start of it", "eagle3: no accepted start of it",
    )  # fmt: skip
    text = html.unescape(page(story))
    for words in (row.words, *row.notes, *story.contests.apart):
        assert words in text


def test_starts_of_another_environment_are_told_and_not_compared(tmp_path: Path) -> None:
    box = long_history.Writer(History(tmp_path / "h.sqlite"))
    for profile, version in (("one", "0.33.0"), ("two", "0.34.0"), ("two", "0.34.0")):
        box.vllm = version
        box.start(profile, VerdictKind.PASS, "good")
    found = contests(long_history.box(box.history), ("two", "one", "none"))
    assert found.rows == ()
    assert found.apart[0] == "none: no accepted start of it"
    assert "differ in more than the profile: vllm: 0.33.0 and 0.34.0" in found.apart[1]
    assert contests(long_history.box(box.history), ()) == Contests()


def test_how_a_start_was_measured_is_told_and_clocks_of_a_moment_are_no_change(
    tmp_path: Path,
) -> None:
    box = long_history.Writer(History(tmp_path / "h.sqlite"))
    for clock, kernel in (("1965", "6.1"), ("1980", "6.2")):
        box.kernel, box.clocks = kernel, [f"SM {clock} of 1980 MHz"] * 8
        box.start("one", VerdictKind.PASS, "good")
    box.history.add_bench(BenchRow(box.now, "i2", 1, "one", 8, 8, 0, facts={"vllm": "0.34.0"}))
    box.history.add_bench(BenchRow(box.now, "i2", 1, "one", 8, 8, 0))
    story = read_story(long_history.box(box.history), Which(), NOW)
    table = environment_table(story)
    newest = dict(zip(table.head, table.rows[0], strict=True))
    assert newest["Kernel"] == Cell("6.2", "changed")
    assert newest["Clocks"] == Cell("8 x SM 1980 of 1980 MHz", "fact")
    assert newest["Sampling temperature"] == Cell("0", "fact")
    benches = bench_table(story)
    assert [row[benches.head.index("vLLM")].text for row in benches.rows] == ["-", "0.34.0"]


def test_canaries_that_could_not_see_are_counted_with_the_skipped(tmp_path: Path) -> None:
    history = History(tmp_path / "one.sqlite")
    for result in CanaryResult:
        speed = 80.0 if result is CanaryResult.MEASURED else None
        history.add_canary(CanaryRow(NOW - 3600.0, "i", 1, "p", result, speed))
    table = canary_table(read_story(long_history.box(history), Which(), NOW), "p")
    (day,) = table.rows
    told = dict(zip(table.head, (cell.text for cell in day), strict=True))
    assert (told["Measured"], told["Skipped"], told["Failed"]) == ("1", "3", "1")


def test_an_empty_history_and_one_without_figures_have_a_page(tmp_path: Path) -> None:
    empty = read_story(long_history.box(History(tmp_path / "none.sqlite"), "<b>"), Which(), NOW)
    assert "No history yet" in page(empty)
    harmless(page(empty))
    box = long_history.Writer(History(tmp_path / "one.sqlite"))
    box.apply("p")
    box.canaries("p", 1)
    harmless(page(read_story(long_history.box(box.history), Which(), NOW)))


def test_figures_that_are_no_speeds_break_nothing(tmp_path: Path) -> None:
    box = long_history.Writer(History(tmp_path / "one.sqlite"))
    for profile, slower in (("one", 1.0), ("two", 0.0), ("three", -1e13), ("four", 1e13)):
        box.start(profile, VerdictKind.PASS, "good", slower=slower)
    with box.history._writing() as db:  # noqa: SLF001 - as a broken record may have it
        db.execute("UPDATE starts SET load_s = 0")
    story = read_story(long_history.box(box.history), Which(), NOW)
    assert {row.other for row in story.contests.rows} == {"four"}
    assert len(story.contests.apart) == 2
    harmless(page(story))


def test_moments_that_no_calendar_has_break_nothing(tmp_path: Path) -> None:
    box = long_history.Writer(History(tmp_path / "one.sqlite"))
    for box.now in (9e15, -9e15, 1e300):
        box.start("p", VerdictKind.PASS, "good")
        box.canaries("p", 1)
    harmless(page(read_story(long_history.box(box.history), Which(), NOW)))


def test_the_page_is_bounded_whatever_the_history_holds(story: Story) -> None:
    reason = Verdict(VerdictKind.FAIL, "x" * 400)
    rows = [
        replace(v, profile=f"profile-{n % 40}", verdict=reason, sequence=v.sequence + n)
        for n in range(2000)
        for v in story.verdicts[:1]
    ]
    names = tuple(f"profile-{n}" for n in range(40))
    text = page(replace(story, verdicts=tuple(rows), profiles=names))
    assert len(text) < 3_000_000
    assert "32 profiles used before those are not drawn" in text
    assert f"{MOST_ROWS} newest of {2000 + len(story.applies) + len(story.rollbacks)}" in text


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=80))
def test_no_text_from_outside_leaves_its_place(story: Story, text: str) -> None:
    told = replace(
        story, profiles=(text,), instance=text,
        verdicts=tuple(replace(v, profile=text, verdict=Verdict(v.verdict.kind, text))
                       for v in story.verdicts[-3:]),
        starts=tuple(replace(s, profile=text, model=text, facts={"host": text})
                     for s in story.starts[-3:]),
        canaries=(), benches=(), applies=(), rollbacks=(),
    )  # fmt: skip
    harmless(page(told))


def test_a_line_of_canaries_breaks_where_they_were_missing() -> None:
    parts: list[Bucket] = [(n, 1.0, 2.0, 3.0) for n in (1, 2, 3, 9, 10)]
    assert [[b[0] for b in run] for run in runs(parts)] == [[1, 2, 3], [9, 10]]
    assert runs([]) == []


def test_the_short_form(story: Story) -> None:
    (first, *_), ramp = terminal.rows(story, terminal.Ramp.ASCII), terminal.Ramp.BLOCKS
    assert first[:3] == ("ll_ring", "7", "PASS")
    assert set(first[4]) <= set("_.-=+*#@")
    assert terminal.sparkline([1, 2, 3], ramp) == "▁▅█"
    assert terminal.sparkline([5, 5], ramp) == "▅▅"
    assert terminal.sparkline([], ramp) == ""
    said = "\n".join(terminal.remarks(story))
    assert "ll_ring against baseline: +" in said
    assert "newest of 2 rollbacks" in said
    told = terminal.as_json(story)
    assert [p["profile"] for p in told["profiles"]] == list(story.profiles)
    assert told["profiles"][0]["decode_tok_s_low"] < told["profiles"][0]["decode_tok_s"]
    assert {c["verdict"] for c in told["comparisons"]} <= {"inconclusive", "better"}


def test_since_leaves_out_what_was_before(history: History, story: Story) -> None:
    late = read_story(long_history.box(history), Which(since=NOW - 90 * long_history.DAY), NOW)
    assert 0 < len(late.verdicts) < len(story.verdicts)
    assert min(v.at for v in late.verdicts) >= NOW - 90 * long_history.DAY
