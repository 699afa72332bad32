"""SRILM's, KenLM's, kaldi_lm's and pocolm's programs, as recipes call them: their files, what they print, what they refuse."""

from __future__ import annotations

import gzip
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.lm.arpa import read_arpa
from pykaldist.lm.mix import mix
from pykaldist.lm.model import NgramModel
from pykaldist.lm.prune import prune
from pykaldist.lm.smoothing import estimate

WORDS = ["a", "b", "c", "d", "e"]


def sentences(number: int, seed: int) -> list[list[str]]:
    """Sentences in which words like to follow each other in order."""
    rng = np.random.default_rng(seed)
    text = []
    for _ in range(number):
        at, sentence = int(rng.integers(5)), []
        for _ in range(int(rng.integers(1, 9))):
            sentence.append(WORDS[at])
            at = (at + int(rng.choice([1, 2, 0, 3], p=[0.6, 0.2, 0.15, 0.05]))) % 5
        text.append(sentence)
    return text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, number, seed in (("train", 300, 0), ("other", 200, 1), ("heldout", 40, 2)):
        Path(name).write_text("".join(" ".join(sentence) + "\n" for sentence in sentences(number, seed)))
    Path("train.gz").write_bytes(gzip.compress(Path("train").read_bytes() + b"a strange b\n\n"))
    Path("wordlist").write_text("".join(f"{word}\n" for word in [*WORDS, "<unk>", "unseen"]))
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], line: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(line.split()) == status, capsys.readouterr().err
    out, err = capsys.readouterr()
    return err if status else out


def p(model: NgramModel, sentence: list[str]) -> list[float]:
    words = ["<s>", *sentence, "</s>"]
    return [model.probability(words[i], words[:i]) for i in range(1, len(words))]


SWBD = "-order 3 -limit-vocab -vocab wordlist -unk -map-unk <unk> -kndiscount -interpolate"


def test_swbds_language_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two trigram models, their perplexities, the best mixture: the lines of swbd/s5c and ami/s5b."""
    ran(capsys, f"ngram-count -text train.gz {SWBD} -lm a.gz")
    ran(capsys, f"ngram-count -text other {SWBD} -gt3min 1 -lm b.gz")
    a, b = read_arpa("a.gz"), read_arpa("b.gz")
    assert a.worst_sum() < 1e-5 and set(a.vocabulary) == {*WORDS, "<unk>", "unseen", "</s>"}
    assert a.probability("<unk>", []) > 0 and a.probability("unseen", []) > 0
    train = [["<s>", *sentence, "</s>"] for sentence in sentences(300, 0)]
    counts = {ngram: sum(s[i:i + 3] == ngram.split() for s in train for i in range(len(s))) for ngram in a.texts(3)}
    assert counts and min(counts.values()) == 2  # gt3min
    out = ran(capsys, "ngram -unk -lm a.gz -ppl heldout")
    text = sentences(40, 2)
    logprob = sum(math.log10(x) for sentence in text for x in p(a, sentence))
    found = re.fullmatch(r"file heldout: 40 sentences, (\d+) words, 0 OOVs\n0 zeroprobs, logprob= (\S+) ppl= (\S+) ppl1= (\S+)\n", out)
    assert found and int(found[1]) == sum(map(len, text)) and float(found[2]) == pytest.approx(logprob, rel=1e-5)
    assert float(found[3]) == pytest.approx(10 ** (-logprob / (sum(map(len, text)) + 40)), rel=1e-5)
    assert float(found[4]) == pytest.approx(10 ** (-logprob / sum(map(len, text))), rel=1e-5)
    for name in "ab":
        Path(f"{name}.ppl2").write_text(ran(capsys, f"ngram -unk -lm {name}.gz -ppl heldout -debug 2"))
    detail = Path("a.ppl2").read_text().split("\n")
    assert detail[0] == " ".join(text[0]) and detail[1].startswith(f"\tp( {text[0][0]} | <s> ) \t= [2gram] {p(a, text[0])[0]:.5g}"[:-1])
    mixed = ran(capsys, "compute-best-mix a.ppl2 b.ppl2")
    best = re.search(r"best lambda \((\S+) (\S+)\)", mixed)
    assert best and float(best[1]) + float(best[2]) == pytest.approx(1, abs=1e-5)
    assert mixed.startswith("iteration 1, lambda = (0.5 0.5), ppl = ")
    ran(capsys, f"ngram -order 3 -lm a.gz -lambda {best[1]} -mix-lm b.gz -unk -write-lm ab.gz")
    ab, expected = read_arpa("ab.gz"), mix([a, b], [float(best[1]), float(best[2])])
    assert ab.texts(3) == expected.texts(3) and np.allclose(ab.orders[2].logprob, expected.orders[2].logprob, atol=1e-5)
    perplexity = [float(ran(capsys, f"ngram -unk -lm {name} -ppl heldout").split()[-3]) for name in ("a.gz", "b.gz", "ab.gz")]
    assert perplexity[2] <= min(perplexity) * 1.001
    ran(capsys, "ngram -order 2 -lm a.gz -lambda 0.5 -mix-lm b.gz -mix-lm2 ab.gz -mix-lambda2 0.2 -write-lm abc")
    assert read_arpa("abc").order == 2 and read_arpa("abc").worst_sum() < 1e-5


def test_librispeechs_pruning_and_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, f"ngram-count -text train -order 4 {SWBD[9:]} -lm full.gz")
    assert read_arpa("full.gz").order == 4
    ran(capsys, "ngram -prune 0.01 -lm full.gz -write-lm small.gz")  # of the default order
    expected = prune(read_arpa("full.gz", 3), 0.01)
    small = read_arpa("small.gz")
    assert small.texts(2) == expected.texts(2) and len(small.orders[1]) < len(read_arpa("full.gz").orders[1])
    ran(capsys, f"ngram-count -text train -prune 0.01 {SWBD} -lm small2.gz")
    assert read_arpa("small2.gz").texts(2) == small.texts(2)
    ran(capsys, "ngram -limit-vocab -vocab wordlist -lm full.gz -tolower -renorm -prune-lowprobs -write-lm lower -write-vocab vocab")
    assert Path("vocab").read_text().split()[:2] == ["<s>", "</s>"] and read_arpa("lower").worst_sum() < 1e-5
    for options in ("", "-wbdiscount", "-ukndiscount", "-addsmooth1 1 -kndiscount2 -kndiscount3 -interpolate",
                    "-cdiscount 0.5 -interpolate",
                    "-kndiscount1 -gt1min 0 -kndiscount2 -gt2min 1 -kndiscount3 -gt3min 1 -sort -unk -order 3"):
        ran(capsys, f"ngram-count -text train -lm - {options} -write-vocab v")
        ran(capsys, f"ngram-count -text train -lm one {options}")
        model = read_arpa("one")
        assert model.order == 3 and model.worst_sum() < 1e-5, options
    assert model.probability("<unk>", []) > 0
    Path("oov").write_text("a zzz b\n")
    assert "1 sentences, 3 words, 1 OOVs\n0 zeroprobs" in ran(capsys, "ngram -lm full.gz -ppl oov")
    assert "1 sentences, 3 words, 0 OOVs\n0 zeroprobs" in ran(capsys, "ngram -lm full.gz -unk -ppl oov")
    assert "= [OOV] 0 [ -inf ]" in ran(capsys, "ngram -lm full.gz -ppl oov -debug 2")


@pytest.mark.parametrize(("line", "message"), [
    ("ngram-count -text train -lm x -maxent", "there is no option -maxent; ngram-count --help lists the options."),
    ("ngram-count -text train", "give -text and -lm"), ("ngram-count -text train -lm x -kndiscount -wbdiscount", "choose one"),
    ("ngram-count -text train -lm x -gt3min x", "-gt3min: expected a number, found 'x'"),
    ("ngram-count -text no -lm x", "no does not exist"), ("ngram -lm train", "is no ARPA language model"),
    ("ngram -ppl x", "give a model with -lm"), ("ngram -lm x -bayes 0", "there is no option -bayes"),
    ("ngram -lm x -vocab wordlist", "-vocab and -limit-vocab"), ("compute-best-mix train", "two models or more"),
    ("compute-best-mix train other", "train has no words' probabilities"), ("lmplz --text train", "give the longest n-gram with -o"),
    ("lmplz -o 2 --prune 1 0 --text train", "none smaller than the one before, found 1 0"),
    ("build_binary trie", r"expected [trie|probing] <arpa> <output>"), ("prune_lm.sh 6 here", "here has no lm_unpruned.gz"),
    ("train_lm.sh --lmtype 5gram x", "--lmtype is one of 3gram"), ("format_arpa_lm.py here", "here is no language model's directory"),
    ("prune_lm_dir.py a b", "give --target-num-ngrams or --final-threshold"), ("change-lm-vocab -lm x", "give -vocab and -lm")])
def test_what_is_not_here_is_said(here: Path, capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    assert message in ran(capsys, line, 1)
    assert not Path("x").exists()


def test_kenlm(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("vocab").write_text(" ".join(WORDS[:4]))
    ran(capsys, "lmplz -o 3 -S 50% --prune 0 0 1 --limit_vocab_file vocab --text train --arpa kn.arpa")
    model = read_arpa("kn.arpa")
    assert set(model.vocabulary) == {*WORDS[:4], "<unk>", "</s>"} and model.worst_sum() < 1e-5
    ran(capsys, "lmplz -o 2 --text train --arpa kn2.arpa")
    model, expected = read_arpa("kn2.arpa"), estimate(sentences(300, 0), [*WORDS, "<unk>"], 2)
    for context in ([], ["a"], ["<s>"]):
        for word in [*WORDS, "</s>"]:
            assert model.probability(word, context) == pytest.approx(expected.probability(word, context), rel=1e-5)
    ran(capsys, "build_binary -q 8 -b 8 trie kn2.arpa G.trie")
    assert Path("G.trie").read_bytes() == Path("kn2.arpa").read_bytes()


def test_kaldi_lm_as_aishell_calls_it(here: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    """The shell lines of aishell's and wsj's local/ scripts around the three programs, in shell."""
    lines = f"""
set -e -o pipefail
export PATH={root}/tools/kaldi_lm:{root}/utils:{root}/utils/shared:{root}/src/bin:$PATH
cat train | tr ' ' '\\n' | cat - <(printf 'unseen\\n<UNK>\\n') | sort | uniq -c | sort -nr > unigram.counts
cat unigram.counts | awk '{{print $2}}' | get_word_map.pl "<s>" "</s>" "<UNK>" > word_map
cat train | awk -v wmap=word_map 'BEGIN{{while((getline<wmap)>0)map[$1]=$2;}}
  {{ for(n=1;n<=NF;n++) {{ printf map[$n]; if(n<NF){{ printf " "; }} else {{ print ""; }}}}}}' | gzip -c > train.gz
train_lm.sh --arpa --lmtype 3gram-mincount .
prune_lm.sh --arpa 6.0 ./3gram-mincount/
{root}/utils/train_lm.sh --arpa --lmtype 4gram .
"""
    env = {key: value for key, value in os.environ.items() if key != "PYKALDIST_ROOT"}
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False, env={**env, "PYKALDIST_TOLD": "true"})
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in Path("word_map").read_text().splitlines()]
    assert [row[0] for row in rows[:3]] == ["<s>", "</s>", "<UNK>"] and len({row[1] for row in rows}) == len(rows) == 9
    model, pruned = read_arpa("3gram-mincount/lm_unpruned.gz"), read_arpa("3gram-mincount/lm_pr6.0.gz")
    assert set(model.vocabulary) == {*WORDS, "<UNK>", "unseen", "</s>"} and model.worst_sum() < 1e-5
    train = sentences(300, 0)
    words = sum(map(len, train[30:])) + 270
    assert int(Path("3gram-mincount/num_words").read_text()) == words
    assert pruned.texts(2) == prune(model, math.expm1(6.0 / words)).texts(2) and len(pruned.orders[1]) < len(model.orders[1])
    logprob = [math.log(x) for sentence in train[:30] for x in p(model, sentence)]
    assert f"Perplexity over {len(logprob):.6f} words (excluding 0.000000 OOVs) is" in done.stdout
    assert math.exp(-sum(logprob) / len(logprob)) == pytest.approx(float(re.findall(r"OOVs\) is (\S+)", done.stdout)[0]), rel=1e-4)
    assert read_arpa("4gram/lm_unpruned.gz").order == 4
    for name in ("tools/srilm/bin/i686-m64/ngram-count", "tools/pocolm/scripts/train_lm.py", "tools/sequitur-g2p/g2p.py"):
        done = subprocess.run([str(root / name), "--help"] if name.count("/") > 2 else ["python3", str(root / name), "--help"],
                              capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0 and f"Usage: {Path(name).name} [options]" in done.stdout, done.stderr


def test_pocolm_as_tedlium_calls_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("text")
    text.mkdir()
    (text / "train.txt.gz").write_bytes(gzip.compress(Path("other").read_bytes() + b"a strange b\n"))
    (text / "ted.txt").write_bytes(Path("train").read_bytes())
    (text / "dev.txt").write_bytes(Path("heldout").read_bytes())
    Path("wordlist").write_text("\n".join(WORDS))
    assert main(["train_lm.py", "--wordlist=wordlist", "--num-splits=10", "--warm-start-ratio=20", "--limit-unk-history=true",
                 "--fold-dev-into=ted", "--bypass-metaparameter-optimization=0.8,0.1", "--min-counts=train=2 ted=1",
                 "text", "4", "work", "lm.pocolm"]) == 0
    weights = dict(line.split() for line in Path("lm.pocolm/weights").read_text().splitlines())
    assert list(weights) == ["ted", "train"] and sum(map(float, weights.values())) == pytest.approx(1, abs=1e-5)
    model = read_arpa("lm.pocolm/lm.arpa.gz")
    assert set(model.vocabulary) == {*WORDS, "<unk>", "</s>"} and model.order == 4 and model.worst_sum() < 1e-5
    capsys.readouterr()
    assert main(["get_data_prob.py", "heldout", "lm.pocolm"]) == 0
    logprob = [math.log(x) for sentence in sentences(40, 2) for x in p(model, sentence)]
    found = re.search(r"was (\S+) per word \[perplexity = (\S+)\] over (\S+) words\.", capsys.readouterr().err)
    assert found and float(found[1]) == pytest.approx(sum(logprob) / len(logprob), rel=1e-4) and float(found[3]) == len(logprob)
    assert float(found[2]) == pytest.approx(math.exp(-float(found[1])), rel=1e-4)
    ran(capsys, "prune_lm_dir.py --target-num-ngrams=60 --initial-threshold=0.02 lm.pocolm small")
    assert 50 <= sum(map(len, read_arpa("small/lm.arpa.gz").orders)) <= 60
    ran(capsys, "prune_lm_dir.py --final-threshold=0.001 lm.pocolm small2")
    assert main(["train_lm.py", "--num-words=3", "text", "2", "work"]) == 0
    assert set(read_arpa("work/3_2.pocolm/lm.arpa.gz").vocabulary) == {"<unk>", "</s>", *WORDS} - {
        word for word in WORDS if word not in read_arpa("work/3_2.pocolm/lm.arpa.gz").words}
    assert len(read_arpa("work/3_2.pocolm/lm.arpa.gz").vocabulary) == 5
    for arguments, message in ((["--wordlist=wordlist", "--fold-dev-into=x", "text", "2", "w"], "there is no text x; there are ted, train"),
                               (["--wordlist=wordlist", "--min-counts=x=2", "text", "2", "w"], "--min-counts: expected a number"),
                               (["text", "2", "w"], "give --wordlist or --num-words"),
                               (["--num-words=3", "text", "x", "w"], "the order is a number"),
                               (["--num-words=3", "work", "2", "w"], "expected dev.txt and another")):
        assert main(["train_lm.py", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_make_kn_lm(here: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    """utils/lang/make_kn_lm.py is ngram-count with one discount an order, and nothing left out."""
    env = {**os.environ, "PATH": f"{root / 'src/bin'}:{os.environ['PATH']}", "PYKALDIST_ROOT": str(root)}
    script = str(root / "utils/lang/make_kn_lm.py")
    done = subprocess.run([script, "-ngram-order", "3", "-text", "train", "-lm", "kn"], env=env, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    ran(capsys, "ngram-count -text train -order 3 -ukndiscount -gt3min 1 -lm other.lm")
    assert Path("kn").read_bytes() == Path("other.lm").read_bytes() and len(read_arpa("kn").orders[2]) > 50
    done = subprocess.run([script, "-order", "3"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "there is no option -order" in done.stderr
