"""plan: the verb, on a cluster file and on this machine."""

from __future__ import annotations

import json

import pytest

from pykaldist.cli import main


def test_a_published_cluster(capsys):
    assert main(["plan", "--cluster", "k20-infiniband", "--ngpu", "16,32,64", "--strategy", "ma", "--average-period", "10,20"]) == 0
    said = capsys.readouterr().out
    assert "Recommended: --ngpu 32 --strategy ma --average-period 10: an epoch in 15.1 min (predicted), speed-up 16.9" in said
    assert "from the file" in said and "measured" not in said


def test_this_machine_and_its_cluster_file(capsys, make_store, tmp_path):
    make_store([200, 160], name="train")
    store = make_store([30], name="dev").path.parent
    command = ["plan", "--store", str(store), "--hid-layers", "1", "--hid-dim", "16", "--minibatch-size", "32", "--device", "cpu"]
    assert main([*command, "--ngpu", "1", "--write-cluster", str(tmp_path / "c.json")]) == 0
    said = capsys.readouterr().out
    assert "360 frames" in said and "44-16x1-5" in said and "measured" in said and "Recommended: --ngpu 1" in said
    assert json.loads((tmp_path / "c.json").read_text())["workload"]["frames"] == 360
    assert main(["plan", "--cluster", str(tmp_path / "c.json"), "--ngpu", "1"]) == 0
    assert "from the file" in capsys.readouterr().out


def test_what_is_wrong_is_one_sentence(capsys, tmp_path):
    (tmp_path / "c.json").write_text("{}")
    for arguments, words in ((["--cluster", str(tmp_path / "c.json")], "c.json is not as expected: name is missing, expected a value"),
                             (["--cluster", "k80"], "clusters known by name are k20-infiniband"), (["--ngpu", "many"], "--ngpu many")):
        assert main(["plan", *arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("pykaldist plan: ERROR: ") and words in error and len(error.splitlines()) == 1


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0 and "--ngpu 2,4,8,16,32,64 --cluster k20-infiniband" in said and "--average-period" in said
