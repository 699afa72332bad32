"""The server over real connections: Vosk's clients, uploads, and all who come to do harm, behind whom it lives on."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.serve.server.engine import Engine

from ..conftest import RATE, SAID

sync_client = pytest.importorskip("websockets.sync.client", reason="the server's WebSockets take the package websockets (requirements.txt)")
from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402  # after websockets has been asked for

from pykaldist.serve.server import http_server  # noqa: E402  # after websockets has been asked for
from pykaldist.serve.server.http_server import SpeechServer  # noqa: E402  # after websockets has been asked for
from pykaldist.serve.server.options import ServerOptions  # noqa: E402  # after websockets has been asked for


@pytest.fixture
def server(engine: Engine, request: pytest.FixtureRequest) -> Iterator[SpeechServer]:
    options = ServerOptions(port=0, **{"max_minutes": 0.5, "max_megabytes": 1.0, "idle": 20.0, **getattr(request, "param", {})})
    with SpeechServer(engine, options) as started:
        thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def post(server: SpeechServer, body: bytes, path: str = "/transcribe", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if answer.headers["Content-Type"].startswith("application/json") else content.decode()


def get(server: SpeechServer, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def file_of(samples: np.ndarray, form: str = "FLAC", subtype: str | None = None) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples / 32768, RATE, format=form, subtype=subtype)
    return stream.getvalue()


def speak(server: SpeechServer, samples: np.ndarray, path: str = "") -> str:
    """What Vosk's test.py does."""
    content, texts = samples.astype("<i2").tobytes(), []
    with sync_client.connect(f"ws://127.0.0.1:{server.server_address[1]}/{path}", close_timeout=1) as client:
        client.send(json.dumps({"config": {"sample_rate": RATE}}))
        for at in range(0, len(content), 8000):
            client.send(content[at:at + 8000])
            texts.append(json.loads(client.recv(30)).get("text", ""))
        client.send('{"eof" : 1}')
        texts.append(json.loads(client.recv(30))["text"])
    return " ".join(text for text in texts if text)


def test_programs_and_files_are_served(server: SpeechServer, audio: list[np.ndarray]) -> None:
    assert speak(server, audio[0]) == SAID[0]
    for form, subtype in (("FLAC", None), ("OGG", "OPUS"), ("MP3", None)):
        status, found = post(server, file_of(audio[0], form, subtype), "/transcribe?name=my%20talk.mp3")
        assert status == 200 and found["text"] == SAID[0] and found["file"] == "my talk.mp3"
    status, found = post(server, file_of(audio[1]), "/transcribe?format=vtt")
    assert status == 200 and found.startswith("WEBVTT") and SAID[1] in found
    status, page = get(server, "/")
    assert status == 200 and "<h1>Transcribe a recording</h1>" in page and get(server, "/recorder.js")[0] == 200
    assert get(server, "/etc/passwd")[0] == 404


def test_clients_at_once_have_their_own_words(server: SpeechServer, audio: list[np.ndarray]) -> None:
    found: dict[int, str] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: speak(server, audio[n % 2])})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {n: SAID[n % 2] for n in range(8)}


def test_bad_uploads_are_refused_in_a_sentence(server: SpeechServer, audio: list[np.ndarray]) -> None:
    sound = file_of(audio[0])
    zeros = file_of(np.zeros(40 * RATE))
    assert len(zeros) < 100_000
    for body, path, status, words in ((b"no audio" * 99, "", 422, "no audio format that libsndfile reads"),
                                      (sound[:-2000], "", 422, "is damaged"),
                                      (file_of(audio[0], "WAV")[:-2000], "", 422, "is truncated"),
                                      (zeros, "", 422, "at most 0.5 are taken"), (b"", "", 422, "is empty"),
                                      (bytes(1_000_001), "", 413, "the file has 1.0 MB, at most 1 are taken"),
                                      (sound, "?format=docx", 404, "?format=text|ctm|json|srt|vtt")):
        found = post(server, body, f"/transcribe{path}")
        assert found[0] == status and words in found[1]["error"] and found[1]["error"].endswith("."), found
    assert post(server, iter([b"RIFF"] * 9), **{"Transfer-Encoding": "chunked"})[0] == 411  # type: ignore[arg-type]  # a header by its name
    assert post(server, sound)[1]["text"] == SAID[0]


def test_endless_and_silent_connections_end(server: SpeechServer, audio: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that never ends, a request that never ends however often a byte comes, and rubbish."""
    monkeypatch.setattr(http_server, "UPLOAD_SECONDS", 0.3)
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    address = ("127.0.0.1", server.server_address[1])
    with socket.create_connection(address, timeout=20) as upload:
        upload.sendall(f"POST /transcribe HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nContent-Length: 1000\r\n\r\n".encode())
        answer = b""
        while more := upload.recv(4096):
            answer += more
        assert b" 408 " in answer and b"ended after 0 of 1000 bytes, or took too long." in answer
    with socket.create_connection(address, timeout=20) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        begin = time.monotonic()
        with pytest.raises(OSError):  # a reset or a broken pipe
            while time.monotonic() - begin < 20:
                slow.sendall(b"x")
                time.sleep(0.05)
    for rubbish in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50, b"\n" * 100, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(address, timeout=20) as other:
            other.sendall(rubbish)
            other.shutdown(socket.SHUT_WR)
            while other.recv(4096):
                pass
    assert speak(server, audio[0]) == SAID[0]


@pytest.mark.parametrize("server", [{"idle": 0.5}], indirect=True)
def test_bad_clients_are_told_and_let_go(server: SpeechServer, audio: list[np.ndarray]) -> None:
    url = f"ws://127.0.0.1:{server.server_address[1]}"
    content = audio[0].astype("<i2").tobytes()
    for message, words in (("hello", "no JSON"), (b"abc", "odd number of bytes"), (bytes(2 * RATE * 10), ""),
                           ('{"config": {"x": 1}}', "config x"), (bytes(2 * RATE * 31), "more than 0.5 minutes"),
                           (None, "nothing came for 0.5 seconds")):
        with sync_client.connect(url, close_timeout=1) as client:
            if message is not None:
                client.send([message[at:at + 60_000] for at in range(0, len(message), 60_000)] if isinstance(message, bytes) else message)
            found = json.loads(client.recv(30))
            assert words in found.get("error", "")
    with sync_client.connect(url, close_timeout=1) as client, pytest.raises(ConnectionClosed) as closed:
        client.send(bytes(3_000_000))
        client.recv(30)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    with sync_client.connect(url, close_timeout=0) as client:
        client.send(content[:8000])
        client.socket.close()  # without a word
    assert speak(server, audio[0]) == SAID[0]


def test_pings_are_answered_while_an_utterance_is_recognised(server: SpeechServer, audio: list[np.ndarray],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gives up where its pings are not answered for long; what it has sent meanwhile is not lost."""
    monkeypatch.setattr(http_server, "PING_SECONDS", 0.02)
    content, answer, ready = audio[0].astype("<i2").tobytes(), threading.Event(), server.engine.session

    def slow(*args: Any) -> Any:
        assert answer.wait(20)
        return ready(*args)

    monkeypatch.setattr(server.engine, "session", slow)
    with sync_client.connect(f"ws://127.0.0.1:{server.server_address[1]}", close_timeout=1) as client:
        for at in range(0, len(content), 16000):
            client.send(content[at:at + 16000])
        assert client.ping().wait(10)
        answer.set()
        client.send('{"eof" : 1}')
        texts = [json.loads(client.recv(30)).get("text") for _ in range(0, len(content) + 16000, 16000)]
    assert texts[-1] == SAID[0]


@pytest.mark.parametrize("server", [{"max_clients": 1}], indirect=True)
def test_too_many_clients_are_told(server: SpeechServer, audio: list[np.ndarray]) -> None:
    url = f"ws://127.0.0.1:{server.server_address[1]}"
    with sync_client.connect(url), pytest.raises(InvalidStatus) as refused:
        sync_client.connect(url)
    assert refused.value.response.status_code == 503 and b"as many clients as it takes" in refused.value.response.body
    assert speak(server, audio[0]) == SAID[0]
    held = [socket.create_connection(("127.0.0.1", server.server_address[1])) for _ in range(30)]
    held[-1].settimeout(20)
    assert b"503 Service Unavailable" in held[-1].recv(4096)
    for one in held:
        one.close()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            assert get(server, "/")[0] == 200
            return
        except (AssertionError, OSError):
            time.sleep(0.1)
    raise AssertionError("the server does not live on")


def test_other_sites_are_kept_out(server: SpeechServer) -> None:
    """A page of another site in the same browser, by its own name for this machine or by the machine's."""
    assert get(server, "/", Host="evil.example")[0] == 403
    assert get(server, "/", Host=f"localhost:{server.server_address[1]}")[0] == 200
    with pytest.raises(InvalidStatus) as refused:
        sync_client.connect(f"ws://127.0.0.1:{server.server_address[1]}", origin="http://evil.example")  # type: ignore[arg-type]  # an Origin is a str
    assert refused.value.response.status_code == 403
    with sync_client.connect(f"ws://127.0.0.1:{server.server_address[1]}", origin=f"http://127.0.0.1:{server.server_address[1]}"):  # type: ignore[arg-type]  # likewise
        pass
    assert post(server, b"", Origin="null")[0] == 403


@pytest.mark.parametrize("server", [{"host": "0.0.0.0"}], indirect=True)
def test_other_addresses_need_the_token(server: SpeechServer, audio: list[np.ndarray]) -> None:
    token = server.options.token
    assert len(token) > 16 and server.address.endswith(f"/?token={token}") and ServerOptions(port=0).token == ""
    assert get(server, "/")[0] == 403 and get(server, "/?token=guess")[0] == 403 and get(server, f"/?token={token}")[0] == 200
    assert get(server, "/", Authorization=f"Bearer {token}")[0] == 200
    with pytest.raises(InvalidStatus):
        speak(server, audio[0])
    assert speak(server, audio[0], f"?token={token}") == SAID[0]


def test_options_that_cannot_work(server: SpeechServer, engine: Engine) -> None:
    with pytest.raises(UserError, match="can not be listened on"):
        SpeechServer(engine, ServerOptions(port=server.server_address[1]))
    for options in ({"port": 70_000}, {"max_clients": 0}, {"idle": 0.0}, {"host": "my.host"}):
        with pytest.raises(UserError, match="expected"):
            ServerOptions(**options)  # type: ignore[arg-type]  # values of several types
