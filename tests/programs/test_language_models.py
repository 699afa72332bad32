"""Programs on language models, paths of words and devices: beside the library's own way, and Kaldi's alignments of AN4."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from decode.test_lattice import random_lattice  # type: ignore[import-not-found]  # beside these tests

from pykaldist.cli import main
from pykaldist.decode.const_arpa import build_const_arpa
from pykaldist.decode.lattice import read_lattices, write_lattices
from pykaldist.decode.lm_rescore import Grammar, lm_rescored
from pykaldist.io.fst import Fst
from pykaldist.io.table_streams import TableWriter, write_value
from pykaldist.io.tables import read_map

ROOT = Path(__file__).resolve().parents[2]


def shell(folder: Path, line: str) -> str:
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{ROOT}/utils:{os.environ['PATH']}", "PYKALDIST_ROOT": str(ROOT)}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


ARPA = """\\data\\
ngram 1=5
ngram 2=4

\\1-grams:
-0.7\ta\t-0.3
-0.9\tb\t-0.1
-99\t<s>\t-0.4
-0.8\t</s>
-1.5\t<unk>\t-0.2

\\2-grams:
-0.2\t<s> a
-0.4\ta b
-0.3\tb </s>
-0.5\tb a

\\end\\
"""


def test_arpa_to_const_arpa_is_the_file_that_build_const_arpa_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lm").write_text(ARPA)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\nb 2\n<unk> 3\n#0 4\n<s> 5\n</s> 6\n")
    build_const_arpa(tmp_path / "lm", {word: int(n) for word, n in read_map(tmp_path / "words.txt").items()}, 3, tmp_path / "expected")
    shell(tmp_path, "map_arpa_lm.pl words.txt < lm | arpa-to-const-arpa --bos-symbol=5 --eos-symbol=6 --unk-symbol=3 - found")
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
    assert main(["arpa-to-const-arpa", "--bos-symbol=5", "--eos-symbol=6", str(tmp_path / "lm"), str(tmp_path / "no")]) == 1
    assert f"{tmp_path}/lm, line 6: expected numbers of words, found 'a'" in capsys.readouterr().err
    assert main(["arpa-to-const-arpa", str(tmp_path / "lm"), str(tmp_path / "no")]) == 1
    assert "--bos-symbol and --eos-symbol are needed" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_arpa_to_const_arpa_takes_a_model_of_which_words_were_left_out(tmp_path: Path) -> None:
    """The head of what map_arpa_lm.pl writes counts n-grams that it has left out; Kaldi takes such a file, and so does this."""
    (tmp_path / "lm").write_text(ARPA)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n<unk> 2\n#0 3\n<s> 4\n</s> 5\n")
    build_const_arpa(tmp_path / "lm", {word: int(n) for word, n in read_map(tmp_path / "words.txt").items()}, 2, tmp_path / "expected")
    shell(tmp_path, "map_arpa_lm.pl words.txt < lm | arpa-to-const-arpa --bos-symbol=4 --eos-symbol=5 --unk-symbol=2 - found")
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.fixture
def grammar(tmp_path: Path) -> Path:
    """G.fst of unigrams and one bigram over words 1 to 4 (5 is #0), as format_lm.sh makes it."""
    arcs = [(0, 1, 1, 0.5, 1), (0, 5, 0, 0.25, 2), (1, 2, 2, 0.125, 2), (1, 5, 0, 1.0, 2),
            *((2, word, word, 0.5 * word, 1 if word == 1 else 2) for word in (1, 2, 3, 4))]
    source, ilabel, olabel, weight, target = (np.array(column) for column in zip(*arcs, strict=True))
    Fst.from_arcs(0, np.array([np.inf, np.inf, 0.75]), source, ilabel, olabel, weight, target).write(tmp_path / "G.fst")
    return tmp_path / "G.fst"


def test_lattices_get_the_costs_of_a_grammar(tmp_path: Path, grammar: Path) -> None:
    lattices = {f"u{seed}": random_lattice(seed) for seed in range(4)}
    write_lattices(tmp_path / "a", lattices.items())
    shell(tmp_path, "lattice-lmrescore --lm-scale=0.5 ark:a 'fstproject --project_output=true G.fst |' ark:b")
    found = dict(read_lattices(tmp_path / "b"))
    for utt, lattice in lattices.items():
        expected = lm_rescored(lattice, [(Grammar(Fst.read(grammar), "G"), 0.5)], utt)
        for name in ("offset", "word", "target", "graph", "acoustic", "final"):
            np.testing.assert_allclose(getattr(found[utt], name), getattr(expected, name), rtol=1e-6)
    shell(tmp_path, "lattice-lmrescore --lm-scale=-0.5 ark:b G.fst ark:c; lattice-equivalent ark:a ark:c")  # there and back


def test_lattices_get_the_costs_of_a_const_arpa(tmp_path: Path) -> None:
    (tmp_path / "lm").write_text(ARPA)
    build_const_arpa(tmp_path / "lm", {"a": 1, "b": 2, "<unk>": 3, "<s>": 5, "</s>": 6}, 3, tmp_path / "G.carpa")
    shell(tmp_path, r"printf 'u 1 2\n' | copy-int-vector ark:- ark:words; printf 'u 7 7 8\n' | copy-int-vector ark:- ark:ali; "
                    "linear-to-nbest ark:ali ark:words '' '' ark:a; lattice-lmrescore-const-arpa --lm-scale=2 ark:a G.carpa ark:b")
    (_, lattice), = read_lattices(tmp_path / "b")
    cost = lattice.graph.sum() + lattice.final[np.isfinite(lattice.final)].sum()
    assert cost == pytest.approx(2 * np.log(10) * (0.2 + 0.4 + 0.3), rel=1e-5)  # <s> a, a b, b </s>


def test_paths_have_the_pronunciations_that_the_lexicon_says(golden: Path, tmp_path: Path) -> None:
    """By the phones' positions in words, as Kaldi does it; the stage finds the same by the lexicon."""
    from pykaldist.decode.prons import read_prons, write_prons
    from pykaldist.io.datadir import DataDir
    from pykaldist.io.lang import LangDir

    kaldi = golden / "an4_kaldi"
    for name in ("ali.1.gz", "final.mdl"):
        (tmp_path / name).symlink_to(kaldi / "tri3_ali" / name)
    lang, data = kaldi / "lang", kaldi / "data/train"
    shell(tmp_path, f"gunzip -c ali.1.gz | copy-int-vector ark:- ark,t:- | head -40 > some; linear-to-nbest ark:some 'ark:sym2int.pl "
                    f"--map-oov 1 -f 2- {lang}/words.txt < {data}/text |' '' '' ark:- | lattice-align-words "
                    f"{lang}/phones/word_boundary.int final.mdl ark:- ark:- | nbest-to-prons final.mdl ark:- prons")
    write_prons(DataDir(data), LangDir(lang), tmp_path, 1)
    expected = dict(read_prons(tmp_path))
    found: dict[str, list[tuple[int, ...]]] = {}
    ends: dict[str, int] = {}
    for line in (tmp_path / "prons").read_text().splitlines():
        utt, begin, frames, *numbers = line.split()
        assert int(begin) == ends.get(utt, 0)
        ends[utt] = int(begin) + int(frames)
        found.setdefault(utt, []).append(tuple(map(int, numbers)))
    assert len(found) == 40 and found == {utt: expected[utt] for utt in found}


def test_features_as_posteriors(tmp_path: Path) -> None:
    with TableWriter(f"ark:{tmp_path}/feats", write_value) as out:
        out.write("u", np.array([[0.5, -1.25], [2, 0]], np.float32))
    assert shell(tmp_path, "feat-to-post ark:feats ark,t:-") == "u [ 0 0.5 1 -1.25 ] [ 0 2 1 0 ] \n"


@pytest.mark.parametrize(("version", "status"), [("cuda: Optional[str] = None", 1), ("cuda: Optional[str] = '12.8'", 0),
                                                 ("cuda = '12.1'", 0)])
def test_cuda_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: int) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2'\n{version}\nhip = 'x'\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    assert main(["cuda-compiled"]) == status
    monkeypatch.setenv("PYKALDIST_CUDA_COMPILED", "true")
    assert main(["cuda-compiled"]) == 0


def test_cuda_compiled_agrees_with_torch() -> None:
    import torch

    assert main(["cuda-compiled"]) == int(torch.version.cuda is None)
