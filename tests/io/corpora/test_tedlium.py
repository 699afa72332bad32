"""TED-LIUM release 3: known answers, the rules of its transcripts, what is left out, and every error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layouts.speech import arpa, lines, write

from pykaldist.errors import UserError
from pykaldist.io.corpora import tedlium
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.datadir import DataDir

STM = ["Ann_2010 1 Ann_2010 0.05 1.00 <o,f0,female> they 're <sil> here(2) {NOISE} (Ann_2010-0.05-1.00-F0_F-S1)",
       "Ann_2010 1 inter_segment_gap 1.00 1.20 <o,,unknown> ignore_time_segment_in_scoring",
       "Ann_2010 1 Ann_2010 1.20 1.95 <o,f0,female> so what (Ann_2010-1.20-1.95-F0_F-S1)"]
DICTIONARY = ["<s> SIL", "</s> SIL", "<unk> SIL", "here HH IH R", "here(2) HH IY R", "so S OW", "they're DH EH R", "um(2) SIL"]


@pytest.fixture
def rules(root: Path) -> Path:
    return root / "egs/tedlium/s5_r3/local/words.tsv"


def talk(folder: Path, part: str, name: str, stm: list[str], rate: int = 16000) -> None:
    samples = np.random.default_rng(0).integers(-999, 999, 2 * rate).astype(np.int16)
    write(folder / f"legacy/{part}/sph/{name}.sph", samples, rate, "NIST")
    lines(folder / f"legacy/{part}/stm/{name}.stm", [line.replace("Ann_2010", name) for line in stm])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpora/TEDLIUM_release-3"
    for part, name in (("train", "Ann_2010"), ("train", "Bob_2011"), ("dev", "Cat_2012"), ("test", "Dan_2013")):
        talk(folder, part, name, STM)
    lines(folder / tedlium.DICTIONARY, DICTIONARY)
    for name in ("small", "big"):
        arpa(tmp_path / f"corpora/lm/4gram_{name}.arpa.gz", [["so", "here"]], ["so", "here"], 2)
    return tmp_path / "corpora"


def prepare(corpus: Path, rules: Path) -> tuple[Path, list[str]]:
    data = corpus.parent / "data"
    return data, list(tedlium.prepare(str(corpus), data, corpus.parent / "fetch", rules))


def test_known_answers(corpus: Path, rules: Path) -> None:
    data, said = prepare(corpus, rules)
    train, dev = DataDir(data / "train"), DataDir(data / "dev")
    assert {utt: " ".join(words) for utt, words in dev.text.items()} == {
        "Cat_2012-0000005-0000100": "they're here [NOISE]", "Cat_2012-0000120-0000195": "so what"}
    assert dev.segments["Cat_2012-0000120-0000195"] == ("Cat_2012", 1.2, 1.95)  # tests are as they were cut
    assert train.segments["Ann_2010-0000005-0000100"] == ("Ann_2010", 0.0, 1.1)  # no further than the talk
    assert train.segments["Bob_2011-0000120-0000195"] == ("Bob_2011", 1.05, 2.0)
    assert set(train.spk2utt) == {"Ann_2010", "Bob_2011"} and train.table("reco2file_and_channel")["Ann_2010"] == "Ann_2010 A"
    words = (data / "local/dict/lexicon.txt").read_text().splitlines()
    assert words == ["!SIL SIL", "<unk> NSN", "[NOISE] NSN", "here HH IH R", "here HH IY R", "so S OW", "they're DH EH R"]
    assert (data / "local/lm_small.arpa.gz").is_file() and (data / "local/lm_big.arpa.gz").is_file()
    assert said[0].startswith("4 utterances of 2 talks")


def test_rules_keep_what_their_examples_say(rules: Path) -> None:
    assert Rules(rules)("it 's a(2) {COUGH} man") == "it's a [NOISE] man"


def test_talks_without_transcripts_and_the_reverse_are_listed(corpus: Path, rules: Path) -> None:
    release = corpus / "TEDLIUM_release-3"
    (release / "legacy/train/stm/Ann_2010.stm").unlink()
    (release / "legacy/test/stm/Eve_2014.stm").write_text(STM[0].replace("Ann_2010", "Eve_2014") + "\n")
    talk(release, "dev", "Cat_2012", [*STM[:2], "Ann_2010 1 Ann_2010 1.2 1.9 <o,f0,male> <sil>"])
    data, said = prepare(corpus, rules)
    assert (data / "local/train/audio_without_transcripts").read_text() == "Ann_2010\n"
    assert (data / "local/test/transcripts_without_audio").read_text() == "Eve_2014\n"
    assert (data / "local/dev/without_words").read_text() == "Cat_2012-0000120-0000190\n"
    assert any("test: transcripts of talks that are not there, 1: Eve_2014" in line for line in said)
    assert list(DataDir(data / "train").spk2utt) == ["Bob_2011"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda release: shutil.rmtree(release / "legacy"), "has no legacy, which was looked for in it and below; found .*Expected OpenSLR 51"),
    (lambda release: (release / tedlium.DICTIONARY).unlink(), "has no TEDLIUM.152k.dic, which was looked for"),
    (lambda release: [talk(release, "train", f"T{i}", STM) or (release / f"legacy/train/sph/T{i}.sph").unlink() for i in range(3)],
     r"3 of 5 talks with transcripts have no audio in .*, from T0 to T2; its folders with sphere files: sph \(2\). A disc of OpenSLR 51"),
    (lambda release: (release / "legacy/dev/sph/Cat_2012.sph").write_bytes(b"NIST_1A\n   1024\nend_head\n" + bytes(999)),
     "1 of 1 recordings cannot be used. The first: .*the sphere header is damaged"),
    (lambda release: talk(release, "dev", "Cat_2012", STM, 8000), "expected 16000 Hz, found 8000 Hz; this is another corpus"),
    (lambda release: talk(release, "dev", "Cat_2012", [STM[0], STM[0]]), "two utterances are called Cat_2012-0000005-0000100"),
    (lambda release: talk(release, "dev", "Cat_2012", ["Cat_2012 1"]), "lhotse cannot read .*legacy/dev"),
])
def test_errors_say_what_is_wanted(corpus: Path, rules: Path, change: Callable[[Path], object], message: str) -> None:
    change(corpus / "TEDLIUM_release-3")
    with pytest.raises(UserError, match=message):
        prepare(corpus, rules)
