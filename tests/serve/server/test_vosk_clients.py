"""Vosk's own clients, as they are in its repository, talk to the server.

    git clone https://github.com/alphacep/vosk-server
    pip install websockets websocket-client srt          # what they take; ffmpeg, node with ws, go, and a browser where those are at hand
    PYKALDIST_VOSK_SERVER=.../vosk-server tests/run.sh --all tests/serve/server/test_vosk_clients.py

They look for the server at port 2700 of this machine. PYKALDIST_VOSK_PYTHON names the Python that runs them, where it is another one.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.hclg import GraphOptions
from pykaldist.decode.lookahead_graph import make_lookahead_graph
from pykaldist.decode.streaming import StreamOptions
from pykaldist.serve.server.engine import engine_of
from pykaldist.serve.server.options import ServerOptions
from pykaldist.serve.transcribe import TranscribeOptions

from ..conftest import RATE, SAID

pytestmark = pytest.mark.slow
PORT, PAGES = 2700, 8127
PYTHON_CLIENTS = {  # what each of them takes
    "websocket/test.py": "websockets", "websocket/test_words.py": "websockets", "websocket/test_alternatives.py": "websockets",
    "websocket/test_srt.py": "srt", "websocket/test_ffmpeg.py": "websockets", "websocket-gpu-batch/test.py": "websockets",
    "client-samples/python/asr-test.py": "websockets", "client-samples/python/asr-test-client.py": "websocket"}


@pytest.fixture(scope="module")
def clients() -> Path:
    folder = os.environ.get("PYKALDIST_VOSK_SERVER")
    if not folder:
        pytest.skip("the clients are not part of this project: set PYKALDIST_VOSK_SERVER to a clone of https://github.com/alphacep/vosk-server")
    return Path(folder)


@pytest.fixture(scope="module")
def server(clients: Path, recipe: Path, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The server where they look for it, on a graph whose language model may be exchanged."""
    http_server = pytest.importorskip("pykaldist.serve.server.http_server", reason="the server takes websockets (requirements.txt)")
    with socket.socket() as tried:
        if tried.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"the clients know port {PORT} alone, and another server listens there")
    folder = tmp_path_factory.mktemp("lookahead")
    (folder / "model").mkdir()
    shutil.copyfile(recipe / "exp/chain/tdnn/final.mdl", folder / "model/final.mdl")
    shutil.copyfile(golden / "chain_an4/decode/tree", folder / "model/tree")
    make_lookahead_graph(golden / "an4_kaldi/lang", folder / "model", folder / "graph", GraphOptions(self_loop_scale=1.0))
    engine, _ = engine_of(recipe / "exp/chain/tdnn", TranscribeOptions(graph=str(folder / "graph")), DecoderOptions(), StreamOptions(),
                          lambda _: Endpointing(range(1, 11)))
    with http_server.SpeechServer(engine, ServerOptions(port=PORT, origins=f"http://localhost:{PAGES}")) as started:
        thread = threading.Thread(target=started.serve_forever, daemon=True)
        thread.start()
        yield
        started.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def recording(audio: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("said") / "test.wav"
    soundfile.write(path, audio[0] / 32768, RATE)
    return path


def run(*command: str | Path, folder: Path | None = None, **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env={**os.environ, **variables})
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_its_python_clients(client: str, clients: Path, server: None, recording: Path) -> None:
    """As they are: what they print ends with the words, alternatives or subtitles of the recording."""
    python = os.environ.get("PYKALDIST_VOSK_PYTHON", sys.executable)
    if subprocess.run([python, "-c", f"import {PYTHON_CLIENTS[client]}"], capture_output=True).returncode:
        pytest.skip(f"the client imports {PYTHON_CLIENTS[client]}, which {python} has not")
    if "ffmpeg" in client and not shutil.which("ffmpeg"):
        pytest.skip("the client runs ffmpeg, which is not installed")
    printed = run(python, clients / client, recording)
    if "srt" in client:
        assert SAID[0] in printed and printed.startswith("1\n00:00:00,") and "-->" in printed
        return
    last = json.loads(printed.strip().splitlines()[-1])
    if "alternatives" in client:
        assert last["alternatives"][0]["text"] == SAID[0] and 1 < len(last["alternatives"]) <= 20
    elif "words" in client:  # its phrases are the digits
        assert last.keys() == {"text"} and last["text"].endswith("NINE")
        assert set(last["text"].split()) <= {"ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE", "OH"}
    else:
        assert last["text"] == SAID[0] and [word["word"] for word in last["result"]] == SAID[0].split()


def test_its_go_client(clients: Path, server: None, recording: Path, tmp_path: Path) -> None:
    """With the Go packages of the distribution (Debian: golang-github-gorilla-websocket-dev, golang-github-sirupsen-logrus-dev)."""
    if not shutil.which("go") or not Path("/usr/share/gocode/src/github.com/gorilla/websocket").is_dir():
        pytest.skip("the client is compiled by go with gorilla/websocket and sirupsen/logrus, which are not all here")
    run("go", "build", "-o", tmp_path / "client", clients / "client-samples/golang/main.go", GO111MODULE="off", GOPATH="/usr/share/gocode",
        GOCACHE=str(tmp_path / "cache"))
    assert SAID[0] in run(tmp_path / "client", recording)


def test_its_page(clients: Path, server: None, audio: list[np.ndarray], tmp_path: Path) -> None:
    """Its script for browsers, on a site of its own, with the model's sampling rate in place of 8 kHz.

    Its page loads two scripts, which declare the same constants, so that the second one fails; here the page has the second alone. (The
    first one sends the samples of each block backwards.)
    """
    from browser import chromium

    shutil.copytree(clients / "client-samples/javascript", tmp_path / "page")
    script = tmp_path / "page/voice_client_with_script_processor.js"
    script.write_text(script.read_text(encoding="utf-8").replace("sampleRate = 8000", f"sampleRate = {RATE}"), encoding="utf-8")
    index = tmp_path / "page/index.html"
    index.write_text(index.read_text(encoding="utf-8").replace("voice_client_with_audio_worklet.js", ""), encoding="utf-8")
    microphone = tmp_path / "microphone.wav"
    soundfile.write(microphone, np.concatenate([np.zeros(RATE), audio[0], np.zeros(4 * RATE)]) / 32768, RATE)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "page"))
    with (http.server.ThreadingHTTPServer(("127.0.0.1", PAGES), handler) as pages,
          chromium("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
                   f"--use-file-for-fake-audio-capture={microphone}%noloop") as browser):
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://localhost:{PAGES}/index.html")
        page.locator("#listenWithScript").dispatch_event("mousedown")
        until, said = time.monotonic() + 60, ""
        while "RUBOUT G M E F" not in said and time.monotonic() < until:
            time.sleep(0.1)
            said = page.evaluate("document.getElementById('q').textContent")
        page.locator("#stopListeningWithScript").dispatch_event("mouseup")
        pages.shutdown()
    assert "RUBOUT G M E F" in said
