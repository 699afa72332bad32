"""The page of `pykaldist watch --serve true`: a small web server for one training and one person.

It listens on the loopback address alone, and answers only to who has the token of its address. A page of another site that the same browser
shows can neither guess the token nor, because the name of the host is checked, reach the server by a name of its own.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

from pykaldist.errors import UserError
from pykaldist.report.live import Onlooker

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"}

REFUSED = b"The token is missing or wrong; use the address that pykaldist watch has printed.\n"


class _Handler(BaseHTTPRequestHandler):
    """Answers one request: `/` is the page, `/view` the training at this moment as JSON."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, onlooker: Onlooker, lock: threading.Lock, token: str, *request: object) -> None:
        self.onlooker, self.lock, self.token = onlooker, lock, token
        super().__init__(*request)  # type: ignore[arg-type]  # the server's own arguments

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        host = self.headers.get("Host", "").rpartition(":")[0]
        token, = parse_qs(address.query).get("token", [""])[:1]
        if host not in HOSTS or not hmac.compare_digest(token.encode(), self.token.encode()):
            self.answer(HTTPStatus.FORBIDDEN, "text/plain", REFUSED)
        elif address.path == "/":
            self.answer(HTTPStatus.OK, "text/html", files("pykaldist.report").joinpath("live.html").read_bytes())
        elif address.path == "/view":
            self.answer(HTTPStatus.OK, "application/json", self.view())
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is / and /view.\n")

    def view(self) -> bytes:
        """The training at this moment; where its files are damaged, the sentence that says so."""
        try:
            with self.lock:
                return json.dumps(dataclasses.asdict(self.onlooker.look())).encode()
        except UserError as error:
            return json.dumps({"error": str(error)}).encode()

    def answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a line a second would."""


class LiveServer(ThreadingHTTPServer):
    """Serves the page of one training; `address` is what to open. `port` 0 is any that is free.

    Raises UserError where the port is taken.
    """

    daemon_threads = True

    def __init__(self, onlooker: Onlooker, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__((LOOPBACK, port), partial(_Handler, onlooker, threading.Lock(), self.token))
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} can not be used ({error}); leave --port out for any that is free.") from error

    @property
    def address(self) -> str:
        """The page's address, with its token."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/?token={self.token}"
