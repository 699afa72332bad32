"""Letter-to-sound models: a regular spelling is learned exactly, alignments against all ways of cutting, probabilities, the scripts."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.lm.arpa import read_arpa
from pykaldist.lm.g2p import LetterToSound, errors, of_token, read_lexicon, sequences, token, train
from pykaldist.lm.graphones import SHAPES, Entry, align

RULES = {"sh": ["SH"], "x": ["K", "S"], "h": [], "a": ["AA"], "t": ["T"], "o": ["OW"], "s": ["S"], "i": ["IY"], "m": ["M"]}


def spelled(rng: np.random.Generator, length: int) -> Entry:
    """A word of a regular spelling: `sh` is one phone, `x` two, `h` alone is silent."""
    letters: list[str] = []
    phones: list[str] = []
    for unit in rng.choice(list(RULES), length).tolist():
        if not (unit == "h" and letters[-1:] == ["s"]):
            letters += unit
            phones += RULES[unit]
    return letters, phones


def lexicon(number: int, seed: int = 0) -> list[Entry]:
    rng = np.random.default_rng(seed)
    return [entry for entry in (spelled(rng, int(rng.integers(2, 8))) for _ in range(number)) if entry[1]]


def test_a_regular_spelling_is_learned_exactly() -> None:
    tokens, left_out = sequences(lexicon(400))
    assert left_out == 0
    assert {graphone for word in tokens for graphone in word} == {token(letters, phones) for letters, phones in RULES.items()}
    model = train(tokens, 3)
    assert model.worst_sum() < 1e-9
    test = lexicon(200, 1)
    found = LetterToSound(model).pronounce([letters for letters, _ in test])
    assert errors(found, [[phones] for _, phones in test]) == (0, sum(len(phones) for _, phones in test), 0)


def cuts(letters: list[str], phones: list[str]) -> list[list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """All ways of cutting a word."""
    if not letters and not phones:
        return [[]]
    return [[(tuple(letters[:a]), tuple(phones[:b])), *rest] for a, b in SHAPES if a <= len(letters) and b <= len(phones)
            for rest in cuts(letters[a:], phones[b:])]


def test_em_is_the_definition() -> None:
    """Expected counts by all ways of cutting; the likelihood rises; the best way is the one with the greatest weighted product."""
    words = [(list("shat"), ["SH", "AA", "T"]), (list("tax"), ["T", "AA", "K", "S"]), (list("at"), ["AA", "T"]), (list("hat"), ["AA", "T"]),
             (list("sat"), ["S", "AA", "T"]), (list("x"), ["K", "S"])]
    all_cuts = [cuts(*word) for word in words]
    p = dict.fromkeys({graphone for ways in all_cuts for way in ways for graphone in way}, 1.0)
    logprobs = []
    for _ in range(4):
        counts = dict.fromkeys(p, 0.0)
        logprob = 0.0
        for ways in all_cuts:
            weights = [math.prod(p[graphone] for graphone in way) for way in ways]
            logprob += math.log(sum(weights)) / len(words)
            for way, weight in zip(ways, weights, strict=True):
                for graphone in way:
                    counts[graphone] += weight / sum(weights)
        p = {graphone: count / sum(counts.values()) for graphone, count in counts.items()}
        logprobs.append(logprob)
    aligned = align(words, 4)
    assert aligned.logprobs == pytest.approx(logprobs, rel=1e-9) and aligned.logprobs[1:] == sorted(aligned.logprobs[1:])
    for ways, found in zip(all_cuts, aligned.words, strict=True):
        scores = [sum(max(len(a), len(b)) * math.log(max(p[a, b], 1e-300)) for a, b in way) for way in ways]
        assert found in ways and scores[ways.index(found)] == pytest.approx(max(scores), rel=1e-9)


def test_words_that_cannot_be_aligned_are_left_out() -> None:
    entries: list[Entry] = [(["a"], ["A"]), (["w"], list("DABLYU")), (["b"], ["B"] * 9), ([], ["A"]), (["c"], [])]
    aligned = align(entries)
    assert aligned.left_out == [2, 3, 4] and aligned.words == [[(("a",), ("A",))], [(("w",), tuple("DABLYU"))]]
    assert sequences([(["|"], ["A"]), (["a"], ["_"]), (["a"], ["A"])]) == ([["a}A"]], 2)
    with pytest.raises(UserError, match="no word of the lexicon can be aligned"):
        train([], 2)
    assert of_token("s|h}SH") == (("s", "h"), ("SH",)) and of_token("h}_") == (("h",), ())
    with pytest.raises(UserError, match="'sh' is no graphone"):
        of_token("sh")
    with pytest.raises(UserError, match="lex, line 2: expected a word and its phones, found 'b' alone"):
        read_lexicon("a A\nb\n", "lex")


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 4))
def test_probabilities_are_those_of_all_ways(seed: int, order: int) -> None:
    """With a wide beam, a pronunciation's probability is the sum of the model's over all its graphone sequences, normalised."""
    rng = np.random.default_rng(seed)
    entries = [(rng.choice(list("ab"), rng.integers(1, 4)).tolist(), rng.choice(["A", "B"], rng.integers(1, 4)).tolist()) for _ in range(6)]
    tokens, _ = sequences([entry for entry in entries if len(entry[1]) <= 2 * len(entry[0])] or [(["a"], ["A"]), (["b"], ["B"])])
    model = train(tokens, order)
    word = list("ab")
    graphones = [name for name in model.words[2:]]

    def ways(rest: list[str]) -> list[list[str]]:
        return [[]] if not rest else [[one, *more] for one in graphones if rest[:len(of_token(one)[0])] == list(of_token(one)[0])
                                      for more in ways(rest[len(of_token(one)[0]):])]

    sums: dict[tuple[str, ...], float] = {}
    for way in ways(word):
        p = math.prod(model.probability(name, ["<s>", *way[:k]]) for k, name in enumerate([*way, "</s>"]))
        phones = tuple(phone for name in way for phone in of_token(name)[1])
        sums[phones] = sums.get(phones, 0.0) + p
    sums.pop((), None)
    (found,) = LetterToSound(model).pronounce([word], beam=10**6)
    assert sum(p for p, _ in found) == pytest.approx(1 if sums else 0)
    assert [p for p, _ in found] == sorted((p for p, _ in found), reverse=True)
    small = math.exp(-11) * max(sums.values(), default=0)  # less is left behind by the search
    for phones, p in sums.items():
        if p > small:
            assert dict((b, a) for a, b in found)[phones] == pytest.approx(p / sum(sums.values()), rel=1e-3)


def test_errors_count_the_nearest_reference() -> None:
    found = [[(0.9, ("A", "B"))], [], [(1.0, ("C",))]]
    assert errors(found, [[["A", "C"], ["A", "B", "D"], ["B"]], [["X", "Y"]], [["C"]]]) == (3, 4, 2)


def test_programs_take_sequiturs_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = lexicon(300)
    (tmp_path / "lex").write_text("".join(f"{''.join(letters)}\t{' '.join(phones)}\n" for letters, phones in entries))
    (tmp_path / "words").write_text("shatx\nqq\nmosi\n")
    lex, first, second = (str(tmp_path / name) for name in ("lex", "m1", "m2"))
    assert main(["g2p.py", "-S", "--encoding", "utf-8", "--train", lex, "--devel", "5%", "--write-model", first]) == 0
    assert main(["g2p.py", "--model", first, "--ramp-up", "--train", lex, "--devel", "5%", "--write-model", second]) == 0
    out = capsys.readouterr().out
    assert "1-gram model of 9 graphones" in out and "2-gram model of 9 graphones" in out and out.count("0 wrong (0.00%)") == 2
    assert read_arpa(second).order == 2
    words = str(tmp_path / "words")
    assert main(["g2p.py", f"--model={second}", "--apply", words]) == 0
    out, err = capsys.readouterr()
    assert out == "shatx\tSH AA T K S\nmosi\tM OW S IY\n" and "qq: no pronunciation" in err
    assert main(["g2p.py", "-V", "0.999999", "--variants-number", "3", "--model", second, "--apply", words]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0][:2] == ["shatx", "0"] and rows[0][3] == "SH AA T K S" and float(rows[0][2]) > 0.5
    assert [int(row[1]) for row in rows if row[0] == "shatx"] == list(range(sum(row[0] == "shatx" for row in rows)))
    assert main(["g2p.py", "--model", second, "--test", lex]) == 0
    assert " 0 errors (0.00%)" in capsys.readouterr().out
    corpus, arpa, fst = (str(tmp_path / name) for name in ("corpus", "arpa", "fst"))
    assert main(["phonetisaurus-align", f"--input={lex}", f"--ofile={corpus}"]) == 0
    assert main(["ngram-count", "-order", "3", "-kndiscount", "-interpolate", "-text", corpus, "-lm", arpa]) == 0
    assert main(["phonetisaurus-arpa2wfst", f"--lm={arpa}", f"--ofile={fst}"]) == 0
    capsys.readouterr()
    options = f"--pmass 0.9 --nbest 2 --thresh 5 --accumulate --verbose --prob --model {fst} --word_list {words}"
    assert main(["phonetisaurus-apply", *options.split()]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["shatx", "mosi"] and all(float(row[1]) > 0.9 for row in rows) and rows[0][2] == "SH AA T K S"
    assert main(["phonetisaurus-apply", "--word_list", words, "--model", fst, "--lexicon", lex]) == 0
    assert capsys.readouterr().out == "shatx\tSH AA T K S\nmosi\tM OW S IY\n"
    for arguments, message in ((["--train", lex], "give --write-model"), (["--apply", words], "give the --model"), ([], "give one of"),
                               (["--train", lex, "--write-model", "x", "--ramp-up"], "--ramp-up raises"),
                               (["--model", lex, "--apply", words], "cannot be read; train one here"),
                               (["--train", lex, "--write-model", "x", "--devel", "x%"], "--devel: expected"),
                               (["--phoneme-to-phoneme", "--test", lex], "there is no option --phoneme-to-phoneme")):
        assert main(["g2p.py", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_on_a_real_lexicon(tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """speechocean762's, stress left out: 2572 pronunciations to learn from; docs/from-kaldi.md has the numbers."""
    lines = (shared / "data/speechocean762/resource/lexicon.txt").read_text().splitlines()
    (tmp_path / "lex").write_text("".join(re.sub(r"(?<=[A-Z])[0-9]", "", line) + "\n" for line in lines))
    assert main(["g2p.py", "--order", "5", "--train", str(tmp_path / "lex"), "--devel", "10%", "--write-model", str(tmp_path / "m")]) == 0
    found = re.search(r"held out: (\d+) words, (\d+) wrong .*, (\d+) phones, (\d+) errors", capsys.readouterr().out)
    assert found and int(found[1]) == 260 and int(found[2]) / 260 < 0.35 and int(found[4]) / int(found[3]) < 0.12


def test_the_scripts(tmp_path: Path, root: Path) -> None:
    """steps/dict: with words out, nothing of silence in, and each way of calling."""
    entries = [("".join(letters), " ".join(phones)) for letters, phones in lexicon(200)]
    (tmp_path / "lex").write_text("<sil> SIL\nsilent SIL SIL\n" + "".join(f"{word} {phones}\n" for word, phones in entries))
    (tmp_path / "sil").write_text("SIL\nSIL SIL\n")
    (tmp_path / "words").write_text("shatx\nqq\nmosi\n")
    path = f"{root / 'utils'}:{root / 'utils/shared'}:{root / 'src/bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYKALDIST_ROOT": str(root), "PYKALDIST_TOLD": "true"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(root / "steps/dict" / command[0]), *command[1:]], cwd=tmp_path, env=env, capture_output=True, text=True,
                              check=False)

    done = run("train_g2p.sh", "--iters", "3", "--silence-phones", "sil", "lex", "g2p")
    assert done.returncode == 0, done.stderr
    assert "g2p/g2p.model.final: held out: " in done.stdout and "silent" in (tmp_path / "g2p/lexicon_onlywords.txt").read_text()
    assert "<sil>" not in (tmp_path / "g2p/lexicon_onlywords.txt").read_text()
    done = run("apply_g2p.sh", "--nj", "2", "--var-counts", "1", "words", "g2p", "out")
    assert done.stdout == "apply_g2p.sh: out/lexicon.lex: pronunciations of 2 of 3 words\n", done.stderr
    rows = [line.split("\t") for line in (tmp_path / "out/lexicon.lex").read_text().splitlines()]
    assert [(word, phones) for word, _, phones in rows] == [("shatx", "SH AA T K S"), ("mosi", "M OW S IY")]
    done = run("train_g2p_phonetisaurus.sh", "--silence-phones", "sil", "lex", "ph")
    assert done.returncode == 0, done.stderr
    tabbed = (tmp_path / "ph/lexicon_tab_separated.txt").read_text().splitlines()
    assert tabbed == [f"{word}\t{phones}" for word, phones in entries]
    done = run("apply_g2p_phonetisaurus.sh", "--nbest", "1", "words", "ph", "out2")
    assert done.stdout == "apply_g2p_phonetisaurus.sh: out2/lexicon.lex: pronunciations of 2 words, 1 without\n", done.stderr
    assert (tmp_path / "out2/lexicon.failed").read_text() == "qq\n"
    assert [line.split("\t")[::2] for line in (tmp_path / "out2/lexicon.lex").read_text().splitlines()] == [
        ["shatx", "SH AA T K S"], ["mosi", "M OW S IY"]]
    done = run("apply_g2p_phonetisaurus.sh", "words", "ph", "out2")
    assert done.returncode == 1 and "give --nbest or --pmass" in done.stderr
    done = run("apply_g2p.sh", "words", "nowhere", "out")
    assert done.returncode == 1 and "nowhere/g2p.model.final does not exist" in done.stderr
