"""Recordings of one's own, transcribed: parts found in the recipe, long recordings in utterances, and the forms of the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.serve.recipe import graph_of, scales_of
from pykaldist.serve.recordings import ResampleStream, resampled, samples_of_upload
from pykaldist.serve.segments import utterances_of
from pykaldist.serve.transcript import FORMATS, Transcript, Utterance, Word

from .conftest import RATE, SAID


def test_all_that_it_takes_is_found_in_the_recipe(recipe: Path, audio: list[np.ndarray], tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """From any folder, with spaces in paths: graph, features, scales; files of several formats have the same words."""
    names = [str(tmp_path / f"one{suffix}") for suffix in (".wav", ".flac", ".mp3", ".ogg", ".opus")]
    for name in names:
        opus = {"format": "OGG", "subtype": "OPUS"} if name.endswith("opus") else {}
        soundfile.write(name, audio[0] / 32768, RATE, **opus)
    assert main(["transcribe", str(recipe / "exp/chain/tdnn"), *names]) == 0
    out, err = capsys.readouterr()
    assert [line.split(" ", 1) for line in out.splitlines()] == [[name, SAID[0]] for name in names]
    assert f"graph {recipe}/exp/trees/words, features mfcc by {recipe}/conf/mfcc_hires.conf" in err and "acoustic scale 1, penalty 0" in err


def test_a_long_recording_is_cut_in_its_pauses(recipe: Path, audio: list[np.ndarray], tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """Words of both utterances, in their times; and as subtitles in a folder."""
    quiet = np.random.default_rng(0).normal(scale=20, size=8 * RATE).astype(np.float32)
    whole = np.concatenate([quiet, audio[0], quiet, audio[1], quiet])
    path = tmp_path / "long talk.wav"
    soundfile.write(path, whole / 32768, RATE)
    command = ["transcribe", "--longest", "10", str(recipe / "exp/chain/tdnn"), str(path)]
    assert main([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["text"] for one in found["utterances"]] == SAID and found["text"] == " ".join(SAID)
    begins = [8.0, 16.0 + len(audio[0]) / RATE]
    for one, begin, samples in zip(found["utterances"], begins, audio, strict=True):
        assert begin - 0.25 <= one["begin"] < one["end"] <= begin + len(samples) / RATE + 0.25
        times = [time for word in one["words"] for time in (word["begin"], word["end"])]
        assert times == sorted(times) and one["begin"] <= times[0] and times[-1] <= one["end"] + 0.03
        assert all(0.5 < word["confidence"] <= 1 for word in one["words"])
    assert main([*command, "--format", "srt", "--out", str(tmp_path / "out")]) == 0
    cues = (tmp_path / "out/long talk.srt").read_text().strip().split("\n\n")
    assert [cue.split("\n")[2] for cue in cues] == SAID and cues[0].startswith("1\n00:00:08,")


def test_what_cannot_be_is_a_sentence(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(recipe / "exp/chain/tdnn")
    soundfile.write(tmp_path / "low.wav", np.zeros(8000), 8000)
    for more, words in ((["--format", "srt", "a.wav", "b.wav"], "name a folder for them with --out"),
                        (["--out", str(tmp_path), "a.wav", "b/a.mp3"], "would both be written to"),
                        (["--graph", str(tmp_path), "a.wav"], "has no HCLG.fst"),
                        (["--stream", "--format", "json", "a.wav"], "--format, --out"), ([], "no recording is named"),
                        (["--port", "1", "a.wav"], "--port is about the server; add --serve true"),
                        (["--serve", "true", "a.wav"], "takes audio from its clients"),
                        (["--extractor", "x", "a.wav"], "takes no i-vectors; leave out --extractor"),
                        (["--dtype", "bf16", "--stream", "a.wav"], "--dtype bf16 is for networks in a final.pt"),
                        (["--dtype", "int8", "a.wav"], "say nothing; leave them out"),
                        (["none.wav"], "none.wav does not exist"),
                        ([str(tmp_path / "low.wav")], "expected 16000 Hz or more, found 8000 Hz"),
                        (["--kind", "plp", "a.wav"], "has no options of features (plp.conf)")):
        assert main(["transcribe", model, *more]) == 1
        assert words in capsys.readouterr().err
    (tmp_path / "exp/other").mkdir(parents=True)
    with pytest.raises(UserError, match="no decoding graph below"):
        graph_of(tmp_path / "exp/other", None)


def test_the_best_scale_is_that_of_scoring(recipe: Path, tmp_path: Path) -> None:
    """10 over the weight for chain models, whose lattices were scaled so; one over it for others; what is named counts."""
    decode = tmp_path / "exp/dnn/decode"
    decode.mkdir(parents=True)
    assert scales_of(decode.parent, None, None).acoustic == pytest.approx(1 / 12)
    (decode / "best_wer").write_text("%WER 10.00 [ 10 / 100, 1 ins, 2 del, 7 sub ] exp/dnn/decode/wer_8_0.5\n")
    found = scales_of(decode.parent, None, None)
    assert (found.acoustic, found.penalty, found.source) == (1 / 8, 0.5, f"the scoring of {decode}")
    assert scales_of(decode.parent, 5, 0.0).acoustic == 1 / 5 and scales_of(decode.parent, 5, 0.0).penalty == 0.0
    (decode.parent / "frame_subsampling_factor").write_text("3\n")
    assert scales_of(decode.parent, None, None).acoustic == 10 / 8


@settings(max_examples=30)
@given(st.sampled_from([48000, 44100, 32000, 22050, 16000]), st.integers(1, 12000), st.integers(0, 2**32 - 1))
def test_resampling_in_pieces_is_resampling_at_once(rate: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples = rng.normal(scale=1000, size=length).astype(np.float32)
    stream, at, found = ResampleStream(rate, 16000), 0, []
    while at < length:
        step = int(rng.integers(1, 3000))
        found.append(stream.accept(samples[at:at + step]))
        at += step
    whole = resampled(samples, rate, 16000)
    np.testing.assert_allclose(np.concatenate([*found, stream.finish()]), whole, atol=0.01)


@pytest.mark.parametrize("level", [3.0, 300.0])
def test_utterances_lie_where_it_is_loud(level: float) -> None:
    """Whatever the level of the noise; a short click is none, a pause of less than 0.6 s ends none, one that is too long is cut."""
    rng = np.random.default_rng(1)
    samples = rng.normal(scale=level, size=60 * RATE)
    for begin, end in ((5, 8), (8.3, 10), (20, 21), (30, 48)):
        samples[begin * RATE if isinstance(begin, int) else round(begin * RATE):end * RATE] *= 30
    samples[15 * RATE:15 * RATE + 200] *= 30
    samples[round(38.9 * RATE):round(39.1 * RATE)] /= 30
    found = utterances_of(samples.astype(np.float32), RATE, 12.0)
    np.testing.assert_allclose(found, [(4.8, 10.2), (19.8, 21.2), (29.8, 39.0), (39.0, 48.2)], atol=0.08)
    assert utterances_of(np.zeros(RATE, np.float32), RATE, 12.0) == [] == utterances_of(np.zeros(10, np.float32), RATE, 12.0)


def test_forms() -> None:
    words = [Word("a&b", 0.5, 1.0, 0.75), Word("c", 1.0, 1.25, 1.0), Word("d", 3.0, 3661.5, 1.0)]
    transcript = Transcript("my talk.wav", 4000.0, [Utterance(0.25, 2.0, words), Utterance(5.0, 6.0, [])])
    made = {name: form(transcript) for name, form in FORMATS.items()}
    assert made["text"] == "my talk.wav a&b c d\n"
    assert made["ctm"].splitlines()[0] == "my_talk 1 0.50 0.50 a&b 0.75"
    assert made["vtt"] == ("WEBVTT\n\n00:00:00.500 --> 00:00:01.250\na&amp;b c\n\n00:00:03.000 --> 01:01:01.500\nd\n\n")
    assert made["srt"].startswith("1\n00:00:00,500 --> 00:00:01,250\na&b c\n\n2\n")
    assert json.loads(made["json"])["utterances"][0]["words"][0] == {"word": "a&b", "begin": 0.5, "end": 1.0, "confidence": 0.75}
    lost = Transcript("x.wav", 1.0, [Utterance(0.0, 1.0, None)])
    assert FORMATS["text"](lost) == "x.wav WARNING: no path survived the beam (--beam)\n"
    with pytest.raises(UserError, match="words have no times"):
        FORMATS["ctm"](Transcript("x.wav", 1.0, [Utterance(0.0, 1.0, [Word("a")])]))


def test_subtitles_are_short_and_in_order() -> None:
    words = [Word("word" * (1 + number % 3), 0.4 * number, 0.4 * number + 0.4, 1.0) for number in range(100)]
    srt = FORMATS["srt"](Transcript("x", 40.0, [Utterance(0.0, 40.0, words)]))
    cues = [cue.split("\n") for cue in srt.strip().split("\n\n")]
    assert [word for cue in cues for line in cue[2:] for word in line.split()] == [word.word for word in words]
    assert all(len(line) <= 42 for cue in cues for line in cue[2:]) and max(len(cue) for cue in cues) <= 6
    assert [int(cue[0]) for cue in cues] == list(range(1, len(cues) + 1))
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}", cue[1]) for cue in cues)


def test_an_upload_is_refused_before_it_is_unpacked(tmp_path: Path, audio: list[np.ndarray]) -> None:
    soundfile.write(tmp_path / "zeros.flac", np.zeros(1200 * RATE, np.int16), RATE)
    content = (tmp_path / "zeros.flac").read_bytes()
    assert len(content) < 100_000
    with pytest.raises(UserError, match=r"zeros.flac has 20 minutes, at most 10 are taken"):
        samples_of_upload(content, "zeros.flac", RATE, 600.0)
    with pytest.raises(UserError, match=r"zeros.flac is damaged or no audio format"):
        samples_of_upload(b"no audio at all" * 100, "zeros.flac", RATE, 600.0)
    soundfile.write(tmp_path / "stereo.wav", np.stack([audio[0], audio[0]], 1) / 32768, RATE, subtype="FLOAT")
    np.testing.assert_allclose(samples_of_upload((tmp_path / "stereo.wav").read_bytes(), "stereo.wav", RATE, 600.0), audio[0], atol=0.01)
