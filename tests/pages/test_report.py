"""The page of experiments in a browser: no error, tables sort and filter, audio loads, no serious fault of accessibility.

What it takes is in tests/browser.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import check_accessibility, chromium, keep, watched

from pykaldist.report.page.options import PageOptions
from pykaldist.report.page.write import write_page

pytestmark = pytest.mark.slow
OPENS_IN = 2.0  # seconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "report.html"
    write_page([experiment / "exp"], PageOptions(), target)
    return target


@pytest.fixture
def page(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, opened; at the end there has been no message of the console, and no request but for the page and its data."""
    with watched(browser, report.as_uri(), 1300, 900, getattr(request, "param", "light")) as (opened, said, asked):
        yield opened
    assert said == []
    assert {url for url in asked if not url.startswith("data:")} == {report.as_uri()}


def column(page: Any, table: str, name: str) -> list[str]:
    """The texts of a column of the first table in an element."""
    heads = page.locator(f"{table} thead th").all_inner_texts()
    place = next(i for i, head in enumerate(heads) if head.startswith(name)) + 1
    return page.locator(f"{table} tbody tr > :nth-child({place})").all_inner_texts()


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_it_opens_and_shows_every_section(page: Any, report: Path, request: pytest.FixtureRequest) -> None:
    assert page.locator("main section > h2").all_inner_texts() == ["Word error rates", "Weights and penalties", "Training",
                                                                  "Where the errors are", "Utterances"]
    titles = page.locator("#training figcaption").all_inner_texts()
    assert [title.split(" (")[0] for title in titles] == [
        "Loss", "Frame accuracy", "Learning rate", "Disagreement between workers", "Staleness", "Frames a second",
        "Where the time of an epoch goes", "Speed-up of an epoch"]
    assert page.locator("#training circle.rejected").count() == 14  # the second of three epochs, on each curve
    chart = page.locator("#training svg[aria-label^='Speed-up']").get_attribute("aria-label")
    assert chart == "Speed-up of an epoch: ma from 1 to 4; as many times as workers from 1 to 4"
    begin = time.monotonic()
    page.reload()
    page.wait_for_selector("footer p")
    assert time.monotonic() - begin < OPENS_IN
    keep(page, f"report-{request.node.callspec.params['page']}", whole=True)


def test_tables_sort(page: Any) -> None:
    assert column(page, "#results .panel", "system") == ["narrow/decode", "wide/decode"]
    for pressed in range(2):
        page.click("#results thead button:has-text('WER %')")
        rates = [float(text) for text in column(page, "#results .panel", "WER %")]
        assert rates == sorted(rates, reverse=pressed == 0)
    assert page.locator("#results th[aria-sort='ascending']").inner_text().startswith("WER %")
    page.click("#utterances thead button:has-text('utterance')")
    names = column(page, "#utterances", "utterance")
    assert names == sorted(names) and len(names) == 43
    assert page.locator("#errors caption").nth(2).inner_text().startswith("Phones that ")


def test_systems_are_chosen_and_compared(page: Any, experiment: Path) -> None:
    best = (experiment / "exp/wide/decode/best_wer").read_text().split()[1]
    assert page.locator("#results .card .value").first.inner_text() == f"{best} %"
    page.select_option("#choose-against", label="wide/decode")
    difference = float(column(page, "#results .panel", "difference")[0].replace("+", ""))
    rates = [float(text) for text in column(page, "#results .panel", "WER %")]
    assert difference == pytest.approx(rates[0] - rates[1], abs=0.011) and column(page, "#results .panel", "p")[1] == ""
    page.click("#results tbody button:has-text('narrow/decode')")
    assert page.locator("#sweep td").count() == 6 and page.locator("#sweep .bad").count() == 1  # at the edge
    assert "narrow/decode" in page.locator("#errors caption").first.inner_text()


def test_utterances_are_filtered(page: Any) -> None:
    page.fill("#utterances input[type=search]", "cen5")
    names = column(page, "#utterances", "utterance")
    assert names and all("cen5" in name for name in names)
    assert page.locator("#count").inner_text().startswith(f"{len(names)} of 43 utterances")
    page.fill("#utterances input[type=search]", "")
    page.select_option("#utterances select[aria-label=Errors]", "wrong")
    assert all(int(text) > 0 for text in column(page, "#utterances", "errors"))
    page.select_option("#utterances select[aria-label=Errors]", "")
    page.select_option("#utterances select[data-map=gender]", "f")
    assert all(name.startswith("f") for name in column(page, "#utterances", "utterance"))
    page.select_option("#utterances select[data-map=gender]", "")
    words = page.locator("#errors tbody tr").first
    ref, _, hyp, times = words.locator("th, td").all_inner_texts()
    words.locator("button").click()
    found = page.locator("#utterances tbody .pair").filter(has_text=ref if ref != "(nothing)" else "\u2205").filter(
        has_text=hyp if hyp != "(nothing)" else "\u2205")
    assert found.count() >= int(times) and page.locator("#utterances .chip").count() == 1
    page.click("#utterances .chip button")
    assert len(column(page, "#utterances", "utterance")) == 43


def test_an_utterance_is_heard_and_seen(page: Any) -> None:
    page.locator("#utterances tbody button").first.press("Enter")
    audio = page.locator("#utterances audio")
    page.wait_for_function("document.querySelector('#utterances audio').readyState >= 1")
    assert audio.evaluate("one => one.duration") == pytest.approx(0.25, abs=0.03)
    page.wait_for_function("document.querySelector('#utterances canvas').width > 10")
    assert page.locator("#utterances canvas").evaluate("one => [one.width, one.height]")[1] == 256
    assert page.locator("#utterances .tier").count() == 2 and page.locator("#utterances .tier button").count() > 0
    assert page.locator("#utterances .detail tbody tr").count() == 5  # paths of the lattice
    page.locator("#utterances tbody button").first.press("Enter")
    assert page.locator("#utterances .detail").count() == 0


def test_it_is_used_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#utterances tbody') !== null"):
            break
    page.keyboard.press("Enter")
    assert page.locator("#utterances .detail").count() == 1


def test_it_prints_without_controls(page: Any) -> None:
    page.emulate_media(media="print")
    assert not page.locator("#toolbar").is_visible() and not page.locator("#utterances .controls").is_visible()
    assert page.locator("#results table").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_colours_are_chosen(page: Any) -> None:
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for name in ("light", "dark"):
        page.click("button:has-text('Colours')")
        assert page.locator("button:has-text('Colours')").inner_text() == f"Colours: {name}"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_there_is_no_serious_fault_of_accessibility(page: Any) -> None:
    page.locator("#utterances tbody button").first.click()
    page.wait_for_function("document.querySelector('#utterances canvas').width > 10")
    check_accessibility(page, 20)
