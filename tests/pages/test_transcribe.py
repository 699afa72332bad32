"""The server's page in a browser: a file is dropped and its words are heard, somebody speaks, no serious fault of accessibility.

What it takes is in tests/browser.py. The microphone is Chromium's own that plays a file.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from browser import check_accessibility, chromium, keep, watched
from serve.conftest import RATE, SAID

from pykaldist.serve.server.engine import Engine

pytestmark = pytest.mark.slow
pytest.importorskip("websockets", reason="the server's WebSockets take the package websockets (requirements.txt)")
DROP = """async ([content, name]) => {
  const data = new DataTransfer(), bytes = Uint8Array.from(atob(content), one => one.charCodeAt(0));
  data.items.add(new File([bytes], name));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[str]:
    from pykaldist.serve.server.http_server import SpeechServer
    from pykaldist.serve.server.options import ServerOptions

    with SpeechServer(engine, ServerOptions(port=0, token="a-token")) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.address
        server.shutdown()


@pytest.fixture(scope="module")
def browser(audio: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    microphone = tmp_path_factory.mktemp("microphone") / "said.wav"
    soundfile.write(microphone, np.concatenate([np.zeros(RATE // 2), audio[0], np.zeros(4 * RATE)]) / 32768, RATE)
    with chromium("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
                  f"--use-file-for-fake-audio-capture={microphone}%noloop") as opened:
        yield opened


@pytest.fixture
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, opened; at the end there has been no message of the console but of answers that refuse, and no other host was asked."""
    with watched(browser, address, 1000, 700, getattr(request, "param", "light")) as (opened, said, asked):
        yield opened
    assert [text for text in said if "status of 422" not in text] == []
    assert all(url.startswith((address.partition("?")[0], "blob:")) for url in asked)


def until(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Wait until it is true; the page's policy lets playwright's own wait_for_function not be."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.05)


def test_a_file_is_dropped_and_heard(page: Any, audio: list[np.ndarray], tmp_path: Path) -> None:
    soundfile.write(tmp_path / "talk.ogg", audio[0] / 32768, RATE, format="OGG", subtype="OPUS")
    page.evaluate(DROP, [base64.b64encode((tmp_path / "talk.ogg").read_bytes()).decode(), "talk.ogg"])
    page.wait_for_selector("#said .word")
    assert page.locator("#said .word").all_inner_texts() == SAID[0].split()
    assert page.locator("#status").inner_text().startswith("talk.ogg: 0:04.0 minutes, 1 utterances with words")
    until(page, "document.getElementById('player').readyState >= 1")
    page.locator("#said .word").nth(2).press("Enter")
    until(page, "document.getElementById('player').currentTime > 1")
    page.set_input_files("#file", {"name": "notes.mp3", "mimeType": "audio/mpeg", "buffer": b"these are no sounds" * 50})
    page.wait_for_selector("#status.bad")
    assert "notes.mp3 is damaged or no audio format" in page.locator("#status").inner_text()
    page.set_input_files("#file", str(tmp_path / "talk.ogg"))
    page.wait_for_selector("#said .word")
    keep(page, "transcribe")


def test_somebody_speaks(page: Any) -> None:
    page.click("#speak")
    page.wait_for_selector("#speak[aria-pressed=true]")
    page.evaluate("""() => new MutationObserver(() => { window.partial ||= !!document.querySelector('#said .partial'); })
      .observe(document.getElementById('said'), {childList: true})""")
    page.wait_for_selector("#said .word", timeout=60_000)  # the pause has ended the utterance
    assert page.evaluate("window.partial")
    said = " ".join(page.locator("#said .word").all_inner_texts())
    assert "RUBOUT G M E F" in said, said  # a device that is switched on clicks
    page.click("#speak")
    until(page, "document.getElementById('status').textContent === 'That was all.'")
    assert page.locator("#speak").inner_text() == "speak"


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_there_is_no_serious_fault_of_accessibility(page: Any, audio: list[np.ndarray], tmp_path: Path) -> None:
    soundfile.write(tmp_path / "talk.wav", audio[0] / 32768, RATE)
    page.set_input_files("#file", str(tmp_path / "talk.wav"))
    page.wait_for_selector("#said .word")
    check_accessibility(page, 15)
