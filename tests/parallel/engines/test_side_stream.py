"""The side stream of a GPU, played by streams that note what is handed to them: what overlaps, and what waits for what."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.clock import DeviceClock
from pykaldist.parallel.fabric.processes import SingleProcess


@pytest.fixture
def noted(monkeypatch) -> list[tuple[str, ...]]:
    """What is handed to which stream: (stream, what, about)."""
    notes: list[tuple[str, ...]] = []
    here = threading.local()

    class Stream:
        def __init__(self, device=None, name="side"):
            self.name = name
            assert name == "default" or device == torch.device("cuda:1")

        def wait_event(self, event):
            notes.append((self.name, "waits for", event.name))

    class Event:
        count = 0

        def __init__(self, enable_timing=False):
            self.timing = enable_timing

        def record(self):
            if not self.timing:
                Event.count += 1
                self.name = str(Event.count)
                notes.append((torch.cuda.current_stream().name, "notes", self.name))

        def synchronize(self):
            notes.append(("host", "waits for", "the device"))

    @contextlib.contextmanager
    def on(stream):
        before, here.stream = torch.cuda.current_stream(), stream
        yield
        here.stream = before

    default = Stream(name="default")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: getattr(here, "stream", default))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: notes.append((stream.name, "keeps", str(len(tensor)))))
    return notes


class Noting(SingleProcess):
    def __init__(self, notes):
        self.notes = notes

    def sum(self, buffer, scale):
        self.notes.append((torch.cuda.current_stream().name, "sums", str(len(buffer))))
        buffer.mul_(scale)


def test_an_exchange_in_the_background_has_a_stream_of_its_own(noted):
    """It comes behind what is sent; its result is waited for by the stream that uses it, and not by the host."""
    host = Host(1, Noting(noted))
    host.use_device(torch.device("cuda:1"))
    assert type(host.clock) is DeviceClock
    found = []

    async def work(fabric):
        ticket = await fabric.begin(fabric.mean(torch.full((3,), 2.0), 1.0))
        await fabric.average(torch.zeros(5), 1.0)
        found.append(await fabric.finish(ticket))
        ticket = await fabric.begin(fabric.gather(torch.full((4,), 7.0)))
        found.extend(await fabric.finish(ticket))

    host.run([work(fabric) for fabric in host.fabrics])
    assert [one.tolist() for one in found] == [[2.0] * 3, [7.0] * 4]
    assert ("default", "sums", "5") in noted
    noted.remove(("default", "sums", "5"))  # whenever
    assert noted == [("default", "notes", "1"), ("side", "waits for", "1"), ("side", "sums", "3"), ("side", "notes", "2"),
                     ("default", "waits for", "2"), ("default", "keeps", "3"),
                     ("default", "notes", "3"), ("side", "waits for", "3"), ("side", "notes", "4"),
                     ("default", "waits for", "4"), ("default", "keeps", "4")]


def test_an_exchange_that_is_abandoned_is_waited_for_too(noted):
    host = Host(1, Noting(noted))
    host.use_device(torch.device("cuda:1"))

    async def work(fabric):
        await fabric.begin(fabric.mean(torch.ones(3), 1.0))

    host.run([work(fabric) for fabric in host.fabrics])
    host.abandon()
    assert noted[-2:] == [("default", "waits for", "2"), ("default", "keeps", "3")]


def test_a_cpu_has_none(noted):
    host = Host(1, Noting(noted))
    host.use_device(torch.device("cpu"))

    async def work(fabric):
        return (await fabric.finish(await fabric.begin(fabric.mean(torch.ones(3), 1.0)))).tolist()

    assert host.run([work(fabric) for fabric in host.fabrics]) == [[1.0] * 3]
    assert noted == [("default", "sums", "3")]
