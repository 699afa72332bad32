"""Sound, its features and their decoding, beside Kaldi's own numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import best_path
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive

ROOT = Path(__file__).resolve().parents[2]


def shell(folder: Path, line: str, **more: str) -> str:
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}", **more}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def recordings(tmp_path: Path) -> dict[str, np.ndarray]:
    """Two recordings, one of two channels, in wav.scp: a file and a command."""
    rng = np.random.default_rng(0)
    made = {"a": rng.integers(-30000, 30000, (16000, 1), dtype=np.int16), "b": rng.integers(-300, 300, (24000, 2), dtype=np.int16)}
    for name, samples in made.items():
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as out:
            out.setnchannels(samples.shape[1])
            out.setsampwidth(2)
            out.setframerate(16000)
            out.writeframes(samples.tobytes())
    (tmp_path / "wav.scp").write_text("a a.wav\nb cat b.wav |\n")
    return made


def test_copies_durations_and_segments(recordings: dict[str, np.ndarray], tmp_path: Path) -> None:
    shell(tmp_path, "wav-copy scp:wav.scp ark,scp:w.ark,w.scp; wav-copy ark:w.ark ark:x.ark; cmp w.ark x.ark; "
          "wav-copy scp:w.scp ark:y.ark; cmp w.ark y.ark; wav-copy a.wav c.wav; cmp a.wav c.wav; wav-copy 'cat b.wav|' - | cmp - b.wav")
    assert shell(tmp_path, "wav-to-duration scp:wav.scp ark,t:-") == "a 1\nb 1.5\n"
    (tmp_path / "segments").write_text("a-1 a 0.25 0.5\nb-1 b 1 -1\nb-2 b 0.5 0.55\nb-3 b 1.4 1.9\nb-4 b 1.4 2.9\nb-5 b 0 0.5 1\n")
    shell(tmp_path, "extract-segments scp:wav.scp segments ark:- | wav-copy ark:- ark,scp:s.ark,s.scp; "
          "while read utt place; do wav-copy $place $utt.wav; done < s.scp")
    assert [line.split()[0] for line in (tmp_path / "s.scp").read_text().splitlines()] == ["a-1", "b-1", "b-3", "b-5"]
    for utt, expected in {"a-1": recordings["a"][4000:8000], "b-1": recordings["b"][16000:], "b-3": recordings["b"][22400:],
                          "b-5": recordings["b"][:8000, 1:]}.items():
        with wave.open(str(tmp_path / f"{utt}.wav")) as found:
            samples = np.frombuffer(found.readframes(found.getnframes()), np.int16).reshape(-1, found.getnchannels())
        np.testing.assert_array_equal(samples, expected)


@pytest.mark.parametrize(("kind", "options", "expected"), [
    ("mfcc", "--use-energy=false", "mfcc13_16k"), ("mfcc", "--use-energy=true", "mfcc13_energy_16k"),
    ("fbank", "--num-mel-bins=40", "fbank40_16k"), ("plp", "", "plp13_16k")])
def test_features_are_kaldis(golden: Path, tmp_path: Path, kind: str, options: str, expected: str) -> None:
    (tmp_path / "conf").write_text("--dither=0  # as Kaldi's\n")
    shell(tmp_path, f"cd $G/..; compute-{kind}-feats --config=$T/conf {options} --write-utt2dur=ark,t:$T/dur "
          "scp:$G/feats/src16.scp ark:$T/f",
          G=str(golden), T=str(tmp_path))
    found, wanted = dict(read_archive(tmp_path / "f")), dict(read_archive(golden / f"feats/{expected}.txt.gz"))
    assert list(found) == list(wanted)
    for utt, value in wanted.items():
        assert found[utt].shape == value.shape
        np.testing.assert_allclose(found[utt], value, rtol=2e-3, atol=2e-2 if kind != "plp" else 5e-2)
    durations = dict(line.split() for line in (tmp_path / "dur").read_text().splitlines())
    assert all(len(value) == int(float(durations[utt]) * 100 - 1.5) for utt, value in wanted.items())


def test_sound_that_does_not_fit_is_left_out(recordings: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compute-fbank-feats", "scp:wav.scp", "ark:f"]) == 0
    assert "b: it has 2 channels" in capsys.readouterr().err and list(dict(read_archive("f"))) == ["a"]
    assert main(["compute-fbank-feats", "--channel=1", "--sample-frequency=16000", "scp:wav.scp", "ark:f"]) == 0
    assert main(["compute-fbank-feats", "--sample-frequency=8000", "scp:wav.scp", "ark:f"]) == 1
    assert "expected 8000 Hz, found 16000 Hz" in capsys.readouterr().err
    assert main(["compute-fbank-feats", "--num-bins=8", "scp:wav.scp", "ark:f"]) == 1
    assert "there is no option --num-bins; known are" in capsys.readouterr().err


def test_decoding_is_kaldis(golden: Path, tmp_path: Path) -> None:
    an4 = golden / "an4_kaldi"
    numbers = {number: word for word, number in map(str.split, (an4 / "graph_tri3/words.txt").read_text().splitlines())}
    shell(tmp_path, "latgen-faster-mapped --acoustic-scale=0.1 --beam=13 --lattice-beam=8 --max-active=7000 $A/tri3_ali/final.mdl "
          "$A/graph_tri3/HCLG.fst 'ark:gunzip -c $A/dnn/loglikes4.txt.gz|' 'ark:|gzip -c > lat.1.gz' ark,t:words ark,t:ali", A=str(an4))
    hyps = {key: rest for key, *rest in map(str.split, (an4 / "decode_dnn/hyp_acwt0.1.txt").read_text().splitlines())}
    found = {key: [numbers[w] for w in rest] for key, *rest in map(str.split, (tmp_path / "words").read_text().splitlines())}
    both = found.keys() & hyps.keys()
    assert len(found) == 4 and len(both) >= 2 and all(found[utt] == hyps[utt] for utt in both)
    kaldis = dict(read_lattices(an4 / "decode_dnn/lat.gz"))
    alignments = dict(read_archive(tmp_path / "ali"))
    for utt, lattice in read_lattices(tmp_path / "lat.1.gz"):
        ours = best_path(lattice, 0.1)
        np.testing.assert_array_equal(alignments[utt], ours.transition_ids)
        if utt in kaldis:
            theirs = best_path(kaldis[utt], 0.1)
            assert ours.graph + 0.1 * ours.acoustic == pytest.approx(theirs.graph + 0.1 * theirs.acoustic, abs=0.05)


def test_graphs_are_those_of_mkgraph(golden: Path, tmp_path: Path) -> None:
    """Beside Kaldi's own HCLG: as many states and arcs, and hypotheses as from it."""
    shell(tmp_path, "compile-graph --self-loop-scale=0.1 --read-disambig-syms=$A/lang/phones/disambig.int $A/tri3_ali/tree "
          "$A/tri3_ali/final.mdl $A/lang/L_disambig.fst $A/lang/G.fst HCLG.fst", A=str(golden / "an4_kaldi"))
    found, kaldis = Fst.read(tmp_path / "HCLG.fst"), Fst.read(golden / "an4_kaldi/graph_tri3/HCLG.fst")
    assert abs(found.num_states / kaldis.num_states - 1) < 0.02 and abs(found.num_arcs / kaldis.num_arcs - 1) < 0.02
    assert sorted(set(found.olabel.tolist())) == sorted(set(kaldis.olabel.tolist()))


def test_gmm_decoders_agree(golden: Path, tmp_path: Path) -> None:
    """On fMLLR features with the speaker-adapted system, as rm's test_decoders.sh compares decoders; one through state-level lattices."""
    an4 = golden / "an4_kaldi"
    out = shell(tmp_path, "head -c 300000 $A/fmllr/test.ark > part; graph='--acoustic-scale=0.083333 --allow-partial=true'; "
                "files=\"$A/tri3_ali/final.mdl $A/graph_tri3/HCLG.fst ark,p:part\"; "
                "gmm-latgen-faster --beam=13 $graph $files ark:1.lats ark,t:1.tra; gmm-decode-faster --beam=20 $graph $files ark,t:2.tra; "
                "gmm-decode-simple $graph $files ark,t:3.tra ark:3.ali ark:3.lats; lattice-copy ark:3.lats ark,t:- | grep -c '^$'; "
                "gmm-latgen-faster --determinize-lattice=false --beam=13 $graph $files ark:4.lats; "
                "lattice-best-path --acoustic-scale=0.083333 ark:4.lats ark,t:4.tra; cmp 1.tra 2.tra; cmp 1.tra 3.tra; cmp 1.tra 4.tra; "
                "wc -l < 1.tra", A=str(an4))
    lattices, utterances = map(int, out.split())
    assert lattices == utterances > 5
