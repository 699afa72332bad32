"""Forced alignment of recordings: Kaldi's own boundaries, layouts of a corpus, and files of the result."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.import_ali.sources.textgrid import parse
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.lang import LangDir
from pykaldist.serve.recipe import lang_of, recipe_of


@pytest.fixture
def corpus(shared: Path, tmp_path: Path) -> Path:
    """All recordings of two speakers of AN4 in the aligner's layout: a folder a speaker, transcripts beside them."""
    an4, made = shared / "data/an4", tmp_path / "my corpus"
    for line in (an4 / "etc/an4_train.transcription").read_text().splitlines():
        words, _, name = line.rpartition(" ")
        name = name.strip("()")
        speaker = name.split("-")[1]
        if speaker in ("fash", "fbbh"):
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


@pytest.mark.parametrize("model", ["tri1", pytest.param("tri3_ali", marks=pytest.mark.slow)])
def test_boundaries_are_those_of_kaldi(corpus: Path, golden: Path, tmp_path: Path, model: str, capfd) -> None:
    """Within 10 ms for at least 95 % of the phones that Kaldi's own alignment with the same model has, too."""
    conf = tmp_path / "mfcc.conf"
    conf.write_text("--use-energy=false\n")
    (corpus / "fash" / "nothing.wav").touch()
    out = tmp_path / "out"
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), "--feats-config", str(conf), str(golden / "an4_kaldi" / model),
                 str(corpus), str(out)]) == 0
    said = capfd.readouterr().out
    assert "1 recordings have no transcript (.lab or .txt) beside them: fash/nothing" in said
    near, count = 0, 0
    for utt, (phones, starts) in kaldis(golden, model).items():
        speaker, name = utt.split("-", 1) if utt.split("-")[0] in ("fash", "fbbh") else (utt.split("-")[1], utt)
        grid = next(iter(out.rglob(f"*{name}.TextGrid")), None)
        if grid is None:
            continue
        assert grid.parent.name == speaker
        tiers, _ = parse(grid)
        ours = [interval for interval in tiers["phones"] if interval.label]
        if [interval.label for interval in ours] == phones:
            near += int((np.abs(np.array([interval.start for interval in ours]) - 0.01 * starts) < 0.0101).sum())
        count += len(phones)
    assert count > 250 and near >= 0.95 * count, (near, count)


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
        written = (corpus / f"{name}.lab").read_text().split()
        assert [word["label"] for word in found["words"]] == written
        assert [(row[4], float(row[2])) for row in ctm if row[0] == name] == [(w["label"], w["begin"]) for w in found["words"]]
        for word in found["words"]:
            inside = word["phones"]
            assert (inside[0]["begin"], inside[-1]["end"]) == (word["begin"], word["end"])
            lengths = np.array([phone["end"] - phone["begin"] for phone in inside])
            scores = np.array([phone["score"] for phone in inside])
            assert (scores <= 0).all() and word["score"] == pytest.approx((lengths * scores).sum() / lengths.sum(), abs=0.002)


def test_what_is_missing_is_said(tmp_path: Path, corpus: Path, golden: Path, capfd) -> None:
    model = golden / "an4_kaldi/mono"
    assert main(["align", str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "name the language directory that the model was trained with, with --lang" in capfd.readouterr().err
    assert main(["align", "--lang", str(golden / "an4_kaldi/lang"), str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "with --feats-config" in capfd.readouterr().err
    assert main(["align", "--formats", "praat", str(model), str(corpus), str(tmp_path / "out")]) == 1
    assert "expected one or more of textgrid, ctm, json" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_recipe_of_a_model(tmp_path: Path) -> None:
    model = tmp_path / "egs/an4/s5/exp/chain/tdnn"
    model.mkdir(parents=True)
    assert recipe_of(model) == (tmp_path / "egs/an4/s5").resolve()
    assert recipe_of(tmp_path / "models/tri1") == (tmp_path / "models").resolve()
    with pytest.raises(UserError, match="is no language directory"):
        lang_of(model, None)
