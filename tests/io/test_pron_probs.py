"""Probabilities of pronunciations and silence: worked examples, invariants, Kaldi's own script."""

from __future__ import annotations

import random
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.dictdir import DictDir
from pykaldist.io.pron_probs import Entry, add_pron_probs, pron_probs, silence_probs

ROOT = Path(__file__).resolve().parents[2]
LEXICON = "<UNK> SPN\na A\na B A\nb B\n"


def dict_dir(path: Path, lexicon: str = LEXICON) -> Path:
    path.mkdir()
    for name, text in (("silence_phones", "SIL\nSPN\n"), ("nonsilence_phones", "A\nB\n"), ("optional_silence", "SIL\n"),
                       ("lexicon", lexicon)):
        (path / f"{name}.txt").write_text(text)
    return path


@given(st.dictionaries(st.tuples(st.sampled_from("uvw"), st.text("AB", min_size=1, max_size=2)), st.integers(0, 50), min_size=1))
def test_a_words_probabilities_are_its_shares(counts: dict[Entry, int]) -> None:
    plain, normalised = pron_probs(counts, counts, max_normalize=False), pron_probs(counts, counts)
    for word in {entry[0] for entry in counts}:
        mine = [entry for entry in counts if entry[0] == word]
        total = sum(counts[entry] + 1 for entry in mine)
        for entry in mine:
            assert float(plain[entry]) == pytest.approx((counts[entry] + 1) / total, rel=1e-5)
            assert float(normalised[entry]) == pytest.approx((counts[entry] + 1) / max(counts[other] + 1 for other in mine), rel=2e-5)


def test_silence_by_hand() -> None:
    """Three sentences `a b`: silence at the begin of two, behind one `a`, and at the end of all."""
    a, b = ("a", "A"), ("b", "B")
    around = {("<s>",): (0, 0, 2, 1), a: (2, 1, 1, 2), b: (1, 2, 3, 0), ("</s>",): (3, 0, 0, 0)}
    bigrams = {(("<s>",), a): 3, (a, b): 3, (b, ("</s>",)): 3}
    behind, factors, begin, overall = silence_probs([a, b], {k: tuple(map(float, v)) for k, v in around.items()}, bigrams)
    assert overall == "0.67"  # 6 of 9
    assert begin == "0.67"  # (2 + 2 * 0.67) / 5
    assert behind == {a: "0.47", b: "0.87"}  # (1 + 1.34) / 5, (3 + 1.34) / 5
    assert factors[b] == pytest.approx(((1 + 2) / (3 * 0.47 + 2), (2 + 2) / (3 * 0.53 + 2)))
    assert factors[("</s>",)] == pytest.approx(((3 + 2) / (3 * 0.87 + 2), (0 + 2) / (3 * 0.13 + 2)))
    assert factors[a] == pytest.approx(((2 + 2) / 2, (1 + 2) / (3 + 2)))  # as in Kaldi's script, no silence is expected behind <s>


def counts(path: Path, seed: int = 0) -> list[Path]:
    """Count files of random speech of the lexicon, as steps/get_prons.sh writes them."""
    rng = random.Random(seed)
    prons = ["a A", "a B A", "b B", "<UNK> SPN"]
    of, pairs, around = {"<eps> SIL": 0}, {}, {"<s>": [0, 0, 0, 0], "</s>": [0, 0, 0, 0]}
    for _ in range(200):
        said = ["<s>", *rng.choices(prons, weights=[5, 2, 2, 1], k=rng.randint(1, 5)), "</s>"]
        for before, after in pairwise(said):
            silence = rng.random() < (0.8 if "s>" in before + after else 0.2)
            pairs[before, after] = pairs.get((before, after), 0) + 1
            around.setdefault(before, [0, 0, 0, 0])[2 if silence else 3] += 1
            around.setdefault(after, [0, 0, 0, 0])[0 if silence else 1] += 1
            of["<eps> SIL"] += silence
            if after != "</s>":
                of[after] = of.get(after, 0) + 1
    texts = {"prons": [f"{n} {p}" for p, n in of.items()], "sil": [f"{' '.join(map(str, n))} {p}" for p, n in around.items()],
             "bigrams": [f"{n}\t{one}\t{two}" for (one, two), n in pairs.items()]}
    for name, lines in texts.items():
        (path / name).write_text("\n".join(lines) + "\n")
    return [path / name for name in texts]


def test_the_new_directory_is_whole_and_the_old_ones_files_go(tmp_path: Path) -> None:
    source, (prons, sil, bigrams), target = dict_dir(tmp_path / "dict"), counts(tmp_path), tmp_path / "new"
    assert add_pron_probs(source, prons, target, sil, bigrams) == {"words": 3, "pronunciations": 4}
    made = DictDir.read(target)
    assert made.silence_probs is not None and made.silence_probs.begin == pytest.approx(0.8, abs=0.1)
    assert {entry.word: max(e.probability for e in made.lexicon if e.word == entry.word) for entry in made.lexicon} == {
        "<UNK>": 1, "a": 1, "b": 1}
    by_phones = {entry.phones: entry for entry in made.lexicon}
    assert by_phones["B", "A"].probability == pytest.approx(0.4, abs=0.1)  # it was drawn 2 times to 5
    quiet = by_phones["A",].silence
    assert quiet is not None and 0.2 < quiet[0] < 0.5
    again = add_pron_probs(target, prons, tmp_path / "newer")  # a directory that has probabilities; without counts of silence
    assert again["pronunciations"] == 4 and not (tmp_path / "newer/silprob.txt").exists()
    add_pron_probs(source, prons, target)
    assert not (target / "lexiconp_silprob.txt").exists() and not (target / "silprob.txt").exists()


def test_errors(tmp_path: Path) -> None:
    source, (prons, sil, bigrams) = dict_dir(tmp_path / "dict"), counts(tmp_path)
    for text, message in (("3 c A\n", "has no pronunciation `c A`"), ("3 a A_S\n", r"pron_counts_nowb\.txt"),
                          ("a A\n", "expected `count word"), ("", "is empty")):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(UserError, match=message):
            add_pron_probs(source, tmp_path / "bad", tmp_path / "new")
    for args in ((tmp_path / "bad", bigrams), (sil, tmp_path / "bad")):
        (tmp_path / "bad").write_text("1 2 a\n")
        with pytest.raises(UserError, match=r"bad, line 1: expected|two pronunciations with tabs"):
            add_pron_probs(source, prons, tmp_path / "new", *args)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_normalize", ["true", "false"])
def test_kaldis_script_gives_the_same(kaldi_egs: Path, tmp_path: Path, seed: int, max_normalize: str) -> None:
    source, files = dict_dir(tmp_path / "dict"), counts(tmp_path, seed)
    add_pron_probs(source, files[0], tmp_path / "ours", *files[1:], max_normalize=max_normalize == "true")
    (tmp_path / "utils").symlink_to(kaldi_egs / "wsj/s5/utils")
    (tmp_path / "path.sh").write_text("export PATH=$PWD/utils:$PATH LC_ALL=C\n")
    command = ["utils/dict_dir_add_pronprobs.sh", "--max-normalize", max_normalize, source, *files, "theirs"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    for path in sorted((tmp_path / "ours").iterdir()):
        ours, theirs = path.read_text().split(), (tmp_path / "theirs" / path.name).read_text().split()
        if path.name == "silprob.txt":  # a sum in Perl's order of keys
            ours, theirs = ours[::2] + [round(float(x), 9) for x in ours[1::2]], theirs[::2] + [round(float(x), 9) for x in theirs[1::2]]
        assert ours == theirs, path.name
    shutil.rmtree(tmp_path / "theirs")
