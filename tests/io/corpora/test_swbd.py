"""Switchboard and NIST's tests as the consortium ships them: known answers on a corpus with the known oddities, and every error."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import swbd as layout

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io import sphere
from pykaldist.io.audio import read_audio, read_utterances
from pykaldist.io.corpora import hub5, swbd
from pykaldist.io.corpora.counts import compare, count
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.corpora.swbd_lexicon import find_acronyms, read_acronyms, spoken_letters, written_words
from pykaldist.io.corpora.telephone import Segment
from pykaldist.io.datadir import DataDir
from pykaldist.io.dictdir import DictDir

SAID = [(0.0, 0.5, "[silence]"), (0.5, 1.25, "[laughter-story] ab[solute]- [silence] IBM <b_aside> I saw W <e_aside>"),
        (1.25, 1.5, "[noise]"), (1.5, 2.0, "them_1 PCs C I A [vocalized-noise] -[40]1k zebra")]
DICTIONARY = ["story s t ao r iy", "ab[solute]- ae b", "IBM ay b iy eh m", "I ay", "saw s ao", "them_1 eh m", "them dh eh m",
              "PCs p iy s iy z", "-[40]1k w ah n k ey", "us ah s", "US y uw eh s", "{wolmanized} w ow l", "NAACP n aa k", "a ax"]


@pytest.fixture
def tables(root: Path) -> Path:
    return root / "egs/swbd/s5c/local"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """LDC97S62 with what public recipes know: recordings without transcripts, sides without one, segments that cannot be."""
    folder = tmp_path / "ldc/LDC97S62"
    for disc, number in (("swb1_d1", 2001), ("swb1_d1", 2005), ("swb1_d2", 3010), ("swb1_d2", 3011)):
        layout.stereo(folder / disc / f"data/sw0{number}.sph", [layout.noise(2.0, number), layout.noise(2.0, number + 1)])
    layout.rows(folder, 2001, "A", SAID)
    layout.rows(folder, 2001, "B", [(0.0, 2.0, "us"), (1.0, 1.0, "us"), (2.5, 3.0, "saw"), (1.98, 2.1, "saw")])
    layout.rows(folder, 2005, "A", [(0.25, 1.0, "{wolmanized} us")])  # B has no transcript, 3010 and 3011 neither
    layout.rows(folder, 2999, "A", [(0.25, 1.0, "us")])  # nobody has heard this
    layout.dictionary(folder, DICTIONARY)
    return folder


def prepare(tables: Path, corpus: Path, data: Path, **options: str) -> list[str]:
    return list(swbd.prepare(str(corpus), data, data / "fetch", tables / "words.tsv", tables / "letters.txt", **options))


@pytest.mark.parametrize("name", ["words", "stm", "not_scored"])
def test_rules_keep_what_their_examples_say(tables: Path, name: str) -> None:
    Rules(tables / f"{name}.tsv")  # checks them


@pytest.mark.parametrize(("word", "becomes"), [  # as the comments of Kaldi's map_words.pl and ISIP's conventions have them
    ("[LAUGHTER-STORY]", "STORY"), ("-[40]1K", "-1K"), ("-[AN]Y", "-Y"), ("-[A]B[OUT]-", "-B-"), ("{WOLMANIZED}", "WOLMANIZED"),
    ("[YEAM/YEAH]", "YEAM"), ("THEM_1", "THEM"), ("THEM_1's", "THEM's"), ("[IT'N/ISN'T]", "IT'N"), ("[LEM[GUINI]-/LINGUINI]", "LEM-"),
    ("AB[SOLUTE]-", "AB-"), ("EX[SPECIALLY]-/ESPECIALLY]", "EX-"), ("{YUPPIEDOM}", "YUPPIEDOM"), ("AMMU[N]IT-", "AMMU-IT-"),
    ("[laughter]", "[laughter]"), ("[noise]", "[noise]"), ("[vocalized-noise]", "[vocalized-noise]"), ("[silence]", ""),
    ("<b_aside>", ""), ("<E_ASIDE>", ""), ("[laughter-so[mething]-]", "so-"), ("uh-huh", "uh-huh"), ("don't", "don't"),
])
def test_words_of_the_public_examples(tables: Path, word: str, becomes: str) -> None:
    assert Rules(tables / "words.tsv")(word) == becomes


@given(st.from_regex(r"[a-z'-]{1,12}", fullmatch=True))
def test_plain_words_stay(word: str) -> None:
    assert Rules(Path(__file__).parents[3] / "egs/swbd/s5c/local/words.tsv")(word) == word


@pytest.mark.parametrize(("line", "why"), [
    ("a\tb\tc\n", "expected 4 columns"), ("(\tb\tc\td\n", "is no rule"), ("a\t\\2\ta\t\n", "is no rule"),
    ("a\tb\tab\tba\n", "the rules make 'bb', expected 'ba'")])
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / "t.tsv").write_text(line)
    with pytest.raises(UserError, match=why):
        Rules(tmp_path / "t.tsv")


def test_training_set_of_a_corpus_with_oddities(tables: Path, release: Path, tmp_path: Path) -> None:
    said = prepare(tables, release.parent, tmp_path / "data")  # the folder above, too
    data = DataDir(tmp_path / "data/train")
    data.validate()
    assert data.table("text") == {
        "sw02001-A_000050-000125": "story ab- i._b._m. i saw w.", "sw02001-A_000125-000150": "[noise]",
        "sw02001-A_000150-000200": "them p._c.s c. i. a. [vocalized-noise] -1k zebra",
        "sw02001-B_000000-000200": "us", "sw02001-B_000198-000210": "saw", "sw02005-A_000025-000100": "wolmanized us"}
    assert set(data.spk2utt) == {"sw02001-A", "sw02001-B", "sw02005-A"} == set(data.wav_scp)
    assert data.segments["sw02001-A_000050-000125"] == ("sw02001-A", 0.5, 1.25)
    assert data.table("reco2file_and_channel") == {"sw02001-A": "sw02001 A", "sw02001-B": "sw02001 B", "sw02005-A": "sw02005 A"}
    lists = {name: (tmp_path / "data/local/train" / name).read_text().split() for name in (
        "audio_without_transcripts", "transcripts_without_audio", "sides_without_transcripts", "sides_without_audio", "bad_utterances")}
    assert lists == {"audio_without_transcripts": ["sw03010", "sw03011"], "transcripts_without_audio": ["sw02999"],
                     "sides_without_transcripts": ["sw02005-B"], "sides_without_audio": [],
                     "bad_utterances": ["sw02001-B_000100-000100", "sw02001-B_000250-000300"]}
    assert [line for line in said if "audio and" not in line][-2].startswith("6 utterances of 3 speakers (sides) of 2 conversations")
    assert "1 segments of silence left out" in said[-2] and said[-1].endswith("of 19 words in the transcripts 1 are not among them")
    assert sum(line.startswith("left out: ") for line in said) == 4


def test_each_side_is_its_channel(tables: Path, release: Path, tmp_path: Path) -> None:
    prepare(tables, release, tmp_path / "data")
    data = DataDir(tmp_path / "data/train")
    for side, seed in (("A", 2001), ("B", 2002)):
        samples, rate = read_audio(data.wav_scp[f"sw02001-{side}"], pipes=True)
        expected = layout.noise(2.0, seed)
        assert rate == 8000 and np.corrcoef(samples, expected)[0, 1] > 0.99  # mu-law
    assert [len(audio) for _, audio in read_utterances(data, ["sw02001-A_000050-000125"], 8000) if isinstance(audio, np.ndarray)] == [6000]


def test_the_dictionary(tables: Path, release: Path, tmp_path: Path) -> None:
    prepare(tables, release, tmp_path / "data")
    folder = tmp_path / "data/local/dict"
    lexicon = (folder / "lexicon.txt").read_text().splitlines()
    assert {"i._b._m. ay b iy eh m", "them eh m", "them dh eh m", "u._s. y uw eh s", "us ah s", "naacp n aa k", "i ay", "i. ay",
            "w. d ah b ax l y uw", "wolmanized w ow l", "[laughter] lau", "<unk> spn", "a ax", "a. ey"} <= set(lexicon)
    assert [line for line in lexicon if "sil" in line.split()[1:]] == ["!sil sil"] and not any("[silence]" in line for line in lexicon)
    assert (folder / "silence_phones.txt").read_text().split() == ["sil", "spn", "nsn", "lau"]
    assert (folder / "optional_silence.txt").read_text() == "sil\n"
    DictDir.read(folder)
    spelled = read_acronyms(folder / "acronyms.txt")
    assert spelled["i._b._m."] == ["i", "b", "m"] and spelled["p._c.s"] == ["p", "c's"] and spelled["w."] == ["w"]


def test_acronyms_are_words_that_are_spelled() -> None:
    letters = {"C": [("s", "iy")], "D": [("d", "iy")], "I": [("ay",)], "A": [("ey",)]}
    lexicon = {"CD": [("s", "iy", "d", "iy")], "CD's": [("s", "iy", "d", "iy", "z")], "CDs": [("s", "iy", "d", "iy", "s")],
               "AID": [("ey", "d")], "cd": [("s", "iy", "d", "iy")], "CIA": [("s", "iy", "ay", "ey"), ("k", "ay")]}
    found = find_acronyms(lexicon, letters)
    assert {word: written for word, written in found.items() if len(word) > 1} == {
        "CD": "c._d.", "CD's": "c._d.'s", "CDs": "c._d.s", "CIA": "c._i._a."}
    assert spoken_letters("c._d.'s") == spoken_letters("c._d.s") == ["c", "d's"]
    assert written_words(["I", "know", "A", "CD", "I", "I", "AID"], found) == ["i", "know", "a.", "c._d.", "i.", "i.", "aid"]


def replace_header(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content[:1024]
    path.write_bytes(content[:1024].replace(old, new) + content[1024:])


def damage(release: Path) -> Iterator[tuple[str, str]]:
    """Breaks the corpus in one way after the other: yields a name, and the words that the error must have."""
    first = release / "swb1_d1/data/sw02001.sph"
    whole = first.read_bytes()
    first.write_bytes(whole[:-5000])
    yield "truncated", r"1 of 2 recordings cannot be used. The first: .*sw02001.sph is truncated: 32000 bytes"
    first.write_bytes(b"RIFF" + whole[4:])
    yield "no sphere file", r"sw02001.sph is no sphere file: expected NIST_1A"
    first.write_bytes(whole)
    replace_header(first, b"sample_count -i 16000", b"sample_count -i 16x00")
    yield "header", r"sw02001.sph: the sphere header is damaged \(invalid literal"
    first.write_bytes(whole)
    replace_header(first, b"channel_count", b"channel_cnt  ")
    yield "header field", r"sphere header is damaged \('channel_count'\)"
    first.write_bytes(whole)
    replace_header(first, b"sample_rate -i 8000", b"sample_rate -i 9000")
    yield "rate", "expected 8000 Hz, found 9000 Hz; this is another corpus"
    first.write_bytes(whole)
    copy = release / "swb1_d2/data/SW02001.SPH"
    shutil.copy(first, copy)
    yield "two recordings", "two recordings are called sw02001: .*swb1_d1.*swb1_d2"
    copy.unlink()
    tree = release / "transcriptions/swb_ms98_transcriptions"
    side = tree / "20/2001/sw2001A-ms98-a-trans.text"
    text = side.read_text()
    side.write_text(text + "sw2001A-ms98-a-0009 0.500000 1.250000 again\n")
    yield "two utterances", "two utterances are called sw02001-A_000050-000125: side A of sw02001 has two segments of the same times"
    side.write_text(text + "sw2001A-ms98-a-0009 x 1.25 again\n")
    yield "a line", "sw2001A-ms98-a-trans.text: expected a name, two times in seconds and words on each line"
    side.write_text(text)
    shutil.copytree(tree / "20/2001", tree / "99/2001")
    yield "two transcripts", "found another of this side in .*20/2001/sw2001A"
    shutil.rmtree(tree / "99")
    layout.rows(release, 3998, "A", [(0.0, 1.0, "us")])
    yield "a disc", (r"2 of 4 conversations with transcripts have no audio in .*LDC97S62, from sw02999 to sw03998; its folders with sphere "
                     r"files: swb1_d1 \(2\), swb1_d2 \(2\). A disc of LDC97S62 is missing")
    shutil.rmtree(tree / "39")
    (tree / "sw-ms98-dict.text").write_text("# nothing\n")
    yield "no words", "sw-ms98-dict.text has no words"
    (tree / "sw-ms98-dict.text").write_text("word\n")
    yield "no phones", "line 1: expected a word and its phones, found 'word'"
    (tree / "sw-ms98-dict.text").unlink()
    yield "no dictionary", "has no sw-ms98-dict.text.*switchboard_word_alignments.tar.gz with --transcripts"


def test_every_damage_has_its_sentence(tables: Path, release: Path, tmp_path: Path) -> None:
    names = []
    for name, why in damage(release):
        with pytest.raises(UserError, match=why):
            prepare(tables, release, tmp_path / "data")
        names.append(name)
        assert not (tmp_path / "data/train").exists(), name
    assert len(names) == 13


def test_a_side_without_a_channel_is_listed(tables: Path, release: Path, tmp_path: Path) -> None:
    path = release / "swb1_d1/data/sw02001.sph"
    layout.write(path, layout.noise(2.0, 2001), 8000, "NIST", "ULAW")
    said = prepare(tables, release, tmp_path / "data")
    assert (tmp_path / "data/local/train/sides_without_audio").read_text() == "sw02001-B\n"
    assert any("sides without a channel, 1: sw02001-B" in line for line in said)


def test_shortened_audio_needs_a_program(tables: Path, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin")
    replace_header(release / "swb1_d1/data/sw02001.sph", b"sample_coding -s4 ulaw", b"sample_coding -s26 ulaw,embedded-shorten-v2.00")
    with pytest.raises(UserError, match=r"sw02001.sph is compressed with shorten, as 1 of 2 recordings are; .*`lhotse install-sph2pipe`"):
        prepare(tables, release, tmp_path / "data")
    program = tmp_path / ".lhotse/tools/sph2pipe-2.5/sph2pipe"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    prepare(tables, release, tmp_path / "data")
    entries = DataDir(tmp_path / "data/train").wav_scp
    assert entries["sw02001-B"].startswith(f"{program} -f wav -p -c 2 ") and entries["sw02005-A"].startswith(sphere.own_program())


def test_a_wrong_folder_is_named(tables: Path, release: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    layout.lines(other / "readme.txt", ["hello"])
    with pytest.raises(UserError, match=r"other has no sw0\*.sph, .*; found 1: readme.txt. Expected LDC97S62 \(Switchboard-1 release 2\); "
                                        r"give its folder with --swbd, or with --corpus the folder that has LDC97S62/."):
        prepare(tables, other, tmp_path / "data")
    with pytest.raises(UserError, match="nowhere is no folder; expected LDC97S62"):
        prepare(tables, tmp_path / "nowhere", tmp_path / "data")


@pytest.fixture
def tests_of_nist(tmp_path: Path) -> Path:
    """Hub5 2000 and 2001 and RT-03, a conversation of Switchboard and one of something else each, with what recipes mend in them."""
    folder = tmp_path / "ldc"
    speech, reference = folder / "LDC2002S09/hub5e_00", folder / "LDC2002T43/2000_hub5_eng_eval_tr/reference"
    cts, of_2001 = folder / "LDC2007S10/data/audio/eval03/english/cts", folder / "LDC2002S13/hub5e_01"
    for i, path in enumerate((speech / "english/sw_4390.sph", speech / "english/en_4156.sph", of_2001 / "english/sw4653.sph",
                              cts / "fsh_60262.sph")):
        layout.stereo(path, [layout.noise(4.0, i), layout.noise(4.0, i + 50)])
    layout.lines(speech / "english/hub5e_00.pem", [";; comment", "sw_4390 A unknown_speaker 0.50 1.00",
                                                   "sw_4390 A unknown_speaker 1.10 2.00",
                                                   "sw_4390 A unknown_speaker 0.50 1.00", "sw_4390 B unknown_speaker 0.05 0.50",
                                                   "sw_4390 B unknown_speaker 2.0 2.5", "en_4156 A unknown_speaker 1.00 1.50",
                                                   "en_4156 B unknown_speaker 3.00 3.90"])
    layout.lines(reference / "hub5e00.english.000405.stm", [
        *layout.LABELS, "sw_4390 A sw_4390_A 0.50 1.00 <O,sw,M,sw-M>  HI <B_ASIDE> ((UH) YES",
        "sw_4390 A sw_4390_A 1.10 2.00 <O,sw,M,sw-M> YES",
        "sw_4390 B sw_4390_B 0.05 0.50 <O,sw,F,sw-F> IGNORE_TIME_SEGMENT_IN_SCORING", "sw_4390 B sw_4390_B 2.0 2.5 <O,sw,F,sw-F>",
        "en_4156 A en_4156_A 1.00 1.50 <O,en,F,en-F> NO", "en_4156 B en_4156_B 3.00 3.90 <O,en,F,en-F> YES"])
    layout.lines(reference / "en20000405_hub5.glm", layout.RULES)
    layout.lines(of_2001 / "doc/pems/hub5e_01.pem", ["sw4653 A: unknown_speaker 1.278009 2.555553"])
    layout.lines(of_2001 / "data/transcr/hub5e01.english.20010402.stm", ["sw4653 A sw4653_A 1.278009 2.56 <O,M,P0,P0-M> YEAH"])
    layout.lines(folder / "LDC2007S10/data/references/eval03/english/cts/fsh_60262.stm", [
        "fsh_60262 1 inter_segment_gap 0.00 1.00 <o,,unknown>", "fsh_60262 1 fsh_60262_1 1.00 2.00 <o,f0,male> HELLO",
        "fsh_60262 2 fsh_60262_2 2.00 3.00 <o,f0,male> BYE"])
    layout.lines(folder / "LDC2007S10/data/trans_rules/en20030506.glm", layout.RULES)
    return folder


def test_hub5_2000(tables: Path, tests_of_nist: Path, tmp_path: Path) -> None:
    said = list(hub5.prepare("eval2000", str(tests_of_nist), {}, tmp_path / "data", tables / "stm.tsv"))
    data = DataDir(tmp_path / "data/eval2000")
    data.validate()
    assert data.table("text") == {"sw_4390-A_000050-000100": "hi (uh) yes", "sw_4390-A_000110-000200": "yes",
                                  "en_4156-A_000100-000150": "no", "en_4156-B_000300-000390": "yes"}
    assert data.segments["sw_4390-A_000050-000100"] == ("sw_4390-A", 0.4, 1.05)  # 0.1 s more, or half of the gap of 0.1 s
    assert data.segments["sw_4390-A_000110-000200"] == ("sw_4390-A", 1.05, 2.1)
    stm = (data.path / "stm").read_text().splitlines()
    assert stm[: len(layout.LABELS)] == layout.LABELS
    assert stm[len(layout.LABELS)] == "sw_4390 A sw_4390_A 0.50 1.00 <O,sw,M,sw-M> HI (UH) YES"
    assert len(stm) == len(layout.LABELS) + 6  # NIST's scoring has to know what it must not score
    assert (data.path / "glm").read_text().splitlines() == layout.RULES
    assert said == ["left out: eval2000: segments without words, 1: sw_4390-B_000200-000250 "
                    f"(all in {tmp_path}/data/local/eval2000/segments_without_words)",
                    f"4 utterances of 3 speakers (sides) of 2 conversations, 0.0 h, in {data.path}"]


def test_hub5_2001_and_rt03(tables: Path, tests_of_nist: Path, tmp_path: Path) -> None:
    for name in ("eval2001", "rt03"):
        list(hub5.prepare(name, str(tests_of_nist), {}, tmp_path / "data", tables / "stm.tsv"))
        DataDir(tmp_path / "data" / name).validate()
    assert DataDir(tmp_path / "data/eval2001").table("text") == {"sw4653-A_000128-000256": "yeah"}
    assert (tmp_path / "data/eval2001/glm").read_text().splitlines() == layout.RULES  # of 2000
    rt03 = DataDir(tmp_path / "data/rt03")
    assert rt03.table("text") == {"fsh_60262-A_000100-000200": "hello", "fsh_60262-B_000200-000300": "bye"}
    assert rt03.segments["fsh_60262-A_000100-000200"] == ("fsh_60262-A", 1.0, 2.0)
    assert (rt03.path / "stm").read_text().splitlines()[0] == "fsh_60262 A fsh_60262_1 1.00 2.00 <o,f0,male> HELLO"


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 300)), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_widened_segments_do_not_meet(spans: list[tuple[int, int]], padding: float) -> None:
    segments = [Segment("sw_1", "A", begin / 100, (begin + length) / 100) for begin, length in spans]
    times = hub5.widened(segments, padding)
    for one in segments:
        begin, end = times[one.utterance]
        assert max(one.start - padding, 0.0) - 1e-9 <= begin <= one.start and one.end <= end <= one.end + padding + 1e-9
    ordered = sorted({one.utterance: one for one in segments}.values(), key=lambda one: one.start)
    for before, after in itertools.pairwise(ordered):
        if before.end <= after.start and all(one.end <= after.start or one.start >= after.start for one in ordered):
            assert times[before.utterance][1] <= times[after.utterance][0] + 1e-9


@pytest.mark.parametrize(("name", "taken", "why"), [
    ("eval2000", "LDC2002S09/hub5e_00/english/hub5e_00.pem",
     r"has no hub5e_00.pem, .*Expected LDC2002S09 \(2000 HUB5 English Evaluation Speech\)"),
    ("eval2000", "LDC2002T43/2000_hub5_eng_eval_tr", r"has no hub5e00.english.000405.stm.*Expected LDC2002T43 .*--eval2000-transcripts"),
    ("eval2000", "LDC2002S09/hub5e_00/english/en_4156.sph", "has no audio of 1: en_4156, which .*a part of LDC2002S09 is missing"),
    ("eval2001", "LDC2002S13/hub5e_01/doc", r"has no hub5e_01.pem.*Expected LDC2002S13"),
    ("rt03", "LDC2007S10/data/audio", r"has no audio/eval03/english/cts.*Expected LDC2007S10"),
    ("rt03", "LDC2007S10", r"ldc has no folder LDC2007S10; found 4: LDC2002S09/, LDC2002S13/, LDC2002T43/, ...\. Expected LDC2007S10"),
])
def test_what_a_test_set_lacks_is_named(tables: Path, tests_of_nist: Path, tmp_path: Path, name: str, taken: str, why: str) -> None:
    path = tests_of_nist / taken
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if taken == "LDC2007S10":
        (tests_of_nist / "LDC97S62").mkdir()
    with pytest.raises(UserError, match=why):
        list(hub5.prepare(name, str(tests_of_nist), {}, tmp_path / "data", tables / "stm.tsv"))


def test_references_of_another_release_are_refused(tables: Path, tests_of_nist: Path, tmp_path: Path) -> None:
    stm = next(tests_of_nist.rglob("hub5e00*.stm"))
    stm.write_text(stm.read_text().replace(" 1.10 2.00", " 1.20 2.00"))
    with pytest.raises(UserError, match=r"has 4 of the 5 segments that .* has; they are of different releases"):
        list(hub5.prepare("eval2000", str(tests_of_nist), {}, tmp_path / "data", tables / "stm.tsv"))
    stm.write_text("sw_4390 C x 1 2 <o> YES\n")
    with pytest.raises(UserError, match=r"line 1: expected file, side, speaker, begin, end, <labels> and words"):
        list(hub5.prepare("eval2000", str(tests_of_nist), {}, tmp_path / "data", tables / "stm.tsv"))
    next(tests_of_nist.rglob("hub5e_00.pem")).write_text("sw_4390 A 1.0\n")
    with pytest.raises(UserError, match=r"hub5e_00.pem, line 1: expected file, side, speaker, begin and end"):
        hub5.read_pem(next(tests_of_nist.rglob("hub5e_00.pem")))


def test_the_verb_prepares_all_that_is_asked_for(tables: Path, release: Path, tests_of_nist: Path, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert release.parent == tests_of_nist
    arguments = ["prepare-swbd", "--tables", str(tables), str(tests_of_nist), str(tmp_path / "data")]
    assert main([*arguments, "--sets", "train eval2000 eval2001 rt03"]) == 0
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["eval2000", "eval2001", "local", "rt03", "train"]
    assert main([*arguments, "--sets", "train eval1997"]) == 1
    assert "expected some of train, train_swbd, train_fisher, eval2000, eval2001, rt03" in capsys.readouterr().err


def test_counts_beside_those_of_public_recipes(tables: Path, release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tables, release, tmp_path / "data")
    train = tmp_path / "data/train"
    assert [count(train, what) for what in ("utterances", "speakers", "recordings", "conversations")] == [6, 3, 3, 2]
    assert count(train, "hours") == pytest.approx((0.75 + 0.25 + 0.5 + 2.0 + 0.12 + 0.75) / 3600)
    known = {(one.folder, one.what): one for one in compare(tables / "counts.tsv", tmp_path / "data")}
    assert known["train", "utterances"].differs and known["eval2000", "recordings"].found is None
    assert all(one.source and one.tolerance < 0.06 * one.expected + 1 for one in known.values())
    expected = tmp_path / "counts.tsv"
    expected.write_text("train\tutterances\t7\t1\there\ntrain\tspeakers\t4870\t6\tthere\ntest\tspeakers\t1\t0\tthere\n")
    assert main(["check-counts", str(expected), str(tmp_path / "data")]) == 1
    out, err = capsys.readouterr()
    assert "| train | utterances | 7 (+- 1) | 6 | agrees | here |" in out and "| test | speakers | 1 (+- 0) | not there |  | there |" in out
    assert "1 of 3 counts are not those of" in err and "speakers of" in err and "expected 4,870, found 3" in err
    expected.write_text("train\tutterances\t6\t0\there\n")
    assert main(["check-counts", str(expected), str(tmp_path / "data")]) == 0
    for line, why in (("train\twords\tx\t0\t-\n", "No such file|expected two numbers"), ("train\tcows\t1\t0\t-\n", "found cows")):
        expected.write_text(line)
        with pytest.raises((UserError, FileNotFoundError), match=why):
            compare(expected, tmp_path / "data")
