"""The page in a real headless browser: quiet, drawn, readable in light and dark, on small screens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import chromium
import long_history
import pytest

from kimisvc.deploy.history import Which
from kimisvc.observe.report.page import page
from kimisvc.observe.report.story import Story, read_story

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    chromium.program() is None, reason="needs a headless Chromium: packaging/setup apt"
)
CONTRAST = """
(() => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b) };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05) };
  const ground = getComputedStyle(document.body).backgroundColor;
  const color = (q, what) => getComputedStyle(document.querySelector(q))[what];
  return {
    text: ratio(color('body', 'color'), ground),
    soft: ratio(color('p.soft', 'color'), ground),
    label: ratio(color('svg text', 'fill'), ground),
    link: ratio(color('summary', 'color'), ground),
    pass: ratio(color('svg g.pass circle', 'fill'), ground),
    degraded: ratio(color('svg g.degraded path', 'fill'), ground),
    fail: ratio(color('svg g.fail path', 'stroke'), ground),
    inconclusive: ratio(color('svg g.inconclusive path', 'stroke'), ground),
    canary: ratio(color('svg polyline.canary', 'stroke'), ground),
  };
})()
"""
"""WCAG 2.2: 4.5 for text (1.4.3), 3 for what is drawn (1.4.11)."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    path = tmp_path_factory.mktemp("history") / "history.sqlite"
    now = long_history.BEGAN + 200 * long_history.DAY
    return read_story(long_history.box(long_history.write(path, 86400.0)), Which(), now)


@pytest.fixture(scope="module")
def seen(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    folder = tmp_path_factory.mktemp("browser")
    file: Path = folder / "report.html"
    file.write_text(page(story), encoding="utf-8")
    opened = chromium.Page(folder / "profile")
    try:
        opened.size(1200, 900)
        opened.open(file)
        yield opened
    finally:
        opened.close()


def test_nothing_is_asked_for_but_the_page_and_nothing_is_complained_of(
    seen: chromium.Page,
) -> None:
    assert [url.split("/")[-1] for url in seen.requests() if not url.startswith("data:")] == [
        "report.html"
    ]
    assert seen.troubles() == []
    assert seen.value("document.compatMode") == "CSS1Compat"
    assert seen.value("document.querySelectorAll('script').length") == 0


def test_charts_are_drawn(seen: chromium.Page, story: Story) -> None:
    boxes = seen.value(
        "[...document.querySelectorAll('figure svg')].map(s => { const b = s.getBBox(),"
        " r = s.getBoundingClientRect(); return [s.id, b.width, b.height, r.width, r.height] })"
    )
    assert len(boxes) == len(story.profiles) + 2
    for name, *sizes in boxes:
        assert min(sizes) > 50, name
    marks = "[...document.querySelectorAll('#speed-0 g.mark')].map(m => m.getBBox().width)"
    assert len(seen.value(marks)) == 6
    assert min(seen.value(marks)) > 5
    assert seen.value("document.querySelector('#speed-0 polyline').getTotalLength()") > 100


def test_no_words_of_a_chart_are_cut_off_or_lie_on_each_other(seen: chromium.Page) -> None:
    cut = seen.value(
        "[...document.querySelectorAll('figure svg')].flatMap(s => { const v = s.viewBox.baseVal;"
        " return [...s.querySelectorAll('text')].filter(t => { const b = t.getBBox();"
        " return b.x < 0 || b.x + b.width > v.width || b.y < 0 || b.y + b.height > v.height })"
        " .map(t => s.id + ': ' + t.textContent) })"
    )
    assert cut == []
    overlaps = seen.value(
        "[...document.querySelectorAll('figure svg')].flatMap(s => {"
        " const all = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBBox()]);"
        " return all.flatMap(([a, p], i) => all.slice(i + 1).filter(([b, q]) =>"
        " p.x < q.x + q.width && q.x < p.x + p.width && p.y + 3 < q.y + q.height"
        " && q.y + 3 < p.y + p.height).map(([b]) => s.id + ': ' + a + ' / ' + b)) })"
    )
    assert overlaps == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark(seen: chromium.Page, scheme: str, tmp_path: Path) -> None:
    """With KIMISVC_PICTURES=FOLDER the page is there as a picture, for a person to look at."""
    seen.scheme(scheme)
    ground = seen.value("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    for name, ratio in seen.value(CONTRAST).items():
        assert ratio >= (4.5 if name in {"text", "soft", "label", "link"} else 3.0), name
    picture = Path(os.environ.get("KIMISVC_PICTURES") or tmp_path) / f"report-{scheme}.png"
    seen.screenshot(picture)
    assert picture.stat().st_size > 20_000  # an empty page of that size has some 5,000 bytes


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_the_page_itself_never_scrolls_sideways(seen: chromium.Page, width: int) -> None:
    seen.size(width, 900)
    seen.value("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert seen.value("document.documentElement.scrollWidth") <= width


def test_everything_that_scrolls_can_be_reached_by_keyboard(seen: chromium.Page) -> None:
    seen.size(360, 900)
    unreachable = seen.value(
        "[...document.querySelectorAll('div')].filter(d => d.scrollWidth > d.clientWidth + 1"
        " && d.tabIndex < 0).length"
    )
    assert unreachable == 0
    assert seen.value("[...document.querySelectorAll('table')].every(t => t.tHead)")
