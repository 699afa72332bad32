"""The clock of a device: seconds are those of the device's work and of its standing still, not those of launching."""

from __future__ import annotations

import pytest
import torch

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.clock import OPEN, Clock, DeviceClock, clock_of
from pykaldist.parallel.fabric.processes import SingleProcess


class Device:
    """A GPU and its host: what the host hands over, the device does later, one after the other. Times in seconds."""

    def __init__(self) -> None:
        self.now = self.free = 0.0
        self.waits = 0

    def launch(self, seconds: float) -> None:
        """The host hands over work of so many seconds, which takes it 1 ms."""
        self.now += 0.001
        self.free = max(self.now, self.free) + seconds

    def sleep(self, seconds: float) -> None:
        """The host waits for others."""
        self.now += seconds


@pytest.fixture
def device(monkeypatch) -> Device:
    found = Device()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing

        def record(self) -> None:
            self.time = max(found.now, found.free)

        def query(self) -> bool:
            return found.now >= self.time

        def synchronize(self) -> None:
            found.waits += 1
            found.now = max(found.now, self.time)

        def elapsed_time(self, other: Event) -> float:
            assert other.query()
            return 1000.0 * (other.time - self.time)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    return found


class Late(SingleProcess):
    """A job whose other processes come `seconds` late to each meeting."""

    def __init__(self, device: Device, seconds: float) -> None:
        self.device, self.seconds = device, seconds

    def control(self, values, largest=False):
        self.device.sleep(self.seconds)
        return super().control(values, largest)

    def sum(self, buffer, scale):
        self.device.launch(0.25)


def test_seconds_are_those_of_the_device(device):
    """5 steps of 2 s, handed over in 5 ms; the others come 12 s later; an exchange of 0.25 s."""
    host = Host(1, Late(device, 12.0))
    host.clock = host.fabrics[0].clock = clock_of(torch.device("cuda"))

    async def epoch(fabric):
        for _ in range(5):
            await fabric.compute(device.launch, 2.0)
        await fabric.average(torch.zeros(3), 1.0)
        await fabric.work("a filter", lambda: device.launch(0.5), torch.zeros(3), 2)
        await fabric.compute(device.launch, 1.0)

    host.run([epoch(fabric) for fabric in host.fabrics])
    assert device.waits == 0 and device.now < 12.1  # nobody has waited for the device
    compute, exchange, wait, load = host.spent()
    assert compute == pytest.approx(11.0, abs=0.01) and exchange == pytest.approx(0.75, abs=0.01) and load == 0.0
    assert wait == pytest.approx(2.0, abs=0.01)  # the device stood still for 2 of the 12 s
    assert device.waits == 1 and sum(host.spent()) == pytest.approx(device.now, abs=0.01)
    host.begin_epoch()
    assert host.spent() == [0.0] * 4


def test_spans_that_are_over_are_closed_meanwhile(device):
    clock, seconds, other = DeviceClock(), {"compute": 0.0}, {"compute": 0.0}
    for _ in range(4 * OPEN):
        before = clock.mark()
        device.launch(0.5)
        clock.add(before, "compute", [seconds, other])
        device.sleep(0.5)
    assert device.waits == 0 and len(clock._open) <= OPEN + 2
    clock.settle()
    assert seconds == other and seconds["compute"] == pytest.approx(OPEN, rel=0.01)


def test_the_clock_of_a_cpu():
    clock, seconds = clock_of(torch.device("cpu")), {"wait": 1.0}
    assert type(clock) is Clock
    clock.add(clock.mark() - 3.0, "wait", [seconds])
    clock.settle()
    assert 4.0 <= seconds["wait"] < 5.0


def test_the_seconds_of_loading_are_the_devices(device, make_workers):
    [worker] = make_workers()
    worker.clock = clock_of(torch.device("cuda"))
    worker.begin_epoch(0, 0.1)
    make = worker._source

    def source():
        for minibatch in make:
            device.launch(3.0)
            yield minibatch

    worker.draw_from(source())
    worker.step()
    worker.step()
    assert device.now < 0.1
    worker.clock.settle()
    assert worker.load_seconds == pytest.approx(6.0, abs=0.01)
