"""Speed perturbation: names, lengths, pitch, segments; and no copy of a held-out utterance is trained on."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.frames.holdout import held_out_percent, hold_out, versions
from pykaldist.io.audio import change_speed, read_utterances
from pykaldist.io.datadir import DataDir, restrict, write_datadir
from pykaldist.io.datadir_tools import fix_data_dir
from pykaldist.io.perturb import perturb_speed

RATE = 8000


@pytest.fixture
def data(tmp_path):
    wav = {}
    for i in range(12):
        path = tmp_path / f"s{i:02d}-u.wav"
        soundfile.write(path, 0.5 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE), RATE)
        wav[f"s{i:02d}-u"] = str(path)
    return write_datadir(tmp_path / "data", wav, dict.fromkeys(wav, "la la"), {u: u[:3] for u in wav})


def pitch(audio):
    return np.abs(np.fft.rfft(audio * np.hanning(len(audio)))).argmax() * RATE / len(audio)


@pytest.mark.parametrize("factor", [0.9, 1.1, 1.25])
def test_speed_changes_length_and_pitch(factor):
    audio = np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE).astype(np.float32)
    fast = change_speed(audio, factor)
    assert len(fast) == pytest.approx(len(audio) / factor, abs=1)
    assert pitch(fast) == pytest.approx(440 * factor, abs=1)


def test_three_ways(data, tmp_path):
    made = perturb_speed(data.path, tmp_path / "sp")
    made.validate()
    assert len(made.utt2spk) == 36 and made.utt2spk["sp0.9-s03-u"] == "sp0.9-s03" and made.original("sp0.9-s03-u") == "s03-u"
    found = dict(read_utterances(made, ["s03-u", "sp0.9-s03-u", "sp1.1-s03-u"], RATE))
    assert [round(pitch(a)) for a in found.values()] == [440, 396, 484]
    part = restrict(made, ["sp0.9-s03-u", "s04-u"], tmp_path / "part")
    assert part.reco2speed == {"sp0.9-s03-u": 0.9} and part.original("sp0.9-s03-u") == "s03-u"


def test_segments_keep_their_place(data, tmp_path):
    wav = {"rec": data.wav_scp["s00-u"]}
    segments = {"a-1": "rec 0.5 1.5", "a-2": "rec 1.5 -1"}
    cut = write_datadir(tmp_path / "cut", wav, None, {u: "a" for u in segments}, segments)
    made = perturb_speed(cut.path, tmp_path / "sp", [1.0, 0.8])
    lengths = {u: len(a) for u, a in read_utterances(made, made.utterances(), RATE)}
    assert lengths == {"a-1": RATE, "a-2": RATE // 2, "sp0.8-a-1": 1.25 * RATE, "sp0.8-a-2": RATE * 0.5 / 0.8}


def test_no_copy_is_held_out(data, tmp_path):
    made = perturb_speed(data.path, tmp_path / "sp")
    held = hold_out(made, 25, seed=3)
    assert held == hold_out(data, 25, seed=3) and not any(u.startswith("sp") for u in held)


@pytest.mark.parametrize("cut", [False, True])
def test_no_copy_is_held_out_where_unchanged_utterances_are_renamed(data, tmp_path, cut):
    """As by `perturb_data_dir_speed_3way.sh --always-include-prefix true`; and training sees no version of what is held out."""
    if cut:
        utts = data.utt2spk
        data = write_datadir(tmp_path / "cut", {f"r{u}": data.wav_scp[u] for u in utts}, None, dict(utts), {u: f"r{u} 0 0.5" for u in utts})
    made = perturb_speed(data.path, tmp_path / "sp", name_all=True)
    held = hold_out(made, held_out_percent(made, 3), seed=3)
    assert 0 < len(held) < len(data.utt2spk) and all(utt.startswith("sp1.0-") for utt in held)
    kept_out = versions(made, held)
    names = {utt.removeprefix("sp1.0-") for utt in held}
    assert set(filter(kept_out, made.utt2spk)) == {f"sp{speed}-{name}" for name in names for speed in (0.9, 1.0, 1.1)}


def test_mending_keeps_what_perturbation_wrote(data, tmp_path):
    made = perturb_speed(data.path, tmp_path / "sp")
    before = {name: made.table(name) for name in ("reco2speed", "utt2uniq")}
    (made.path / "text").write_text("".join(f"{u} la\n" for u in made.utterances() if u != "sp1.1-s00-u"))
    fix_data_dir(made.path)
    after = DataDir(made.path)
    for name, gone in (("reco2speed", "sp1.1-s00-u"), ("utt2uniq", "sp1.1-s00-u")):
        assert after.table(name) == {k: v for k, v in before[name].items() if k != gone}
    assert hold_out(after, 25, seed=3) == hold_out(data, 25, seed=3)


def test_nonsense_is_refused(data, tmp_path):
    with pytest.raises(UserError, match="found 3"):
        perturb_speed(data.path, tmp_path / "sp", [3.0])
    with pytest.raises(UserError, match="cannot replace"):
        perturb_speed(data.path, data.path)
    with pytest.raises(UserError, match="already perturbed"):
        perturb_speed(perturb_speed(data.path, tmp_path / "sp").path, tmp_path / "sp2")
    (tmp_path / "sp" / "reco2speed").write_text("sp0.9-s03-u fast\n")
    with pytest.raises(UserError, match="found 'fast'"):
        list(read_utterances(DataDir(tmp_path / "sp"), ["sp0.9-s03-u"], RATE))
