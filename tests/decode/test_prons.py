"""Pronunciations of aligned speech: every frame once, and the counts of a slow reference; on Kaldi's alignments of AN4."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.ctm import WordTimer
from pykaldist.decode.prons import aligned_paths, count_pairs, model_of, read_prons, write_counts, write_prons, write_train_ctm
from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir


@pytest.fixture(scope="module")
def ali(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prons")
    for name in ("ali.1.gz", "ali.2.gz", "final.mdl", "num_jobs"):
        shutil.copyfile(golden / "an4_kaldi/tri3_ali" / name, folder / name)
    data, lang = DataDir(golden / "an4_kaldi/data/train"), LangDir(golden / "an4_kaldi/lang")
    assert [write_prons(data, lang, folder, job) for job in (1, 2)] == [475, 473]
    return folder


def test_words_and_silences_cover_every_frame_with_pronunciations_of_the_lexicon(golden: Path, ali: Path) -> None:
    data, lang, model = DataDir(golden / "an4_kaldi/data/train"), LangDir(golden / "an4_kaldi/lang"), model_of(ali)
    timer, known = WordTimer(lang, model), {(word, *phones) for word, phones in lang.align_lexicon}
    for utt, words, tids in aligned_paths(ali / "ali.1.gz", data, lang, model):
        parts = timer.spoken(words, tids)
        assert [part.word for part in parts if part.word] == lang.word_ids(data.text[utt])[0]
        assert parts[0].start == 0 and all(a.start + a.frames == b.start for a, b in pairwise(parts))
        assert parts[-1].start + parts[-1].frames == len(tids) and {(part.word, *part.phones) for part in parts} <= known


def test_counts_are_those_of_the_transcripts(golden: Path, ali: Path) -> None:
    lang = LangDir(golden / "an4_kaldi/lang")
    text = DataDir(golden / "an4_kaldi/data/train").text
    made = write_counts(lang, ali)
    assert made == {"utterances": 948, "words": sum(map(len, text.values())), "pronunciations": 110}
    rows = [line.split() for line in (ali / "pron_counts_nowb.txt").read_text().splitlines()]
    words = Counter[str]()
    for count, word, *_ in rows:
        words[word] += int(count)
    del words["<eps>"]
    assert words == Counter(word for sentence in text.values() for word in sentence)
    assert [int(row[0]) for row in rows] == sorted((int(row[0]) for row in rows), reverse=True)
    quiet = [line.split() for line in (ali / "sil_counts_nowb.txt").read_text().splitlines()]
    around = {" ".join(row[4:]): [int(x) for x in row[:4]] for row in quiet}
    for count, *entry in rows:
        if entry[0] != "<eps>":
            before, none, behind, loud = around[" ".join(entry)]
            assert before + none == behind + loud == int(count)
    assert around["<s>"][2] + around["<s>"][3] == around["</s>"][0] + around["</s>"][1] == 948
    bigrams = [line.split("\t") for line in (ali / "pron_bigram_counts_nowb.txt").read_text().splitlines()]
    assert sum(int(count) for count, _, _ in bigrams) == made["words"] + 948


def test_pairs_by_hand() -> None:
    pairs, around = Counter[tuple[str, str]](), {part: [0, 0, 0, 0] for part in ("<s>", "</s>", "a A", "b B")}
    count_pairs(["<eps> SIL", "a A", "b B", "<eps> SIL", "a A"], pairs, around)
    assert pairs == {("<s>", "a A"): 1, ("a A", "b B"): 1, ("b B", "a A"): 1, ("a A", "</s>"): 1}
    assert around == {"<s>": [0, 0, 1, 0], "a A": [2, 0, 0, 2], "b B": [0, 1, 1, 0], "</s>": [0, 1, 0, 0]}


def test_best_paths_of_lattices(golden: Path, tmp_path: Path) -> None:
    kaldi, lang = golden / "an4_kaldi", LangDir(golden / "an4_kaldi/lang")
    shutil.copyfile(kaldi / "tri3_ali/final.mdl", tmp_path / "final.mdl")
    (tmp_path / "decode").mkdir()
    shutil.copyfile(kaldi / "decode_dnn/lat.gz", tmp_path / "decode/lat.1.gz")
    write_prons(DataDir(kaldi / "data/test"), lang, tmp_path / "decode", 1, lmwt=10)
    assert main(["lattice-best-path", "--lm-scale=10", f"ark:{tmp_path}/decode/lat.1.gz", f"ark,t:{tmp_path}/words"]) == 0
    found = {utt: [part[0] for part in parts if part[0]] for utt, parts in read_prons(tmp_path / "decode")}
    assert found == {line.split()[0]: [int(x) for x in line.split()[1:]] for line in (tmp_path / "words").read_text().splitlines()}


def test_ctm_of_the_transcripts(golden: Path, ali: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "an4_kaldi/data/train", tmp_path / "data")
    data, lang = DataDir(tmp_path / "data"), LangDir(golden / "an4_kaldi/lang")
    count = write_train_ctm(data, lang, ali, tmp_path)
    plain = [line.split() for line in (tmp_path / "ctm").read_text().splitlines()]
    assert len(plain) == count == sum(map(len, data.text.values())) and {row[1] for row in plain} == {"1"}
    (tmp_path / "data/segments").write_text("".join(f"{utt} reco 100.0 200.0\n" for utt in data.utterances()))
    (tmp_path / "data/reco2file_and_channel").write_text("reco file A\n")
    write_train_ctm(DataDir(tmp_path / "data"), lang, ali, tmp_path, print_silence=True)
    rows = [line.split() for line in (tmp_path / "ctm").read_text().splitlines()]
    assert {tuple(row[:2]) for row in rows} == {("file", "A")} and len(rows) == count + sum(row[4] == "<eps>" for row in rows)
    words = [row for row in rows if row[4] != "<eps>"]
    assert [float(row[2]) - 100 for row in words] == pytest.approx([float(row[2]) for row in plain])
    prons = {}
    for path in (ali / "prons.1.gz", ali / "prons.2.gz"):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            utt, start, frames, word, *_ = line.split()
            prons.setdefault(utt, []).append((0.01 * int(start), 0.01 * int(frames), lang.words.symbol(int(word))))
    first = prons[data.utterances()[0]]
    assert np.allclose([(float(row[2]) - 100, float(row[3])) for row in rows[:len(first)]], [part[:2] for part in first])


def test_what_does_not_fit_is_said(golden: Path, ali: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kaldi, lang = golden / "an4_kaldi", LangDir(golden / "an4_kaldi/lang")
    with pytest.raises(UserError, match="no utterance of the data directory"):
        write_prons(DataDir(kaldi / "data/test"), lang, ali, 1)
    shutil.copytree(kaldi / "data/train", tmp_path / "data")
    lines = (tmp_path / "data/text").read_text().splitlines()
    (tmp_path / "data/text").write_text("\n".join([f"{lines[0]} YES", *lines[1:]]) + "\n")
    shutil.copytree(ali, tmp_path / "ali")
    assert write_prons(DataDir(tmp_path / "data"), lang, tmp_path / "ali", 1) == 474
    assert f"1 of 475 utterances are left out ({lines[0].split()[0]})" in capsys.readouterr().out
    (tmp_path / "ali/final.mdl").unlink()
    with pytest.raises(UserError, match=r"no final\.mdl"):
        write_prons(DataDir(tmp_path / "data"), lang, tmp_path / "ali", 1)


def test_kaldis_script_counts_the_same(kaldi_egs: Path, golden: Path, ali: Path, tmp_path: Path) -> None:
    """Kaldi's steps/get_prons.sh from its second stage on, which needs no program of Kaldi's."""
    shutil.copytree(ali, tmp_path / "ali")
    shutil.copytree(golden / "an4_kaldi/data/train", tmp_path / "data")
    lang = golden / "an4_kaldi/lang"
    write_counts(LangDir(lang), ali)
    for name in ("steps", "utils"):
        (tmp_path / name).symlink_to(kaldi_egs / "wsj/s5" / name)
    (tmp_path / "path.sh").write_text("export PATH=$PWD/utils:$PATH LC_ALL=C\n")
    subprocess.run(["steps/get_prons.sh", "--stage", "2", "data", lang, "ali"], cwd=tmp_path, check=True, capture_output=True)
    for name in ("pron_counts.int", "pron_counts.txt", "pron_counts_nowb.txt", "pron_bigram_counts_nowb.txt", "sil_counts_nowb.txt",
                 "pron_perutt_nowb.txt"):
        ours, theirs = (sorted(" ".join(line.split()) for line in (folder / name).read_text().splitlines())
                        for folder in (ali, tmp_path / "ali"))
        assert ours == theirs, name
