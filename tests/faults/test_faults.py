"""The shim injects what it says; and a sample of the campaign (tests/faults/run.sh) finds nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kills
import numpy as np
import pytest
from campaign import main as campaign
from faults import Bench, Trial, wrong
from zoo import ROOT, Control, Fault, Place, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

STAGES = ("prepare_data.sh", "prepare_lang.sh", "train_lm.sh")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def control(place: Place) -> Iterator[Control]:
    for path in place.root.iterdir():
        path.unlink()
    yield place.control
    place.control.arm(Fault())


def shell(place: Place, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=place.root, env=place.environment(), capture_output=True, text=True, check=False)


def python(place: Place, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=place.root, env=place.environment(), capture_output=True, text=True,
                          check=False)


def test_calls_are_counted_and_the_kth_fails(place, control):
    script = "for i in 1 2 3 4; do cp in out$i || echo failed $i; done"
    (place.root / "in").write_text("something\n")
    control.arm(Fault())
    assert shell(place, script).returncode == 0
    assert control.seen().counts["create"] == 4 and not control.seen().fired
    control.arm(Fault("error", "create", 3, errno.EDQUOT))
    done = shell(place, script.replace("out", "other"))
    assert done.stdout == "failed 3\n" and "quota" in done.stderr
    assert control.seen().fired and control.seen().file == f"{place.root}/other3"


def test_files_elsewhere_are_left_alone(place, control, tmp_path):
    control.arm(Fault("error", "create", 1, errno.ENOSPC))
    assert shell(place, f"echo one > {tmp_path}/f; cat {tmp_path}/f").stdout == "one\n"
    assert not any(control.seen().counts.values())


@pytest.mark.parametrize(("fault", "script", "said"), [
    (Fault("error", "write", 1, errno.ENOSPC), "print(open('f', 'wb', 0).write(b'12345678'))", "ENOSPC"),
    (Fault("short", "write", 1), "print(open('f', 'wb', 0).write(b'12345678'))", "4"),
    (Fault("error", "fsync", 1, errno.EIO), "f = open('f', 'w'); os.fsync(f.fileno())", "EIO"),
    (Fault("error", "rename", 1, errno.ENOSPC), "os.replace('in', 'f')", "ENOSPC"),
    (Fault("error", "open", 1, errno.EMFILE), "open('in')", "EMFILE"),
    (Fault("error", "read", 1, errno.EIO), "open('in', 'rb', 0).read(4)", "EIO"),
    (Fault("short", "read", 1), "print(open('in', 'rb', 0).read(4))", "b'so'"),
    (Fault("flip", "read", 1, bit=8), "print(open('in', 'rb', 0).read(4))", "b'snme'"),
    (Fault("error", "mmap", 1, errno.ENOMEM), "f = open('in', 'rb'); mmap.mmap(f.fileno(), 4, prot=mmap.PROT_READ)", "ENOMEM"),
    (Fault("flip", "mmap", 1, bit=8), "f = open('in', 'rb'); print(mmap.mmap(f.fileno(), 4, prot=mmap.PROT_READ)[:])", "b'snme'"),
    (Fault("error", "write", 1, errno.ENOSPC), "np.arange(2000.).tofile(open('f', 'wb'))", "2000 requested and 1000 written"),  # by stdio
    (Fault("flip", "read", 1, bit=0), "print(np.fromfile('in', 'u1')[:1])", "[114]"),
])
def test_each_kind_of_fault(place, control, fault, script, said):
    (place.root / "in").write_text("something\n")
    control.arm(fault)
    done = python(place, "import errno, mmap, os; import numpy as np\n"
                         f"try:\n    {script}\nexcept OSError as e: print(errno.errorcode.get(e.errno, e))")
    assert control.seen().fired and done.stdout == f"{said}\n", done


@pytest.mark.parametrize(("kind", "left"), [("kill", b""), ("torn", b"1234")])
def test_a_process_is_killed_at_a_write(place, control, kind, left):
    control.arm(Fault(kind, "write", 1))
    done = python(place, "open('f', 'wb', 0).write(b'12345678')")
    assert done.returncode == -signal.SIGKILL and (place.root / "f").read_bytes() == left


def test_an_array_is_whole_or_not_there(place, control):
    """Whichever of its writes fails: numpy's own way, C's stdio, loses an error of closing."""
    script = "import numpy as np, sys; from pykaldist.io.npy import save_array\n" \
             "try: save_array('a.npy', np.arange(3000.))\nexcept OSError as e: print('failed', e.filename)"
    control.arm(Fault())
    assert python(place, script).stdout == "" and np.array_equal(np.load(place.root / "a.npy"), np.arange(3000.0))
    writes = control.seen().counts["write"]
    assert writes > 0
    for k in range(1, writes + 1):
        (place.root / "a.npy").unlink(missing_ok=True)
        control.arm(Fault("error", "write", k, errno.EIO))
        assert python(place, script).stdout.startswith("failed") and not (place.root / "a.npy").exists()


@pytest.mark.parametrize("kind", ["kill", "torn"])
def test_a_copy_that_is_cut_has_not_its_name(place, control, kind):
    (place.root / "in").write_text("something\n")
    control.arm(Fault(kind, "write", 1))
    done = python(place, "from pykaldist.io.atomic import copy_file; copy_file('in', 'out')")
    assert done.returncode == -signal.SIGKILL and not (place.root / "out").exists()
    control.arm(Fault())
    assert python(place, "from pykaldist.io.atomic import copy_file; copy_file('in', 'out')").returncode == 0
    assert (place.root / "out").read_text() == "something\n"


@pytest.mark.parametrize(("where", "error", "words"), [
    ("read", errno.EIO, "input/output error at {}/in; see what the system says"),
    ("open", errno.EMFILE, "too many open files, when {}/in was to be opened; raise the limit"),
    ("create", errno.ENOSPC, "no space left on the device while writing {}/out; free"),
    ("write", errno.ENOSPC, "no space left on the device while writing {}/out; free"),
    ("rename", errno.EDQUOT, "disk quota was reached while writing {}/out; raise"),
])
def test_an_error_names_the_file_and_the_cure(place, control, where, error, words):
    """Of the two that are open, the one that failed, by the name that it was to have."""
    (place.root / "in").write_text("something\n")
    control.arm(Fault("error", where, 1, error))
    done = python(place, "from pykaldist.errors import os_error_sentence; from pykaldist.io.atomic import copy_file; import os\n"
                         "try: copy_file(os.path.abspath('in'), os.path.abspath('out'))\nexcept OSError as e: print(os_error_sentence(e))")
    assert words.format(place.root) in done.stdout and not (place.root / "out").exists()


def test_a_verb_that_is_killed_is_said(tmp_path):
    """Its script says so in its place."""
    stub = tmp_path / "pykaldist"
    stub.write_text("#!/usr/bin/env bash\nkill -9 $$\n")
    stub.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "utils"), str(ROOT / "utils/shared"), os.environ["PATH"]])
    env = {**os.environ, "PYKALDIST_TOLD": "true", "PATH": path}
    done = subprocess.run([str(ROOT / "utils/fix_data_dir.sh"), str(tmp_path)], cwd=tmp_path, env=env, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("fix_data_dir.sh: ERROR: its process was killed by signal 9 (was there memory enough?)")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    try:
        bench.prepare(lambda case: case.name in STAGES)
        yield bench
    finally:
        bench.place.stop()


@pytest.mark.parametrize("where", ["open", "create", "write", "fsync", "rename", "read"])
def test_stages_with_a_call_that_fails(bench, where):
    """One sentence or the result; nothing half-written; and again it gives the result, to the bit."""
    chosen = [trial for trial in bench.trials(1) if trial.where == where and trial.kind != "flip"][:3]
    assert len(chosen) == 3
    for trial in chosen:
        bench.inject(trial)
        assert trial.outcome in ("sentence", "survived") and not wrong(trial), trial


@pytest.mark.parametrize(("script", "fault", "outcome"), [
    ("exit 3", ("create", 1, "kill"), "mute"),
    ("kill -9 $$", ("create", 1, "kill"), "sentence"),
    ("echo 'Traceback (most recent call last):' >&2; exit 3", ("create", 1, "kill"), "traceback"),
    ("echo 'ERROR: it is so.' >&2; exit 3", ("create", 1, "kill"), "sentence"),
    ("cat data/local/dict/lexicon.txt > /dev/null", ("read", 1, "flip"), "silent"),
    ("mkdir data/lang; cp data/local/dict/lexicon.txt data/lang/words.txt; exit 0", ("write", 1, "torn"), "silent"),
])
def test_the_harness_tells_stages_that_are_wrong(bench, script, fault, outcome):
    case = bench.prepared["prepare_lang.sh"].case
    words, case.words = case.words, ["bash", "-c", script]
    try:
        trial = bench.inject(Trial("faults", case.name, *fault))
    finally:
        case.words = words
    assert trial.outcome == outcome and (wrong(trial) or outcome == "sentence"), trial
    assert trial.half == ["data/lang/words.txt"] * ("words.txt" in script and trial.kind == "torn")


def test_a_process_is_killed_in_the_midst_of_its_epochs(bench):
    """By the pid that it has recorded, once the history has the lines; a script stands in for the job."""
    case = bench.prepared["train_lm.sh"].case
    words, case.words = case.words, ["bash", "-c", "mkdir -p exp/job/.ranks; echo '{}' > exp/job/history.jsonl; "
                                     "echo \"{\\\"pid\\\": $$}\" > exp/job/.ranks/0; exec sleep 8", "exp/job"]
    try:
        trial = kills.kill(bench, Trial("kills", case.name, "", 1, "kill"))
    finally:
        case.words = words
    assert trial.status == -signal.SIGKILL and trial.function.startswith("epoch 2")


def test_a_network_of_its_own_is_cut_and_mended(bench):
    if reason := kills.without_networks():
        pytest.skip(reason)
    script = "import os, socket; s = socket.create_server(('127.0.0.1', 0)); s.settimeout(2)\n" \
             "socket.create_connection(s.getsockname(), 2); print(os.readlink('/proc/self/ns/net'))"
    with kills.Network() as network:
        more = {"FAULTS_NETWORK": str(network.path)}
        assert bench.place.run(["python", "-c", script], bench.s5, more=more).out == os.readlink(network.path) + "\n"
        network.fail("cut for good")
        assert bench.place.run(["python", "-c", script], bench.s5, more=more).status
        network.mend()
        network.fail("delay")
        assert bench.place.run(["python", "-c", script], bench.s5, more=more).status == 0
        assert network._do("tc", "qdisc", "del", "dev", "lo", "root")  # there is one, which delays


def test_kills_are_of_every_job_in_every_phase():
    found = kills.trials(["a", "b"], 1, 100)
    assert len(found) == 100
    assert {(trial.case, trial.phase) for trial in found} == {(name, phase) for name in "ab" for phase in kills.PHASES}
    assert {trial.kind for trial in found} == {"kill", "stop"} and len({trial.key for trial in found}) > 50


@pytest.mark.slow
def test_a_sample_of_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["run.sh", "--seed", "1", "--sample", "--dir", str(tmp_path)])
    assert campaign() == 0, capsys.readouterr().out
