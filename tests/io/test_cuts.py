"""lhotse's cuts of a data directory, and what is refused of other people's cuts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.audio import INT16_SCALE, read_audio
from pykaldist.io.cuts import aligned_names, data_dir_cuts, original, read_cuts, source, utterances
from pykaldist.io.datadir import DataDir, write_datadir, write_table

RATE = 16000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two recordings of a second, in three segments."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", (rng.normal(0, 1000, RATE)).astype(np.int16), RATE)
    write_datadir(tmp_path / "data", {name: str(tmp_path / f"{name}.wav") for name in ("a", "b")},
                  {"s-a1": "ONE", "s-a2": "TWO WORDS", "s-b": "THREE"}, dict.fromkeys(("s-a1", "s-a2", "s-b"), "s"),
                  {"s-a1": "a 0.10 0.45", "s-a2": "a 0.5 0.90", "s-b": "b 0 -1"})
    return tmp_path / "data"


def test_cuts_are_made_one_by_one_and_hold_the_segments(data: Path) -> None:
    cuts = data_dir_cuts(data)
    assert cuts.is_lazy and len(cuts) == 3
    found = list(cuts)
    assert [(c.id, c.start, c.duration, c.supervisions[0].text, c.supervisions[0].speaker) for c in found] == [
        ("s-a1", 0.1, 0.35, "ONE", "s"), ("s-a2", 0.5, 0.4, "TWO WORDS", "s"), ("s-b", 0, 1, "THREE", "s")]
    audio, _ = read_audio(DataDir(data).wav_scp["a"])
    np.testing.assert_array_equal(found[0].load_audio()[0] * INT16_SCALE, audio[1600:7200])


def test_speed_volume_and_pipes_of_a_data_directory_are_the_cuts(data: Path) -> None:
    write_table(data / "reco2speed", {"a": "1.25"})
    write_table(data / "reco2vol", {"b": "0.5"})
    wav = DataDir(data).wav_scp
    write_table(data / "wav.scp", {**wav, "b": f"cat {wav['b']} |"})
    (data / "segments").unlink()
    for name in ("utt2spk", "text"):
        (data / name).write_text("a s\nb s\n")
    first, second = data_dir_cuts(data)
    assert first.duration == pytest.approx(0.8) and first.load_audio().shape == (1, 12800)
    audio, _ = read_audio(wav["b"])
    np.testing.assert_allclose(second.load_audio()[0] * INT16_SCALE, 0.5 * audio, atol=1e-3)


def test_the_manifest_is_the_cuts(data: Path, tmp_path: Path) -> None:
    assert main(["make-cuts", str(data), str(tmp_path / "cuts.jsonl.gz")]) == 0
    assert [cut.to_dict() for cut in read_cuts(tmp_path / "cuts.jsonl.gz")] == [cut.to_dict() for cut in data_dir_cuts(data)]
    with gzip.open(tmp_path / "cuts.jsonl.gz", "rt") as stream:
        assert [json.loads(line)["id"] for line in stream] == ["s-a1", "s-a2", "s-b"]
    assert main(["make-cuts", str(data), str(tmp_path / "cuts.json")]) == 1


def test_names_of_copies_lead_to_their_utterance(data: Path) -> None:
    cut = next(iter(data_dir_cuts(data)))
    copies = [cut, cut.perturb_volume(2.0), cut.perturb_speed(0.9), cut.perturb_speed(1.1).perturb_volume(0.5), cut.mix(cut, snr=10)]
    assert [original(copy) for copy in copies] == ["s-a1", "s-a1", "s-a1_sp0.9", "s-a1_sp1.1", "s-a1"]
    assert {source(copy) for copy in copies} == {"s-a1"}
    assert aligned_names(copies[3]) == ["s-a1_sp1.1_vp0.5", "s-a1_sp1.1", "sp1.1-s-a1"]


def test_other_cuts_are_refused(data: Path, tmp_path: Path) -> None:
    cuts = list(data_dir_cuts(data))
    with pytest.raises(UserError, match="cut s-a1 comes twice"):
        list(utterances([cuts[0], cuts[0]], "here"))
    with pytest.raises(UserError, match="expected one supervision, found 0"):
        list(utterances([cuts[0].drop_supervisions()], "here"))
    cuts[1].recording.sources[0].type = "command"
    with pytest.raises(UserError, match="comes from a command, which is not run"):
        list(utterances(cuts, "here"))
    with pytest.raises(UserError, match="give a shar folder"):
        read_cuts(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_cuts(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(UserError, match=r"lhotse cannot read the entry behind 0 cuts|expected one supervision"):
        list(utterances(read_cuts(tmp_path / "bad.jsonl"), "bad.jsonl"))
