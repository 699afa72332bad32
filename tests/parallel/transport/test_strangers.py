"""Nobody but the job's processes gets in, reads along, or disturbs them."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress

import pytest
import torch
import zmq
from zmq.utils import z85

from pykaldist.errors import UserError
from pykaldist.parallel.transport import sockets
from pykaldist.parallel.transport.transport import Transport

NOTE = 100
GARBAGE = (b"", b"GET / HTTP/1.0\r\n\r\n" + bytes(40), b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(60), bytes(range(256)) * 4)
NEWS = (zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)


def raw(endpoint: str) -> socket.socket:
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return socket.create_connection((host, int(port)))


class Stranger:
    """Somebody who connects as process 1, with a key pair of his own if he knows a public key of the job's."""

    def __init__(self, context: zmq.Context, endpoint: str, server_key: bytes | None) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.setsockopt(zmq.ROUTING_ID, b"1")
        if server_key is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()
            self.socket.curve_serverkey = server_key
        self.news = self.socket.get_monitor_socket(NEWS)
        self.socket.connect(endpoint)
        self.socket.send_multipart([bytes([NOTE, 0]), b"let me in"])

    def refused(self) -> bool:
        assert self.news.poll(10_000)
        events = set()
        while self.news.poll(50):
            events.add(int.from_bytes(self.news.recv_multipart()[0][:2], "little"))
        return zmq.EVENT_HANDSHAKE_SUCCEEDED not in events and not self.socket.poll(0)


def test_strangers_are_refused_and_disturb_nothing(in_processes, no_shared_memory):
    """With keys of their own, with a wrong one, without any, and with garbage by the hundred, while the job sends its messages."""
    no_shared_memory()

    def work(those):
        heard = []
        transport = Transport(those, lambda *message: heard.append(message), lambda peer: heard.append(peer))
        transport.start()
        with transport.changed:
            if those.rank == 0:
                own, context = transport._sockets.incoming.last_endpoint.decode(), zmq.Context()
                keys = [None, *map(z85.encode, transport._sockets._known), zmq.curve_keypair()[0]]
                strangers, idle = [Stranger(context, own, key) for key in keys], [raw(own) for _ in range(50)]
                for number in range(300):
                    with raw(own) as one:
                        one.sendall(GARBAGE[number % len(GARBAGE)])
                    transport.send(1, NOTE, [number])
                transport.wait(lambda: heard)
                assert own.startswith("tcp://127.0.0.1:") and all(one.refused() for one in strangers)
                context.destroy(0)
            else:
                transport.wait(lambda: len(heard) == 300)
                transport.send(0, NOTE, [-1.0])
        those.barrier()
        for one in idle if those.rank == 0 else ():
            one.close()
        transport.close()
        return [message[:3] for message in heard], transport.failure

    assert in_processes(2, work) == [([(1, NOTE, [-1.0])], None), ([(0, NOTE, [float(k)]) for k in range(300)], None)]


class Relay:
    """Somebody on the way to `endpoint` who writes down what goes by; or who answers in its place."""

    def __init__(self, endpoint: str) -> None:
        self.seen, self._target = bytearray(), endpoint
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        one, other = self._listener.accept()[0], raw(self._target)
        for source, sink in ((one, other), (other, one)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def told(monkeypatch):
    """`told(change)`: processes tell the others `change(endpoint)` in place of where they listen."""

    def make(change) -> None:
        def allgather_json(processes, thing):
            return before(processes, {**thing, "endpoint": change(thing["endpoint"])} if "endpoint" in thing else thing)

        before = sockets.allgather_json
        monkeypatch.setattr(sockets, "allgather_json", allgather_json)

    return make


def test_nothing_is_readable_on_the_way(in_processes, told, no_shared_memory):
    no_shared_memory()
    relays, model = [], torch.arange(1000.0)

    def change(endpoint):
        relays.append(Relay(endpoint))
        return relays[-1].endpoint

    def work(those):
        heard = []
        transport = Transport(those, lambda *message: heard.append(message), lambda peer: None)
        transport.start()
        with transport.changed:
            transport.send(1 - those.rank, NOTE, [0.123456789], model)
            transport.wait(lambda: heard)
        those.barrier()
        transport.close()
        return torch.equal(heard[0][3], model)

    told(change)
    assert in_processes(2, work) == [True, True]
    seen = [bytes(relay.seen) for relay in relays]
    assert len(seen) == 2 and all(len(one) > 4000 and b"CURVE" in one for one in seen)
    parts = [model.numpy().tobytes()[k : k + 16] for k in range(0, 4000, 16)] + [torch.tensor([0.123456789]).double().numpy().tobytes()]
    assert not any(part in one for one in seen for part in parts)


def test_a_process_that_listens_in_anothers_place_learns_nothing(in_processes, told, monkeypatch):
    """He knows no secret key; the job says which process it does not reach."""
    context = zmq.Context()
    impostor = context.socket(zmq.ROUTER)
    impostor.curve_server = True
    impostor.curve_publickey, impostor.curve_secretkey = zmq.curve_keypair()
    port = impostor.bind_to_random_port("tcp://127.0.0.1")
    told(lambda endpoint: f"tcp://127.0.0.1:{port}")
    monkeypatch.setattr(sockets, "CONNECT_S", 1.0)
    with pytest.raises(UserError, match=re.escape(f"cannot reach process 1 on {socket.gethostname()} (tcp://127.0.0.1:{port})")):
        in_processes(2, lambda those: Transport(those, lambda *message: None, lambda peer: None))
    assert not impostor.poll(0)
    context.destroy(0)
