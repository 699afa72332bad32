"""Messages that are left in memory, and the nudge that none of them is left for good without."""

from __future__ import annotations

import mmap
import threading
import time

from pykaldist.parallel.mailbox import BYTES, NUMBERS, ROWS, Mailbox


def boxes(number=1):
    memory = mmap.mmap(-1, 2 * BYTES)
    return Mailbox(memory, number), Mailbox(memory, number)


def test_messages_come_whole_and_in_order_round_and_round():
    writer, reader = boxes()
    reader.attended = True
    left = 0
    for batch in (1, ROWS, 3, ROWS - 1, 0, 2):
        for k in range(batch):
            assert writer.put(k % 7, [left, -0.5, *range(k % (NUMBERS - 1))][:NUMBERS])
            left += 1
        assert writer.unread == reader.unread == (batch > 0)
        found = list(reader.take())
        assert [numbers[0] for _, numbers in found] == list(range(left - batch, left))
        assert all(kind == k % 7 and len(numbers) == 2 + k % (NUMBERS - 1) for k, (kind, numbers) in enumerate(found))
    assert not writer.unread


def test_what_is_not_taken():
    writer, reader = boxes(0)
    assert not writer.put(1, [])  # nobody attends
    reader.attended = True
    assert not writer.put(1, [0.0] * (NUMBERS + 1))
    assert all(writer.put(1, []) for _ in range(ROWS)) and not writer.put(1, [])
    assert next(reader.take()) == (1, []) and writer.put(2, [])
    assert not boxes(1)[0].unread


def test_either_the_writer_sees_that_nobody_attends_or_the_reader_sees_the_message():
    """The reader goes away again and again, with a last look; messages for which nobody was nudged have been found by then."""
    writer, reader = boxes()
    found, nudged, ended = [], [], threading.Event()

    def read():
        while not ended.is_set():
            reader.attended = True
            found.extend(int(numbers[0]) for _, numbers in reader.take())
            reader.attended = False
            found.extend(int(numbers[0]) for _, numbers in reader.take())

    thread = threading.Thread(target=read)
    thread.start()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < 1.0:
        if writer.put(1, [count]):
            count += 1
            if not writer.attended:
                nudged.append(count - 1)
    ended.set()
    thread.join()
    assert found == list(range(len(found)))
    missed = set(range(count)) - set(found)
    assert count > 100 and missed <= set(nudged)
