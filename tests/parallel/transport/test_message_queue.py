"""Message queues in shared memory: messages come in order, and none stays unread because its reader was not woken."""

from __future__ import annotations

import mmap
import random
import sys
import threading
import time

from pykaldist.parallel.transport.message_queue import BYTES, NUMBERS, ROWS, MessageQueue


def queues(number=1):
    memory = mmap.mmap(-1, 2 * BYTES)
    return MessageQueue(memory, number), MessageQueue(memory, number)


def test_messages_come_whole_and_in_order_round_and_round():
    writer, reader = queues()
    reader.polled = True
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


def test_messages_that_do_not_fit():
    writer, reader = queues(0)
    assert not writer.put(1, [0.0] * (NUMBERS + 1))
    assert all(writer.put(1, []) for _ in range(ROWS)) and not writer.put(1, [])
    assert next(reader.take()) == (1, []) and writer.put(2, [])
    assert not queues(1)[0].unread


def test_either_the_writer_sees_that_nobody_polls_or_the_reader_sees_the_message():
    """The reader goes away again and again, with a last look. When the writer has looked again, too, all that is unread has been nudged
    for."""
    writer, reader = queues()
    nudged, done, ended = set(), threading.Event(), threading.Event()
    found, missed, count, pause = [], [], 0, random.Random(0)

    def write():
        nonlocal count
        while not ended.is_set():
            if writer.put(1, [count]):
                if not writer.polled:
                    nudged.add(count)
                count += 1
            else:
                done.set()  # there is no room until somebody reads

    thread, interval = threading.Thread(target=write), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        for _ in range(500):
            reader.polled = True
            for _ in range(pause.randrange(3)):
                time.sleep(1e-6 * pause.random())
                found.extend(int(numbers[0]) for _, numbers in reader.take())
            reader.polled = False
            found.extend(int(numbers[0]) for _, numbers in reader.take())
            for _ in range(2):  # the first may have been before
                done.clear()
                assert done.wait(20)
            missed.append(set(range(len(found), count)))
            assert missed[-1] <= nudged
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert found == list(range(len(found))) and len(found) > 100 and any(missed)
