"""A corpus of one's own: its audio is found, what is wrong is said, the sets are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import read_utterances
from pykaldist.io.corpora.table.prepare import Corpus, TableOptions, plan, write
from pykaldist.io.datadir import DataDir

NAMES = [f"{speaker}/{speaker}{i}.wav" for speaker in ("anna", "ben", "cleo", "dan", "eve") for i in range(2)]


def table(tmp_path: Path, lines: list[str], header: str = "file,text") -> str:
    path = tmp_path / "table.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(path)


def planned(tmp_path: Path, audio: Path, lines: list[str], header: str = "file,text", graphemes: bool = True, **options: str) -> Corpus:
    return plan(str(audio), table(tmp_path, lines, header), graphemes, TableOptions(**options))


def speakers(corpus: Corpus) -> dict[str, set[str]]:
    return {part: {corpus.speakers[utterance.name] for utterance in utterances} for part, utterances in corpus.sets.items()}


def test_data_directories_are_written(make_audio, tmp_path):
    corpus = planned(tmp_path, make_audio(*NAMES), [f"{name},Word {i}" for i, name in enumerate(NAMES)], shares="60 20 20")
    assert list(write(corpus, tmp_path / "data")) == []
    found: dict[str, str] = {}
    for part in ("train", "dev", "test"):
        data = DataDir(tmp_path / "data" / part)
        data.validate()
        assert not data.has("segments")
        assert set(data.utt2spk.values()) == speakers(corpus)[part]
        found |= {utt: " ".join(words) for utt, words in data.text.items()}
        assert all(not isinstance(samples, Exception) for _, samples in read_utterances(data, data.utterances(), 8000))
    assert found == {f"{name.split('/')[0]}-{Path(name).stem}": f"word {i}" for i, name in enumerate(NAMES)}
    assert sorted(map(len, speakers(corpus).values())) == [1, 1, 3] and len(set.union(*speakers(corpus).values())) == 5
    assert "speakers are the folders, such as anna, ben, cleo (else give --speakers recording)" in corpus.said
    assert (tmp_path / "data/local/left_out.txt").read_text() == ""
    assert corpus.rate == 8000 and corpus.hours("train") == pytest.approx(6 * 0.5 / 3600)


@pytest.mark.parametrize("given", ["{path}", "anna0", "anna/anna0", "anna0.flac", "/elsewhere/corpus/anna/anna0.mp3", "{absolute}",
                                   "audio/anna/anna0.wav", "corpus\\anna\\anna0.wav"])
def test_audio_is_found_by_the_names_that_tables_have(make_audio, tmp_path, given):
    """By its path below the folder or beside the table, or by its file name, with another suffix or none."""
    audio = make_audio(*NAMES)
    name = given.format(path=NAMES[0], absolute=audio / NAMES[0])
    corpus = planned(tmp_path, audio, [f"{name},one", *(f"{other},x" for other in NAMES[1:])])
    assert not corpus.left_out and ["one"] in corpus.words.values()


def test_a_file_of_another_folder_is_not_taken_for_one_that_is_missing(make_audio, tmp_path):
    names = [f"{speaker}/{i}.wav" for speaker in ("anna", "ben", "cleo", "dan") for i in range(2)]
    corpus = planned(tmp_path, make_audio(*names[2:]), [f"{name},w" for name in names])
    assert [one.split(" ")[0] for one in corpus.left_out["transcripts without audio"]] == names[:2]


def test_what_is_left_out_is_counted_and_listed(make_audio, tmp_path):
    audio = make_audio(*NAMES, "more/extra.wav")
    (audio / "anna/anna0.wav").write_bytes(b"no audio")
    lines = [f"{name},word" for name in NAMES[:8]] + [f"{NAMES[8]},", f"{NAMES[9]},...", "gone.wav,word"]
    corpus = planned(tmp_path, audio, lines, speakers="recording")
    reasons = {"transcripts without audio": "gone.wav", "audio files without a transcript": str(audio / "more/extra.wav"),
               "empty transcripts": NAMES[8], "transcripts without a word": NAMES[9], "audio files that cannot be read": "anna0.wav"}
    assert corpus.left_out.keys() == reasons.keys()
    for reason, name in reasons.items():
        one, = corpus.left_out[reason]
        assert name in one
        assert any(line.startswith(f"left out, {reason}: 1, such as ") and name in line for line in corpus.said)
    list(write(corpus, tmp_path / "data"))
    listed = (tmp_path / "data/local/left_out.txt").read_text().splitlines()
    assert len(listed) == 5 and f"empty transcripts: {NAMES[8]} ({tmp_path}/table.csv, line 10)" in listed
    assert sum(map(len, corpus.sets.values())) == 7


@pytest.mark.parametrize(("header", "extra", "options", "said"), [
    ("file,text,speaker", ",{who}", {}, "speakers are those of the table"),
    ("file,text,reader", ",{who}", {"columns": "speaker=reader", "speakers": "column"}, "speakers are those of the table"),
    ("file,text", "", {"speakers": "recording"}, "each recording counts as a speaker of its own, as --speakers says"),
])
def test_where_speakers_are_told(make_audio, tmp_path, header, extra, options, said):
    who = {name: f"{Path(name).stem[0]} x" for name in NAMES}  # not what the folders say
    corpus = planned(tmp_path, make_audio(*NAMES), [f"{name},w" + extra.format(who=who[name]) for name in NAMES], header, **options)
    expected = {f"{one[0]}_x" for one in who.values()} if extra else {Path(name).stem for name in NAMES}
    assert set(corpus.speakers.values()) == expected and said in corpus.said
    parts = list(speakers(corpus).values())
    assert sum(map(len, parts)) == len(expected)  # disjoint


def test_rows_without_a_speaker_have_their_own(make_audio, tmp_path):
    corpus = planned(tmp_path, make_audio(*NAMES), [f"{name},w,{'' if i == 3 else 'abc'[i % 3]}" for i, name in enumerate(NAMES)],
                     "file,text,speaker")
    assert set(corpus.speakers.values()) == {"a", "b", "c", "ben1"}
    assert "speakers are those of the table; each recording of 1 rows without one has its own" in corpus.said


def test_two_speakers_are_divided_by_recordings_and_that_is_said(make_audio, tmp_path):
    corpus = planned(tmp_path, make_audio(*NAMES[:4]), [f"{name},w" for name in NAMES[:4]])
    assert "there are fewer than three speakers: the sets are divided by recordings, and share speakers" in corpus.said
    assert [len(corpus.sets[part]) for part in ("train", "dev", "test")] == [2, 1, 1]


def test_parts_of_recordings(make_audio, tmp_path):
    """A part of a recording gets a segment; a part that is all of it none, where no other is one."""
    audio = make_audio("a.wav", seconds=3.0)
    lines = ["a,one,0,1", "a,two,1,2", "a,three,2,3", "a,four,5,6"]
    corpus = planned(tmp_path, audio, lines, "file,text,start,end")
    assert corpus.left_out == {"parts that begin behind the end of their audio": [f"a ({tmp_path}/table.csv, line 5)"]}
    list(write(corpus, tmp_path / "data"))
    segments = {utt: segment for part in ("train", "dev", "test") for utt, segment in DataDir(tmp_path / "data" / part).segments.items()}
    assert segments == {"a-0000000-0001000": ("a", 0.0, 1.0), "a-0001000-0002000": ("a", 1.0, 2.0), "a-0002000-0003000": ("a", 2.0, 3.0)}
    for part in ("train", "dev", "test"):
        data = DataDir(tmp_path / "data" / part)
        data.validate()
        assert [len(samples) for _, samples in read_utterances(data, data.utterances(), 8000)] == [8000]


def test_audio_of_other_rates_and_channels_is_converted(make_audio, tmp_path):
    """Most of the speech has 44.1 kHz: the features' rate is 16 kHz, and a tone stays where it is."""
    audio = make_audio("a.wav", "b.flac", seconds=1.0, rate=44100)
    make_audio("c.wav", seconds=0.25, rate=16000)
    tone = np.sin(2 * np.pi * 1000 * np.arange(44100) / 44100)
    soundfile.write(audio / "a.wav", np.stack([0.5 * tone, 0.25 * tone], 1), 44100)
    corpus = planned(tmp_path, audio, [f"{name},w" for name in "abc"])
    said, = write(corpus, tmp_path / "data")
    assert corpus.rate == 16000 and said.startswith("2 recordings are converted to one channel at 16000 Hz")
    paths = {utt: path for part in ("train", "dev", "test") for utt, path in DataDir(tmp_path / "data" / part).wav_scp.items()}
    assert paths["c"] == str(audio / "c.wav")
    samples, rate = soundfile.read(paths["a"])
    assert (rate, samples.shape) == (16000, (16000,))
    spectrum = np.abs(np.fft.rfft(samples)) / 8000  # bins of 1 Hz
    assert spectrum.argmax() == 1000 and spectrum[1000] == pytest.approx(0.375, rel=0.01)


def test_letters_are_words_where_the_script_has_no_blanks(make_audio, tmp_path):
    lines = [f"{name},你好吗" for name in NAMES]
    corpus = planned(tmp_path, make_audio(*NAMES), lines)
    assert set(map(tuple, corpus.words.values())) == {("你", "好", "吗")}
    assert any("each letter counts as a word" in line for line in corpus.said)
    assert set(map(tuple, planned(tmp_path, make_audio(), lines, graphemes=False).words.values())) == {("你好吗",)}  # the lexicon's words


def test_texts_that_train_and_test_share_are_said(make_audio, tmp_path):
    corpus = planned(tmp_path, make_audio(*NAMES), [f"{name},same" for name in NAMES])
    assert any(line.startswith("100 % of the test transcripts are those of training") for line in corpus.said)
    corpus = planned(tmp_path, make_audio(), [f"{name},w{i}" for i, name in enumerate(NAMES)])
    assert not any("of the test transcripts" in line for line in corpus.said)


@pytest.mark.parametrize(("audio", "lines", "options", "message"), [
    (NAMES, ["a,b"] * 3, {}, r"none of the 3 rows of .*table.csv has audio below .*: looked for 'a', found 'anna/anna0' and 9 more; give"),
    (NAMES, [f"{NAMES[0]},w", f"{NAMES[1]},w", f"{NAMES[0]},w"], {}, r"rows that the table has twice: 1, such as anna0 \(.*line 2, "
     r"and line 4\); keep one"),
    (["b/a.wav", "c/a.wav"], ["a.wav,w"], {}, r"'a.wav' of .* may be b/a or c/a below .*; give the table paths"),
    (NAMES[:2], [f"{name},w" for name in NAMES[:2]], {}, "have 2 utterances with audio and words, too few for three sets"),
    (["a.wav", "b.wav", "c.wav"], ["a,w", "b,w", "c,w"], {"speakers": "folder"}, "--speakers folder: the audio below .* does not lie in a"),
    (NAMES, [f"{name},w" for name in NAMES], {"speakers": "column"}, "--speakers column: the table has no column of speakers"),
])
def test_what_cannot_be_a_corpus_is_refused(make_audio, tmp_path, audio, lines, options, message):
    with pytest.raises(UserError, match=message):
        planned(tmp_path, make_audio(*audio), lines, **options)


def test_wrong_folders_and_files(make_audio, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/readme.txt").write_text("")
    for folder, message in (("nowhere", "nowhere is no folder"), ("empty", r"looked for \*.wav, .*, it is empty"),
                            ("docs", r"looked for \*.wav, .*, found readme.txt; give --audio")):
        with pytest.raises(UserError, match=message):
            planned(tmp_path, tmp_path / folder, ["a,b"])
    with pytest.raises(UserError, match=r"--transcripts .*none.csv does not exist"):
        plan(str(make_audio("a.wav")), str(tmp_path / "none.csv"), True, TableOptions())


def test_equal_file_names_in_folders_of_speakers(make_audio, tmp_path):
    names = [f"{speaker}/{i}.wav" for speaker in ("anna", "ben", "cleo") for i in range(2)]
    corpus = planned(tmp_path, make_audio(*names), [f"{name},w" for name in names])
    assert set(corpus.words) == {name.replace("/", "-")[:-4] for name in names}  # which begin with the speaker already
