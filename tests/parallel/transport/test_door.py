"""The door of an elastic job: a process that replaces another one comes in, and others are let be. The processes are threads here."""

from __future__ import annotations

import json

import pytest
import torch

from pykaldist.errors import ProcessLostError
from pykaldist.parallel.engines.live_group import LiveGroup
from pykaldist.parallel.transport.door import DOOR, WAITS, Door, Guest
from pykaldist.parallel.transport.transport import JOIN, RESULT, SHARE, Transport

KEY = "k" * 40


def mean_of(group: LiveGroup, value: float, weight: float) -> list[float]:
    return group.mean([torch.full((5,), value)], [weight]).tolist()


def test_a_replacement_comes_in_and_its_data_is_in_the_next_mean(in_processes, tmp_path):
    """Process 2 of three ends. The others go on; then another one in its place takes part in what they exchange."""
    def work(those):
        groups, welcome = [], []

        def handle(peer, kind, numbers, buffer):
            if kind in (SHARE, RESULT):
                groups[0].deliver(peer, numbers, buffer)
            elif kind == JOIN:
                welcome.append((int(numbers[0]), buffer))

        transport = Transport(those, handle, lambda peer: None)
        groups.append(LiveGroup(transport))
        door = Door(tmp_path, {**transport.card, "size": 3}) if those.rank == 0 else None
        transport.start()
        found = [mean_of(groups[0], those.rank + 1.0, 1.0)]
        if those.rank == 2:
            transport._end(linger=0.0)
            guest = Guest(2, tmp_path)
            transport = Transport(guest, handle, lambda peer: None)
            groups[0] = LiveGroup(transport)
            transport.start()
            with transport.changed:
                transport.wait(lambda: welcome)
            assert welcome[0][1].tolist() == [7, 8, 9]
            groups[0].enter(welcome[0][0])
        else:
            with transport.changed:
                transport.changed.wait_for(lambda: 2 in transport.dead, 20)
            found.append(mean_of(groups[0], those.rank + 1.0, 1.0 + those.rank))
            while door is not None and 2 not in groups[0].members:
                for process in door.waiting():
                    door.admit(process, transport.admit)
                    transport.send(process, JOIN, [groups[0].admit(process)], torch.tensor([7, 8, 9], dtype=torch.uint8))
        found.append(mean_of(groups[0], those.rank + 1.0, 1.0))
        assert groups[0].members == [0, 1, 2]
        assert groups[0].control([float(those.rank)]).tolist() == [3.0]
        transport.close()
        return found

    all_three, two = [2.0] * 5, torch.full((5,), 1.0).mul(1 / 3).add(torch.full((5,), 2.0) * (2 / 3)).tolist()
    assert in_processes(3, work) == [[all_three, two, all_three], [all_three, two, all_three], [all_three, all_three]]


def test_what_is_no_card_is_nobody(tmp_path):
    door = Door(tmp_path, {"size": 9})
    good = {"endpoint": "tcp://127.0.0.1:5000", "key": KEY, "pid": 7}
    written = {"1": "", "2": "{", "3": json.dumps({**good, "key": "short"}), "4": json.dumps({**good, "endpoint": "ipc:///tmp/x"}),
               "5": json.dumps({**good, "pid": "x"}), "6": json.dumps([1]), "x": json.dumps(good), "7": json.dumps(good)}
    for name, text in written.items():
        (tmp_path / f"{WAITS}{name}").write_text(text)
    assert door.waiting() == [7]
    seen = []
    door.admit(7, lambda process, card: seen.append((process, card)))
    assert seen == [(7, good)] and door.waiting() == []


def test_who_waits_for_a_job_that_has_ended_is_told(tmp_path):
    door = Door(tmp_path, {"size": 3})
    guest = Guest(1, tmp_path)
    assert guest.size == 3 and not guest.let_in({"key": KEY})
    door.close()
    with pytest.raises(ProcessLostError, match="ended before another round began"):
        guest.let_in({"key": KEY})
    assert not (tmp_path / DOOR).exists()
