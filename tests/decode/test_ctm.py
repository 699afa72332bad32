from __future__ import annotations

import dataclasses
import gzip
import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.ctm import CtmOptions, WordTimer, write_ctms
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.paths import LatticePath, best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_archive


@pytest.fixture(scope="module")
def an4(golden: Path) -> Path:
    return golden / "an4_kaldi"


@pytest.fixture(scope="module")
def timer(an4: Path) -> WordTimer:
    return WordTimer(LangDir(an4 / "lang"), read_transition_model(an4 / "tri3_ali/final.mdl"))


def test_phones_of_alignments_are_kaldis(an4: Path) -> None:
    model = read_transition_model(an4 / "tri1/final.mdl")
    expected = {f[0]: [int(x) for x in f[1:]] for f in map(str.split, (an4 / "tri1/phones20.txt").read_text().splitlines())}
    alignments = {f[0]: np.array(f[1:], int) for f in map(str.split, (an4 / "tri1/ali20.txt").read_text().splitlines())}
    for utt, tids in alignments.items():
        phones, _, frames = phone_segments(tids, model)
        assert np.repeat(phones, frames).tolist() == expected[utt] and (frames >= 3).all()
    with pytest.raises(UserError, match="use the model that made it"):
        phone_segments(np.array([model.num_transition_ids + 1]), model)


def test_words_in_time_follow_the_phones(an4: Path, timer: WordTimer) -> None:
    lang = LangDir(an4 / "lang")
    silence = lang.optional_silence
    boundary = lang.word_boundary
    assert boundary is not None
    model = read_transition_model(an4 / "tri3_ali/final.mdl")
    for _, lattice in read_lattices(an4 / "decode_dnn/lat.gz"):
        path = best_path(lattice, 0.1)
        timed = timer.words(lattice, 0.1)
        assert [w.word for w in timed] == path.words
        phones, starts, frames = phone_segments(path.transition_ids, model)
        # position-dependent phones say the same, without the lexicon
        begins = [int(s) for s, p in zip(starts, phones, strict=True) if boundary[int(p)] in ("begin", "singleton") and p != silence]
        ends = [int(s + n) for s, n, p in zip(starts, frames, phones, strict=True) if boundary[int(p)] in ("end", "singleton")]
        assert [w.start for w in timed] == begins
        assert [w.start + w.frames for w in timed] == ends
        assert all(0 < w.confidence < 1 + 1e-9 for w in timed)


def test_words_of_a_path_in_the_order_of_time(an4: Path, timer: WordTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph whose self-loops stand before the way out of their state gives the same words at the same times."""
    model = read_transition_model(an4 / "tri3_ali/final.mdl")

    def in_time(lattice: Lattice, acoustic_scale: float) -> LatticePath:
        path = best_path(lattice, acoustic_scale)
        tids = path.transition_ids.copy()
        changes = [0, *(np.flatnonzero(np.diff(model.tid2state[tids])) + 1), len(tids)]
        for start, end in itertools.pairwise(changes):
            tids[start:end] = np.roll(tids[start:end], -1)
        return dataclasses.replace(path, transition_ids=tids)

    for _, lattice in itertools.islice(read_lattices(an4 / "decode_dnn/lat.gz"), 10):
        expected = timer.words(lattice, 0.1)
        with monkeypatch.context() as patch:
            patch.setattr("pykaldist.decode.ctm.best_path", in_time)
            assert [(w.word, w.start, w.frames) for w in timer.words(lattice, 0.1)] == [(w.word, w.start, w.frames) for w in expected]


def test_a_last_word_may_be_cut_and_what_does_not_fit_is_refused(an4: Path, timer: WordTimer) -> None:
    lang = LangDir(an4 / "lang")
    word, pron = next((w, p) for w, p in lang.align_lexicon if len(p) > 2)
    silence = lang.optional_silence
    assert timer.place([word, word], (silence, *pron, silence, *pron[:2])) == [(1, len(pron)), (2 + len(pron), 2)]
    assert timer.place([], (silence,)) == []
    with pytest.raises(UserError, match="do not spell"):
        timer.place([word], (*pron, *pron))


def test_times_are_those_of_the_recording(an4: Path, tmp_path: Path, root: Path) -> None:
    entries = list(read_lattices(an4 / "decode_dnn/lat.gz"))[:2]
    utts = [utt for utt, _ in entries]
    (tmp_path / "decode").mkdir()
    write_lattices(tmp_path / "decode/lat.1.gz", entries)
    (tmp_path / "final.mdl").symlink_to(an4 / "tri3_ali/final.mdl")
    data = write_datadir(tmp_path / "test", {"rec": "x.wav"}, {u: "A" for u in utts}, {u: u for u in utts})
    (tmp_path / "test/segments").write_text(f"{utts[0]} rec 100.5 110\n{utts[1]} rec 20 30\n")
    (tmp_path / "test/reco2file_and_channel").write_text("rec call B\n")
    paths = write_ctms(DataDir(data.path), LangDir(an4 / "lang"), tmp_path / "decode", CtmOptions(min_lmwt=9, max_lmwt=10))
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == ["decode/score_9/test.ctm", "decode/score_10/test.ctm"]
    lines = [line.split() for line in paths[1].read_text().splitlines()]
    assert all(f[:2] == ["call", "B"] for f in lines)
    times = [float(f[2]) for f in lines]
    assert times == sorted(times) and 20 < times[0] < 30 and 100.5 < times[-1] < 110
    (tmp_path / "test/segments").unlink()
    result = subprocess.run([root / "steps/get_ctm.sh", "--min-lmwt", "10", "--max-lmwt", "10", tmp_path / "test", an4 / "lang",
                             tmp_path / "decode"], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert {line.split()[0] for line in paths[1].read_text().splitlines()} == set(utts)
    assert main(["lattice-to-ctm", "--inv-acoustic-scale", "10", str(an4 / "lang"), str(tmp_path / "final.mdl"),
                 str(tmp_path / "decode/lat.*.gz"), str(tmp_path / "ctm")]) == 0
    assert sorted((tmp_path / "ctm").read_text().splitlines()) == sorted(paths[1].read_text().splitlines())


def test_the_lattice_verbs(an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lattices, words = str(an4 / "decode_dnn/lat.gz"), str(an4 / "graph_tri3/words.txt")
    scale = ["--acoustic-scale", "0.1"]
    assert main(["lattice-best-path", *scale, "--word-symbol-table", words, lattices, "ark,t:-", "ark:" + str(tmp_path / "ali.gz")]) == 0
    out, log = capsys.readouterr()
    best = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert "fcaw-an406-fcaw-b RUBOUT G M E E F THREE NINE" in log.splitlines()
    alignments = dict(read_archive(tmp_path / "ali.gz"))
    assert best.keys() == alignments.keys() and len(best) == 43
    assert main(["lattice-to-nbest", *scale, "--n", "3", lattices, str(tmp_path / "nbest")]) == 0
    nbest = dict(read_lattices(tmp_path / "nbest"))
    for utt, lattice in read_lattices(an4 / "decode_dnn/lat.gz"):
        np.testing.assert_array_equal(best_path(lattice, 0.1).transition_ids, alignments[utt])
        costs = [path.graph + 0.1 * path.acoustic for path in (best_path(nbest[f"{utt}-{k}"], 0.1) for k in (1, 2, 3)
                                                              if f"{utt}-{k}" in nbest)]
        assert costs == sorted(costs)
        np.testing.assert_array_equal(best_path(nbest[f"{utt}-1"], 0.1).transition_ids, alignments[utt])
    capsys.readouterr()
    assert main(["lattice-oracle", "--word-symbol-table", words, lattices, str(an4 / "data/test/text"), str(tmp_path / "oracle")]) == 0
    rate = capsys.readouterr().out.split()
    refs = dict(line.split(maxsplit=1) for line in (an4 / "data/test/text").read_text().splitlines())
    oracle = dict(line.split(maxsplit=1) for line in (tmp_path / "oracle").read_text().splitlines())
    assert int(rate[3]) < 18  # the best path's errors
    assert sum(refs[utt].split() != oracle[utt].split() for utt in oracle) == int(rate[rate.index("%SER") + 3])
    (tmp_path / "cut.gz").write_bytes(gzip.compress(gzip.decompress(Path(lattices).read_bytes())[:-9]))
    cut, text, out = str(tmp_path / "cut.gz"), str(an4 / "data/test/text"), str(tmp_path / "out")
    for verb in (["lattice-best-path", cut], ["lattice-to-nbest", cut, out], ["lattice-oracle", "--word-symbol-table", words, cut, text]):
        assert main(verb) == 1
        assert "cut.gz, utterance" in capsys.readouterr().err
