"""The server: pages and uploads by HTTP, recordings that come by WebSocket, on one port.

    GET /                   the page
    POST /transcribe        a file of audio; ?format=json (or text, ctm, srt, vtt), ?name=...
    WebSocket on any path   Vosk's protocol (`conversation.py`)

A thread serves a connection. It goes on only when what it has read is done with, so that a client that sends faster than it is served
waits, and memory does not grow. Meanwhile it reads at most a message ahead: clients that ask by pings whether it lives, and leave where
nothing answers, are answered however long an utterance takes. Who sends too much, too slowly, too long or what cannot be understood is told
so in a sentence and let go.

RFC 6455 is the library `websockets`', of which the part without sockets is used here; HTTP is Python's own, as for `pykaldist watch`.
On the loopback address, a page of another site that the same browser shows is kept out by the checks of the names Host and Origin; on any
other, by the token.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from pykaldist.errors import UserError
from pykaldist.serve.recordings import check_rate, samples_of_upload
from pykaldist.serve.server.conversation import Conversation
from pykaldist.serve.server.engine import Engine
from pykaldist.serve.server.options import ServerOptions
from pykaldist.serve.transcript import FORMATS

HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLICY = ("default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; media-src blob:; "
          "img-src data:")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Content-Security-Policy": POLICY, "Connection": "close"}
KINDS = {"json": "application/json", "vtt": "text/vtt"}
MORE_CONNECTIONS = 20  # than clients: pages, and who is told that there are too many
UPLOADS = 2  # that are in memory at the same time
REQUEST_SECONDS = 10.0  # for a request's first lines
UPLOAD_SECONDS = 120.0  # for an upload to come
LINGER_SECONDS = 1.0  # that a closed connection is read on, for its client to hear why
MESSAGE_BYTES = 1 << 20
PING_SECONDS = 1.0  # between looks for pings, where an answer takes long
READ_BYTES = 1 << 16
TOO_MANY = "the server has as many clients as it takes (--max-clients); try again later."


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    server: SpeechServer

    def do_GET(self) -> None:
        if not self.allowed():
            return
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.speak()
            return
        path = urlsplit(self.path).path
        pages = {"/": ("page.html", "text/html"), "/recorder.js": ("recorder.js", "text/javascript")}
        if path not in pages:
            self.answer(HTTPStatus.NOT_FOUND, "there is / (a page), /transcribe (POST a file), and a WebSocket on any path.")
            return
        name, kind = pages[path]
        self.send(HTTPStatus.OK, kind, files("pykaldist.serve.server").joinpath(name).read_bytes())

    def do_POST(self) -> None:
        if not self.allowed():
            return
        query = parse_qs(urlsplit(self.path).query)
        form, name = query.get("format", ["json"])[0], query.get("name", ["the recording"])[0]
        if urlsplit(self.path).path != "/transcribe" or form not in FORMATS:
            self.answer(HTTPStatus.NOT_FOUND, f"files go to /transcribe, with ?format={'|'.join(FORMATS)}.")
            return
        if not self.server.uploads.acquire(blocking=False):
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"the server takes {UPLOADS} files at a time; try again in a few seconds.")
            return
        try:
            content = self.body()
            if content is not None:
                engine, options = self.server.engine, self.server.options
                samples = samples_of_upload(content, name, engine.rate, 60 * options.max_minutes)
                del content
                text = FORMATS[form](engine.transcribe(name, samples))
                self.send(HTTPStatus.OK, KINDS.get(form, "text/plain"), text.encode())
        except UserError as error:
            self.answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        finally:
            self.server.uploads.release()

    def body(self) -> bytes | None:
        """The file that is uploaded; None where it was refused."""
        most, length = round(self.server.options.max_megabytes * 1e6), self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.answer(HTTPStatus.LENGTH_REQUIRED, "the request has to say how long the file is (Content-Length).")
            return None
        if int(length) > most:
            self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the file has {int(length) / 1e6:.1f} MB, at most {most / 1e6:g} are taken.")
            return None
        self.server.expect(self.connection, UPLOAD_SECONDS)
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
        content = self.rfile.read(int(length))
        self.server.forget(self.connection)
        if len(content) < int(length):
            self.answer(HTTPStatus.REQUEST_TIMEOUT, f"the file ended after {len(content)} of {length} bytes, or took too long.")
            return None
        return content

    def allowed(self) -> bool:
        """Whether the request may be answered: by its token, and by the site that it comes from."""
        self.server.forget(self.connection)
        options, host = self.server.options, self.headers.get("Host", "")
        token = parse_qs(urlsplit(self.path).query).get("token", [""])[0] or self.headers.get("Authorization", "").removeprefix("Bearer ")
        origin = self.headers.get("Origin")
        if options.token and not hmac.compare_digest(token.encode(), options.token.encode()):
            self.answer(HTTPStatus.FORBIDDEN, "the token is missing or wrong; use the address that pykaldist transcribe has printed.")
        elif options.loopback and _name_of(host) not in HOSTS:
            self.answer(HTTPStatus.FORBIDDEN, "the request comes from another site.")
        elif origin is not None and urlsplit(origin).netloc != host and origin not in options.sites:
            self.answer(HTTPStatus.FORBIDDEN, f"the request comes from a page of {origin[:99]}; --origins of the server lets it in.")
        else:
            return True
        return False

    def answer(self, status: HTTPStatus, sentence: str) -> None:
        """Send a sentence."""
        self.send(status, "application/json", json.dumps({"error": sentence}, ensure_ascii=False).encode() + b"\n")

    def send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        """Send a whole answer, the last of the connection."""
        self.close_connection = True
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def speak(self) -> None:
        """Carry a conversation by WebSocket."""
        self.close_connection = True
        if not self.server.clients.acquire(blocking=False):
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY)
            return
        try:
            self.server.expect(self.connection, 60 * self.server.options.max_minutes + 2 * self.server.options.idle)
            self.converse(_Messages(self))
        finally:
            self.server.clients.release()

    def converse(self, messages: _Messages) -> None:
        """Answer messages until the conversation ends."""
        options = self.server.options
        conversation = Conversation(self.server.engine, 60 * options.max_minutes, options.sample_rate or None)
        try:
            with ThreadPoolExecutor(1) as worker:
                for some in messages:
                    answers = worker.submit(conversation.receive, some)
                    messages.wait(answers)
                    for answer in answers.result():
                        messages.send(answer)
                    if conversation.ended:
                        messages.close()
        except UserError as error:
            messages.send(json.dumps({"error": str(error)}, ensure_ascii=False))
            messages.close(1008, str(error))
        except TimeoutError:
            messages.send(json.dumps({"error": f"nothing came for {self.server.options.idle:g} seconds."}))
            messages.close(1008, "nothing came")

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # who has left need not be told
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: who asks for what is nobody's business."""


def _name_of(host: str) -> str:
    """The name of a Host header, without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host


class _Messages:
    """The messages of a WebSocket, several at a time where several have come."""

    def __init__(self, handler: _Handler) -> None:
        self._stream, self._connection = handler.rfile, handler.connection
        self._protocol = ServerProtocol(max_size=MESSAGE_BYTES)
        self._part, self._text = list[bytes](), False
        self._found: list[str | bytes] = []  # what has come and was not yet given
        self._size = 0  # bytes of that
        lines = [handler.requestline, *(f"{name}: {value}" for name, value in handler.headers.items())]
        self._protocol.receive_data("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for request in self._protocol.events_received():
            if isinstance(request, Request):
                self._protocol.send_response(self._protocol.accept(request))
        self._flush()

    def __iter__(self) -> Iterator[list[str | bytes]]:
        while self._protocol.state is State.OPEN or self._found:
            if self._found:
                found, self._found, self._size = self._found, [], 0
                yield found
            else:
                self._read()

    def wait(self, answers: Future[list[str]]) -> None:
        """Read on until there are answers, as far as there is room, so that pings are answered meanwhile."""
        while not wait([answers], PING_SECONDS).done:
            while (self._protocol.state is State.OPEN and self._size < MESSAGE_BYTES
                   and select.select([self._connection], [], [], 0)[0]):
                self._read()

    def _read(self) -> None:
        """Read what has come, or wait for it, and answer pings."""
        data = self._stream.read1(READ_BYTES)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._size += len(data)
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                if frame.opcode is not Opcode.CONT:
                    self._part, self._text = [], frame.opcode is Opcode.TEXT
                self._part.append(bytes(frame.data))
                if frame.fin:
                    whole = b"".join(self._part)
                    self._found.append(_decoded(whole) if self._text else whole)
        self._flush()

    def send(self, text: str) -> None:
        """Send a message, if the client is still there."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(text.encode())
            self._flush()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End the conversation."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason.encode()[:120].decode(errors="ignore"))
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.sendall(data)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UserError("a message of text is no UTF-8.") from error


class SpeechServer(ThreadingHTTPServer):
    """Serves an engine; `address` is that of its page. Raises UserError where the port is taken."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        self.engine, self.options = engine, options
        self.address_family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        self.clients = threading.BoundedSemaphore(options.max_clients)
        self.uploads = threading.BoundedSemaphore(UPLOADS)
        self._connections = threading.BoundedSemaphore(options.max_clients + MORE_CONNECTIONS)
        if options.sample_rate:
            check_rate("--sample-rate", options.sample_rate, engine.rate)
        self._deadlines: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        try:
            super().__init__((options.host, options.port), _Handler)
        except OSError as error:
            raise UserError(f"--host {options.host} --port {options.port} can not be listened on ({error}); --port 0 is any that is "
                            "free.") from error

    @property
    def address(self) -> str:
        """The page's address, with its token where it needs one."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        if host in ("0.0.0.0", "[::]"):
            host = socket.gethostname()
        return f"http://{host}:{self.server_address[1]}/" + (f"?token={self.options.token}" if self.options.token else "")

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection in a thread of its own, if there are not too many."""
        assert isinstance(request, socket.socket)
        if not self._connections.acquire(blocking=False):
            body = json.dumps({"error": TOO_MANY}).encode()
            with suppress(OSError):
                request.settimeout(1.0)
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
                                + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            super().shutdown_request(request)
            return
        request.settimeout(self.options.idle)
        self.expect(request, REQUEST_SECONDS)
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            assert isinstance(request, socket.socket)
            self.forget(request)
            self._connections.release()

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close a connection, but read on for a moment: where a client still sends, a close would take the last answer from it."""
        assert isinstance(request, socket.socket)
        end = time.monotonic() + LINGER_SECONDS
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            request.settimeout(LINGER_SECONDS)
            while time.monotonic() < end and request.recv(READ_BYTES):
                pass
        self.close_request(request)

    def expect(self, connection: socket.socket, seconds: float) -> None:
        """End a connection if it is not forgotten within so many seconds, whatever little it sends."""
        with self._lock:
            self._deadlines[connection] = time.monotonic() + seconds

    def forget(self, connection: socket.socket) -> None:
        """Let a connection last."""
        with self._lock:
            self._deadlines.pop(connection, None)

    def service_actions(self) -> None:
        """End the connections whose time is over; called twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, deadline in self._deadlines.items() if deadline < now]
            for connection in late:
                del self._deadlines[connection]
        for connection in late:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # the thread finds an end of what it reads, and can still answer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say in a line that a connection has failed; the others go on."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError | InvalidHandshake):
            print(f"transcribe: WARNING: a connection failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
