"""The live page of a training in a browser: it follows what workers and history say, without an error, for who has the token.

What it takes is in tests/browser.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import check_accessibility, chromium, keep, watched
from report.test_live import EPOCH, write_record

from pykaldist.report.live import Onlooker
from pykaldist.report.live_server import LiveServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """Two processes with two workers each, in the second of four epochs."""
    (tmp_path / "history.jsonl").write_text(json.dumps(EPOCH) + "\n")
    for process in (0, 1):
        write_record(tmp_path, process, 1, 10)
    return tmp_path


@pytest.fixture
def page(browser: Any, training: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, opened; at the end there has been no message of the console, and no other host was asked."""
    with LiveServer(Onlooker(training)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with watched(browser, server.address, 1000, 900, getattr(request, "param", "light")) as (opened, said, asked):
                opened.wait_for_selector("#workers td")
                yield opened
        finally:
            server.shutdown()
            thread.join()
    assert said == [] and all(url.startswith(server.address.partition("?")[0]) for url in asked)


def test_it_follows_a_training(page: Any, training: Path) -> None:
    assert page.locator("#workers tr").count() == 5 and page.locator("#charts svg").count() == 4
    tiles = dict(reversed(text.split("\n")) for text in page.locator(".tile").all_inner_texts())
    assert tiles["epoch"] == "2 of 4" and tiles["of this epoch"] == "20 %" and tiles["held-out loss"] == "1.5000"
    assert tiles["disagreement of workers"] == "0.250"
    assert "75 %" in page.locator("#legend").inner_text()  # of the time is computing
    for process in (0, 1):
        write_record(training, process, 2, 25, at=60.0)
    page.wait_for_selector("text=25 / 50", timeout=10_000)
    texts = page.locator(".tile").all_inner_texts()
    assert any(text.startswith("50 %") for text in texts) and any("left at most, until " in text for text in texts), texts
    assert page.title().startswith("50 % of epoch 2")
    keep(page, "watch", whole=True)


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_there_is_no_serious_fault_of_accessibility(page: Any) -> None:
    check_accessibility(page, 15)
