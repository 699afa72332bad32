"""Forced alignment of recordings: Kaldi's own boundaries, layouts of a corpus, and files of the result."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.import_ali.sources.base import Interval
from pykaldist.hmm.import_ali.sources.textgrid import parse
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.lang import LangDir
from pykaldist.serve import forced
from pykaldist.serve.recipe import lang_of, recipe_of
from pykaldist.serve.textgrid import text_grid


@pytest.fixture
def corpus(shared: Path, tmp_path: Path) -> Path:
    """All recordings of two speakers of AN4."""
    return lay_an4(shared / "data/an4", tmp_path / "my corpus", {"fash", "fbbh"})


def lay_an4(an4: Path, made: Path, speakers: set[str] | None = None) -> Path:
    """The recordings of speakers, or of all, of AN4's training set in the aligner's layout: a folder a speaker, transcripts beside them."""
    for line in (an4 / "etc/an4_train.transcription").read_text().splitlines():
        words, _, name = line.rpartition(" ")
        name = name.strip("()")
        speaker = name.split("-")[1]
        if speakers is None or speaker in speakers:
            [audio] = (an4 / "wav").rglob(f"{name}.*")
            (made / speaker).mkdir(parents=True, exist_ok=True)
            (made / speaker / audio.name).symlink_to(audio)
            text = words.replace("<s>", "").replace("</s>", "").strip()
            (made / speaker / f"{name}.lab").write_text(text.capitalize() + ".\n")
    return made


def kaldis(golden: Path, model: str) -> dict[str, tuple[list[str], np.ndarray]]:
    """The phones of Kaldi's alignment of each utterance, without silence, and the frame at which each begins."""
    ali, lang = AlignmentDir(golden / f"an4_kaldi/{model}"), LangDir(golden / "an4_kaldi/lang")
    found = {}
    for utt, tids in ali.items():
        phones, starts, _ = phone_segments(tids, ali.model)
        said = phones != lang.optional_silence
        found[utt] = [lang.phones.symbol(int(phone)).rsplit("_", 1)[0] for phone in phones[said]], starts[said]
    return found


def near_kaldis(golden: Path, model: str, corpus: Path, out: Path) -> tuple[int, int]:
    """Align a corpus by a model; how many of the phones in Kaldi's own alignment begin within 10 ms of there, and how many there are."""
    conf = corpus.parent / "mfcc.conf"
    conf.write_text("--use-energy=false\n")
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(conf), str(golden / "an4_kaldi" / model),
                 str(corpus), str(out)]) == 0
    near, count = 0, 0
    for utt, (phones, starts) in kaldis(golden, model).items():
        speaker, _, name = utt.partition("-")
        grid = out / speaker / f"{name}.TextGrid"
        if not grid.is_file():
            continue
        tiers, _ = parse(grid)
        ours = [interval for interval in tiers["phones"] if interval.label]
        if [interval.label for interval in ours] == phones:
            near += int((np.abs(np.array([interval.start for interval in ours]) - 0.01 * starts) < 0.0101).sum())
        count += len(phones)
    return near, count


def test_boundaries_are_those_of_kaldi(corpus: Path, golden: Path, tmp_path: Path, capfd) -> None:
    """Within 10 ms for at least 95 % of the phones that Kaldi's own alignment with the same model has, too."""
    (corpus / "fash" / "nothing.wav").touch()
    near, count = near_kaldis(golden, "tri1", corpus, tmp_path / "out")
    assert "1 recordings have no transcript (.lab, .txt or .TextGrid) beside them: fash/nothing" in capfd.readouterr().out
    assert count > 250 and near >= 0.95 * count, (near, count)


@pytest.mark.slow
def test_boundaries_of_a_whole_corpus_are_those_of_kaldi(shared: Path, golden: Path, tmp_path: Path) -> None:
    """AN4's training set by the speaker-adapted system that Kaldi aligned it with."""
    near, count = near_kaldis(golden, "tri3_ali", lay_an4(shared / "data/an4", tmp_path / "corpus"), tmp_path / "out")
    print(f"{near} of {count} phones begin within 10 ms of Kaldi's")
    assert count > 14_000 and near >= 0.95 * count, (near, count)


def test_what_is_written(corpus: Path, golden: Path, tmp_path: Path) -> None:
    conf, out = tmp_path / "mfcc.conf", tmp_path / "out"
    conf.write_text("--use-energy=false\n")
    wrong = sorted((corpus / "fbbh").glob("*.lab"))[3]
    wrong.write_text("STOP STOP STOP HELP\n")
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(conf), str(golden / "an4_kaldi/mono"),
                 str(corpus), str(out)]) == 0
    names = [path.relative_to(corpus).with_suffix("").as_posix() for path in corpus.rglob("*.lab")]
    assert sorted(path.relative_to(out).with_suffix("").as_posix() for path in out.rglob("*.TextGrid")) == sorted(names)
    with open(out / "scores.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["file"] == wrong.relative_to(corpus).with_suffix("").as_posix()  # the wrong transcript fits worst
    assert float(rows[0]["score"]) < 1.3 * float(rows[1]["score"]) < 0
    ctm = [line.split() for line in (out / "words.ctm").read_text().splitlines()]
    for name in names:
        found = json.loads((out / f"{name}.json").read_text())
        written = (corpus / f"{name}.lab").read_text().replace(".", "").split()  # without punctuation, as MFA has it
        (found,) = found["utterances"]
        assert [word["label"] for word in found["words"]] == written
        assert [(row[4], float(row[2])) for row in ctm if row[0] == name] == [(w["label"], w["begin"]) for w in found["words"]]
        for word in found["words"]:
            inside = word["phones"]
            assert (inside[0]["begin"], inside[-1]["end"]) == (word["begin"], word["end"])
            lengths = np.array([phone["end"] - phone["begin"] for phone in inside])
            scores = np.array([phone["score"] for phone in inside])
            assert (scores <= 0).all() and word["score"] == pytest.approx((lengths * scores).sum() / lengths.sum(), abs=0.002)


def lay_conversation(corpus: Path, made: Path, channels: int) -> list[tuple[str, str, float]]:
    """A recording of two speakers with a TextGrid of what they say; returns (their recording alone, speaker, begin) of each utterance."""
    said, tiers, time = [], {"fash": [], "fbbh": []}, 0.0
    parts = []
    for audio in [path for pair in zip(*(sorted((corpus / name).glob("*.flac"))[:3] for name in tiers), strict=True) for path in pair]:
        samples, rate = soundfile.read(audio)
        seconds, speaker = len(samples) / rate, audio.parent.name
        time += 0.5
        tiers[speaker].append(Interval(time, time + seconds, audio.with_suffix(".lab").read_text().strip()))
        said.append((f"{speaker}/{audio.stem}", speaker, time))
        column = np.zeros((len(samples) + rate // 2, channels))
        column[rate // 2:, (channels - 1) * (speaker == "fbbh")] = samples
        parts.append(column)
        time += seconds
    tiers["fbbh"].append(Interval(time + 0.1, time + 0.15, "uh"))  # too short
    made.mkdir()
    soundfile.write(made / "talk.wav", np.concatenate([*parts, np.zeros((rate, channels))]), rate)
    (made / "talk.TextGrid").write_text(text_grid(tiers, time + 1))
    return said


@pytest.mark.parametrize("channels", [1, 2])
def test_a_conversation_in_a_text_grid(corpus: Path, golden: Path, tmp_path: Path, channels: int, capfd) -> None:
    """A tier a speaker, an interval an utterance: words and phones are those of each utterance in a file of its own, later."""
    conf = tmp_path / "mfcc.conf"
    conf.write_text("--use-energy=false\n")
    said = lay_conversation(corpus, tmp_path / "talks", channels)
    before = (tmp_path / "talks/talk.TextGrid").read_text()
    options = ["--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(conf), str(golden / "an4_kaldi/mono")]
    assert main(["align", *options, str(corpus), str(tmp_path / "alone")]) == 0
    assert main(["align", *options, str(tmp_path / "talks"), str(tmp_path / "talks")]) == 0
    assert "align: 6 of 6 utterances aligned" in capfd.readouterr().out and (tmp_path / "talks/talk.TextGrid").read_text() == before
    tiers, _ = parse(tmp_path / "talks/talk_aligned.TextGrid")  # as MFA names it beside its own input
    assert list(tiers) == ["fash - words", "fash - phones", "fbbh - words", "fbbh - phones"]
    near = count = 0
    for name, speaker, begin in said:
        alone, _ = parse(tmp_path / f"alone/{name}.TextGrid")
        for tier in ("words", "phones"):
            wanted = [(one.label, begin + one.start) for one in alone[tier] if one.label]
            found = [one for one in tiers[f"{speaker} - {tier}"] if one.label and begin <= one.start < begin + 9]
            assert [one.label for one in found[:len(wanted)]] == [label for label, _ in wanted]
            near += sum(abs(one.start - start) < 0.021 for one, (_, start) in zip(found, wanted, strict=False))
            count += len(wanted)
    assert count > 60 and near >= 0.97 * count, (near, count)  # a speaker's mean is that of three utterances there
    found = json.loads((tmp_path / "talks/talk.json").read_text())
    assert [(one["speaker"], one["begin"]) for one in found["utterances"]] == [(speaker, begin) for _, speaker, begin in said]
    rows = [line.split() for line in (tmp_path / "talks/words.ctm").read_text().splitlines()]
    assert {row[1] for row in rows} == {"1", "2"} if channels == 2 else {"1"}
    assert [float(row[2]) for row in rows] == sorted(float(row[2]) for row in rows)
    with open(tmp_path / "talks/scores.csv") as stream:
        assert sorted(float(row["begin"]) for row in csv.DictReader(stream)) == [pytest.approx(begin, abs=0.006) for _, _, begin in said]


@pytest.mark.parametrize("reader", ["praatio", "textgrid", "parselmouth", "tgt"])
def test_others_read_our_text_grids(tmp_path: Path, reader: str) -> None:
    """Praat itself (parselmouth), and the packages with which people, and MFA, read TextGrids."""
    package = pytest.importorskip(reader, reason=f"pip install {reader.replace('parselmouth', 'praat-parselmouth')}")
    path, end = tmp_path / "a.TextGrid", 12345.678
    said = [Interval(0.25, 0.5, 'a "b" é'), Interval(0.5, 12345.671, "c")]
    path.write_text(text_grid({"s - words": said, "s - phones": []}, end), encoding="utf-8")
    if reader == "praatio":
        from praatio import textgrid as tgio

        grid = tgio.openTextgrid(str(path), includeEmptyIntervals=True)
        found = [(one.start, one.end, one.label) for one in grid.getTier("s - words").entries]
        assert grid.tierNames == ("s - words", "s - phones") and grid.maxTimestamp == end
    elif reader == "textgrid":
        found = [(one.minTime, one.maxTime, one.mark) for one in package.TextGrid.fromFile(str(path)).getFirst("s - words")]
    elif reader == "tgt":
        tier = package.read_textgrid(str(path), include_empty_intervals=True).get_tier_by_name("s - words")
        found = [(one.start_time, one.end_time, one.text) for one in tier.intervals]
    else:
        grid = package.read(str(path))
        count = int(package.praat.call(grid, "Get number of intervals", 1))
        asked = ("Get start time of interval", "Get end time of interval", "Get label of interval")
        found = [tuple(package.praat.call(grid, what, 1, number) for what in asked) for number in range(1, count + 1)]
    assert [(pytest.approx(begin), pytest.approx(end), label) for begin, end, label in found] == [
        (0, 0.25, ""), (0.25, 0.5, 'a "b" é'), (0.5, 12345.671, "c"), (12345.671, end, "")]


def test_what_is_missing_is_said(tmp_path: Path, corpus: Path, golden: Path, capfd) -> None:
    model = golden / "an4_kaldi/mono"
    assert main(["align", str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "name the language directory that the model was trained with, with --lang" in capfd.readouterr().err
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "with --feats-config" in capfd.readouterr().err
    assert main(["align", "--formats", "praat", str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "expected one or more of textgrid, ctm, json" in capfd.readouterr().err
    (tmp_path / "mfcc.conf").write_text("--use-energy=false\n")
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(tmp_path / "mfcc.conf"), "--dtype", "int8",
                 str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert f"--dtype int8 is for networks in a final.pt, and {model} has none; leave it out." in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_network_computes_as_it_is_told(tmp_path: Path, corpus: Path, golden: Path, capfd, monkeypatch) -> None:
    def align(data, lang, model_dir, ali, options, forwarding, log):
        raise UserError(f"told {forwarding.device} and {forwarding.dtype}.")

    model = shutil.copytree(golden / "an4_kaldi/mono", tmp_path / "dnn")
    (model / "final.pt").touch()
    (tmp_path / "mfcc.conf").write_text("--use-energy=false\n")
    monkeypatch.setattr(forced, "align_nnet_dir", align)
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(tmp_path / "mfcc.conf"), "--dtype", "int8",
                 "--device", "auto", str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "told auto and int8." in capfd.readouterr().err


def test_the_recipe_of_a_model(tmp_path: Path) -> None:
    model = tmp_path / "egs/an4/s5/exp/chain/tdnn"
    model.mkdir(parents=True)
    assert recipe_of(model) == (tmp_path / "egs/an4/s5").resolve()
    assert recipe_of(tmp_path / "models/tri1") == (tmp_path / "models").resolve()
    with pytest.raises(UserError, match="is no language directory"):
        lang_of(model, None)
