"""Pages in a real browser, for tests: Chromium is started, a page is opened and watched, and faults of accessibility are found.

It takes playwright and a Chromium (`pip install playwright`; Debian's chromium, or playwright's own). Accessibility is judged by axe-core,
whose axe.min.js PYKALDIST_AXE names (`npm pack axe-core`). PYKALDIST_SCREENSHOTS names a folder in which pictures are kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="the page in a browser takes playwright (pip install playwright)")
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium(*args: str) -> Iterator[Any]:
    """A Chromium with further arguments; the test is skipped where there is none."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        try:
            opened = started.chromium.launch(executable_path=program, args=["--no-sandbox", *args])
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@contextmanager
def watched(browser: Any, url: str, width: int, height: int, colours: str) -> Iterator[tuple[Any, list[str], list[str]]]:
    """A page, opened; the messages of its console and its errors; and the addresses that it has asked for."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda one: asked.append(one.url))
    page.goto(url)
    yield page, said, asked
    page.close()


def keep(page: Any, name: str, whole: bool = False) -> None:
    """Keep a picture of the page, or of the whole of it, where pictures are wanted."""
    if folder := os.environ.get("PYKALDIST_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=whole)


def check_accessibility(page: Any, least: int) -> None:
    """Check that axe-core finds no serious fault, and that more than `least` of its rules are kept; skips where it is not at hand."""
    axe = os.environ.get("PYKALDIST_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("accessibility is judged by axe-core; PYKALDIST_AXE names its axe.min.js (npm pack axe-core)")
    page.evaluate(Path(axe).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    faults = [(fault["id"], fault["impact"], [node["html"][:120] for node in fault["nodes"][:3]]) for fault in found["violations"]]
    assert [fault for fault in faults if fault[1] in ("serious", "critical")] == []
    assert len(found["passes"]) > least
