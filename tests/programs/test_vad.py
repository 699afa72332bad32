"""Voice activity detection: programs against loops, the step on real loudness, segments made from silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.feats.vad import voiced_frames
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.table_streams import TableWriter, write_value
from pykaldist.io.tables import read_archive

ROOT = Path(__file__).resolve().parents[2]


def write_archive(wspecifier: str, arrays: dict[str, np.ndarray]) -> None:
    with TableWriter(wspecifier, write_value) as out:
        for key, array in arrays.items():
            out.write(key, array)


@given(energy=st.lists(st.integers(-8, 40), max_size=30), threshold=st.sampled_from([0.0, 5.0, 5.5]),
       scale=st.sampled_from([0.0, 0.5, 1.0]), context=st.integers(0, 4), proportion=st.sampled_from([0.12, 0.5, 0.6]))
def test_decisions_equal_loops(energy: list[int], threshold: float, scale: float, context: int, proportion: float) -> None:
    found = voiced_frames(np.array(energy, np.float32), threshold, scale, context, proportion)
    limit = threshold + scale * sum(energy) / max(len(energy), 1)
    for t in range(len(energy)):
        around = [energy[k] for k in range(t - context, t + context + 1) if 0 <= k < len(energy)]
        assert found[t] == (sum(e > limit for e in around) >= len(around) * proportion)
    assert len(found) == len(energy)


def test_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loud = np.array([1, 9, 9, 1, 9, 1], np.float32)
    feats = {"a": np.stack([loud, np.arange(6, dtype=np.float32)], 1), "b": np.full((3, 2), 4, np.float32)}
    write_archive("ark:feats", feats)
    Path("conf").write_text("--vad-energy-threshold=4\n--vad-energy-mean-scale=0.5\n")
    assert main(["compute-vad", "--config=conf", "ark:feats", "ark:vad"]) == 0
    said = capsys.readouterr().err
    assert "b has no voiced frame\n" in said and "2 utterances, 1 without a voiced frame; 33.3 % of frames are voiced" in said
    assert {utt: v.tolist() for utt, v in read_archive("vad")} == {"a": [0, 1, 1, 0, 1, 0], "b": [0, 0, 0]}
    assert main(["compute-vad", "--config=conf", "--omit-unvoiced-utts=true", "ark:feats", "ark:less"]) == 0
    assert [utt for utt, _ in read_archive("less")] == ["a"]
    assert main(["select-voiced-frames", "ark:feats", "ark:vad", "ark:voiced"]) == 0
    chosen = dict(read_archive("voiced"))
    assert list(chosen) == ["a"] and chosen["a"].tolist() == [[9, 1], [9, 2], [9, 4]]
    assert "1 utterances chosen, 1 left out" in capsys.readouterr().err
    write_archive("ark:short", {"a": np.ones((5, 2), np.float32)})
    assert main(["select-voiced-frames", "ark:short", "ark:vad", "ark:none"]) == 1
    assert "ark:vad, a: found 6 decisions for 5 frames" in capsys.readouterr().err and not Path("none").exists()
    for options, message in (({"context": -1}, "--vad-frames-context=-1 is negative"), ({"proportion": 1.0}, "between 0 and 1")):
        with pytest.raises(UserError, match=message):
            voiced_frames(loud, **options)


def run(folder: Path, line: str) -> str:
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{ROOT}/utils:{os.environ['PATH']}", "PYKALDIST_ROOT": str(ROOT), "LC_ALL": "C.UTF-8"}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_step_and_segments(tmp_path: Path) -> None:
    """Two recordings of one speaker each, loud in the middle: segments are the loud parts, and a fifth of them silence around."""
    for name in ("steps", "utils", "path.sh"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/vad.conf").write_text("--vad-energy-threshold=5\n--vad-frames-context=2\n--vad-proportion-threshold=0.12\n")
    data = tmp_path / "data/train"
    write_datadir(data, {u: f"{u}.wav" for u in ("a", "b")}, {u: "yes" for u in ("a", "b")}, {"a": "a", "b": "b"})
    energy = {"a": np.ones(300), "b": np.ones(500)}
    energy["a"][100:200] = energy["b"][50:150] = energy["b"][350:430] = 20
    write_archive(f"ark,scp:{data}/feats.ark,{data}/feats.scp", {u: np.stack([e, e], 1).astype(np.float32) for u, e in energy.items()})
    said = run(tmp_path, "steps/compute_vad_decision.sh --nj 5 data/train exp/make_vad vad")
    assert said.splitlines()[-1] == "compute_vad_decision.sh: decisions for 2 of 2 utterances in data/train/vad.scp"
    vad = {utt: found for job in (1, 2) for utt, found in read_archive(tmp_path / f"vad/vad_train.{job}.ark")}
    assert np.flatnonzero(vad["a"])[[0, -1]].tolist() == [98, 201] and set(vad) == {"a", "b"} == set(DataDir(data).table("vad.scp"))
    made = run(tmp_path, "copy-vector scp:data/train/vad.scp ark,t:- | sed 's/[][]//g' | "
                         "segmentation.pl --remove-noise-only-segments false --frame-shift 0.01 > segments && cat segments")
    # of a 104 frames, which are four fifths of 130; of b 104 and 84, of 235, whose 47 frames of silence are on four sides
    assert made == "a-0085-0215 a 0.85 2.15\nb-0036-0164 b 0.36 1.64\nb-0336-0443 b 3.36 4.43\n"


@settings(max_examples=40)
@given(st.data())
def test_segments_hold_all_but_silence(data: st.DataObject) -> None:
    runs = data.draw(st.lists(st.tuples(st.sampled_from("012"), st.integers(1, 400)), min_size=1, max_size=12))
    frames = "".join(kind * length for kind, length in runs)
    from pykaldist.io.text_tools.segmentation import RANGES, _segments

    values = {name: default for name, (default, _, _) in RANGES.items()} | {"max-segment-length": 5.0, "hard-max-segment-length": 8.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pykaldist.io.text_tools.segmentation.rows_of", lambda *args: [([b"r", *(c.encode() for c in frames)], b"", 1)])
        found = [line.decode().split() for line in _segments(values, "-", "-", False)]
    spans = [(round(100 * float(start)), round(100 * float(stop))) for _, _, start, stop in found]
    covered = np.zeros(len(frames), int)
    for start, stop in spans:
        assert 0 <= start < stop <= len(frames) and stop - start <= 800
        covered[start:stop] += 1
    speech = np.frombuffer(frames.encode(), "S1") != b"0"
    assert covered.max(initial=0) <= 1 and (covered[speech] == 1).all()
    taken = int(covered.sum()) - int(speech.sum())
    assert taken <= max(0, int(speech.sum() / 0.8) - int(speech.sum()))


def test_segments_are_kaldis(kaldi_egs: Path, tmp_path: Path) -> None:
    """Kaldi's own script on random recordings, with and without options."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(40):
        lengths = rng.integers(1, rng.choice([5, 60, 400, 2500]), rng.integers(1, 25))
        kinds = rng.integers(0, 3, len(lengths))
        lines.append(f"rec{number} " + " ".join(map(str, np.repeat(kinds, lengths))))
    (tmp_path / "frames").write_text("\n".join(lines) + "\n")
    theirs = kaldi_egs / "wsj/s5/utils/segmentation.pl"
    for options in ("", "--silence-proportion 0.4 --max-segment-length 4 --hard-max-segment-length 6 --first-separator _",
                    "--remove-noise-only-segments false --frame-shift 0.02"):
        assert run(tmp_path, f"segmentation.pl {options} < frames") == run(tmp_path, f"perl {theirs} {options} < frames"), options
