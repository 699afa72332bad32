"""What an onlooker sees of a training: against records that are written by hand, and against a training that runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from pykaldist.errors import UserError
from pykaldist.parallel.launch.records import WAITING
from pykaldist.report.live import ENDED, RUNNING, STOPPED, Onlooker, View, bar, duration, render_view, sparkline
from pykaldist.report.live_server import LiveServer

EPOCH = {"epoch": 1, "updates": 9, "frames": 900, "learn_rate": 0.1, "train_loss": 2.0, "cv_loss": 1.5, "cv_acc": 0.5, "accepted": True,
         "seconds": {"total": 10.0}, "time": "measured", "disagreement": 0.25}


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def write_record(exp, process, beat, done, losses=(1.0, None), state="computing (pykaldist/x.py:1)", epoch=2, at=50.0):
    """A record of a process with two workers, of 10 frames a minibatch and 50 minibatches an epoch."""
    (exp / ".ranks").mkdir(parents=True, exist_ok=True)
    training = {"first": 2 * process, "epoch": epoch, "epochs": 4, "minibatches": [done, done], "of": [50, 50], "losses": list(losses),
                "frames": 20 * done, "elapsed": 8.0, "time": "measured", "at": at,
                "seconds": {"compute": 6.0, "exchange": 1.0, "wait": 1.0, "load": 0.0}}
    record = {"job": 1, "host": f"node{process}", "pid": 7 + process, "beat": beat, "progress": done, "state": state, "training": training}
    (exp / ".ranks" / str(process)).write_text(json.dumps(record))


def test_speed_and_time_left(tmp_path):
    clock = Clock()
    onlooker = Onlooker(tmp_path, clock, age=lambda path: 0.0)
    (tmp_path / "history.jsonl").write_text(json.dumps(EPOCH) + "\n")
    for process in (0, 1):
        write_record(tmp_path, process, 1, 10)
    first = onlooker.look()
    assert (first.state, first.epoch, first.epochs, first.fraction, first.frames_per_second) == (RUNNING, 2, 4, 0.2, None)
    clock.now += 4.0
    write_record(tmp_path, 0, 5, 20, at=54.0)
    write_record(tmp_path, 1, 5, 30, state=WAITING, at=54.5)
    view = onlooker.look()
    # 400 frames before, 1000 now; 2000 an epoch, of which 1000 are left, and two epochs more.
    assert view.frames_per_second == pytest.approx(150.0) and view.seconds_left == pytest.approx(5000 / 150)
    assert view.fraction == 0.5 and view.seconds == {"compute": 6.0, "exchange": 1.0, "wait": 1.0, "load": 0.0}
    assert [(w.rank, w.process, w.host, w.pid, w.does, w.minibatches, w.loss) for w in view.workers] == [
        (0, 0, "node0", 7, "computing", 20, 1.0), (1, 0, "node0", 7, "computing", 20, None),
        (2, 1, "node1", 8, "waiting", 30, 1.0), (3, 1, "node1", 8, "waiting", 30, None)]
    clock.now += 1.0
    for process in (0, 1):
        write_record(tmp_path, process, 6, 0, epoch=3)
    assert onlooker.look().frames_per_second is None  # another epoch


def test_a_process_that_writes_no_more_gives_no_sign_of_life(tmp_path):
    clock = Clock()
    onlooker = Onlooker(tmp_path, clock, age=lambda path: 0.0)
    for process in (0, 1):
        write_record(tmp_path, process, 1, 10)
    onlooker.look()
    clock.now += 60.0
    write_record(tmp_path, 0, 2, 11)
    view = onlooker.look()
    assert view.state == RUNNING and [worker.does for worker in view.workers] == ["computing"] * 2 + ["no sign of life"] * 2
    clock.now += 60.0
    assert onlooker.look().state == STOPPED
    (tmp_path / "final.pt").touch()
    assert onlooker.look().state == ENDED


def test_an_old_record_is_not_alive_at_the_first_look(tmp_path):
    write_record(tmp_path, 0, 1, 10)
    assert Onlooker(tmp_path, Clock(), age=lambda path: 3600.0).look().state == STOPPED


def test_a_folder_without_a_training_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no training"):
        Onlooker(tmp_path).look()


def test_the_text_fits_a_small_terminal(tmp_path):
    clock = Clock()
    onlooker = Onlooker(tmp_path, clock, age=lambda path: 0.0)
    (tmp_path / "history.jsonl").write_text(json.dumps(EPOCH) + "\n" + json.dumps({**EPOCH, "epoch": 2, "cv_acc": 0.75}) + "\n")
    for process in range(20):
        write_record(tmp_path, process, 1, 25)
    lines = render_view(onlooker.look(), 80, 24).splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[-1].startswith("... and ") and lines[1].startswith("epoch 2 of 4  ████████████░░░░░░░░░░░░  50 %")
    assert "held-out frame accuracy, %   ▁█ 75.00" in lines
    whole = render_view(onlooker.look(), 80, 80).splitlines()
    assert len([line for line in whole if "node" in line]) == 40


def test_bars_and_durations():
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█" and sparkline([3.0]) == "▁"
    assert (bar(0.5, 4), bar(0.0, 4), bar(2.0, 4)) == ("██░░", "░░░░", "████")
    assert [duration(s) for s in (9.6, 75, 7500)] == ["10 s", "1 min 15 s", "2 h 5 min"]


@pytest.fixture
def server(tmp_path):
    write_record(tmp_path, 0, 1, 10)
    with LiveServer(Onlooker(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
        return answer.read().decode(), answer.headers


def test_the_page_and_its_data(server, tmp_path):
    page, headers = get(server.address)
    assert "<title>pykaldist watch</title>" in page and "default-src 'none'" in headers["Content-Security-Policy"]
    assert "src=" not in page and "href=" not in page  # nothing is loaded from elsewhere
    view = json.loads(get(server.address.replace("/?", "/view?"))[0])
    assert set(view) == {field.name for field in dataclasses.fields(View)} and view["fraction"] == 0.2
    (tmp_path / "history.jsonl").write_text("{}\n")
    assert "history.jsonl" in json.loads(get(server.address.replace("/?", "/view?"))[0])["error"]


def test_strangers_get_nothing(server):
    base, token = server.address.split("?")
    assert server.server_address[0] == "127.0.0.1"
    for address, headers in ((base, {}), (f"{base}?token=guess", {}), (f"{base}view?token=", {}),
                             (f"{base}?{token}", {"Host": "evil.example:80"})):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(address, **headers)
        assert refused.value.code == 403
    with pytest.raises(urllib.error.HTTPError) as unknown:
        get(f"{base}other?{token}")
    assert unknown.value.code == 404


def test_a_port_that_is_taken(server, tmp_path):
    with pytest.raises(UserError, match="can not be used"):
        LiveServer(Onlooker(tmp_path), server.server_address[1])


def test_a_training_tells_how_far_it_is(make_store, tmp_path):
    """The records of a training that runs, as its onlooker reads them, to its end."""
    make_store([50] * 4, seed=2, name="dev")
    exp, store = tmp_path / "exp", make_store([50] * 400, name="train").path.parent
    options = "--ngpu 3 --strategy ma --fabric virtual --hid-layers 1 --hid-dim 64 --schedule exponential --num-epochs 2000"
    command = [sys.executable, "-m", "pykaldist", "train", *options.split(), str(store), str(exp)]
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    onlooker, seen = Onlooker(exp), None
    try:
        until = time.monotonic() + 90.0
        while (seen is None or seen.epoch is None or len(seen.history) < 2) and time.monotonic() < until:
            time.sleep(0.1)
            with contextlib.suppress(UserError):  # not begun yet
                seen = onlooker.look()
        assert seen is not None and (seen.state, seen.epochs) == (RUNNING, 2000)
        assert seen.title == "dnn, xent, sgd, ma of 3 workers, period 10, cpu" and [w.rank for w in seen.workers] == [0, 1, 2]
        assert {worker.of for worker in seen.workers} <= {26, 27} and set(seen.seconds) == {"compute", "exchange", "wait", "load"}
    finally:
        training.terminate()
        training.wait(60)
    assert not (exp / ".ranks").exists() and Onlooker(exp).look().state == STOPPED
