"""Flat start: numerators from transcripts are Kaldi's, trees have the pdfs that they should, and the stage's scripts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from chain_files import fsts

from pykaldist.hmm.alignments.graphs import Lexicon
from pykaldist.hmm.chain.flat_start import TranscriptGraphs, TyingOptions, biphone_tree
from pykaldist.hmm.chain.supervision import Normalizer
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir

SETS = [[1, 2], [3, 4], [5, 6]]


def two(phone: int) -> int:
    return 2


def test_numerators_of_transcripts_are_kaldis(golden: Path, chain: Path, same_graph: Callable[[Fst, Fst, float], None]) -> None:
    lang, model = LangDir(golden / "an4_kaldi/lang"), read_transition_model(chain / "0.trans_mdl")
    graphs = TranscriptGraphs(Lexicon(lang.file("L.fst"), lang.disambig_phones), read_tree(chain / "tree"), model)
    normalizer, kaldis = Normalizer(Fst.read(chain / "normalization.fst")), fsts(chain / "e2e/num_fsts.txt.gz")
    for line in (chain / "e2e/text").read_text().splitlines():
        utt, *words = line.split()
        ours = normalizer.flat_start(graphs.compile(lang.word_ids(words)[0]), model)
        assert ours is not None
        same_graph(ours, kaldis[utt][0], 1e-5)


def test_a_full_biphone_tree() -> None:
    tree = biphone_tree(SETS, two)
    assert tree.num_pdfs == 3 * 4 * 2 and (tree.width, tree.central) == (2, 1)
    seen = {tree.compute((left, phone), c) for left in range(7) for phone in range(1, 7) for c in (0, 1)}
    assert seen == set(range(24))
    assert tree.compute((1, 3), 0) == tree.compute((2, 4), 0) != tree.compute((5, 4), 0)  # sets share, on both sides
    assert [tree.compute((0, 1), c) for c in (0, 1)] == [0, 1] and tree.compute((0, 3), 0) == 8  # numbered phone by phone


def test_phones_without_context() -> None:
    tree = biphone_tree(SETS, two, [1, 2])
    assert tree.num_pdfs == 2 * 2 + 2 * 3 * 2
    assert {tree.compute((left, 1), 0) for left in range(7)} == {0} and tree.compute((3, 2), 0) == 2
    assert tree.compute((1, 3), 0) == tree.compute((0, 3), 0) != tree.compute((4, 3), 0)


def test_rare_biphones_are_tied() -> None:
    """The pair (1, 3) is frequent; phone 3 is, 5 and 1 are not."""
    pairs, singles = {(1, 3): 9, (3, 3): 2, (1, 5): 1}, {3: 11, 5: 1}
    tree = biphone_tree(SETS, two, (), (pairs, singles), TyingOptions(5, 5))
    assert tree.compute((2, 4), 0) not in (tree.compute((3, 4), 0), tree.compute((5, 4), 0))
    assert tree.compute((3, 4), 0) == tree.compute((5, 4), 0) != tree.compute((1, 5), 0)
    assert tree.compute((1, 5), 0) == tree.compute((3, 6), 0) == tree.compute((5, 1), 0)


@pytest.fixture
def work(golden: Path, chain: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / "an4_kaldi/lang", tmp_path / "lang")
    shutil.copy(chain / "topo", tmp_path / "lang/topo")
    (tmp_path / "data").mkdir()
    text = (chain / "e2e/text").read_text()
    (tmp_path / "data/text").write_text(text)
    (tmp_path / "data/utt2spk").write_text("".join(f"{line.split()[0]} {line.split('-')[0]}\n" for line in text.splitlines()))
    return tmp_path


def bash(root: Path, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f"cd '{cwd}'; . '{root}/path.sh'; PATH='{root}/steps/nnet3/chain/e2e':$PATH; {script}"],
                          capture_output=True, text=True, check=False)


def test_the_scripts(root: Path, work: Path) -> None:
    run = bash(root, "prepare_e2e.sh --nj 2 --type biphone --tie true --min-biphone-count 2 --min-monophone-count 1 data lang e2e", work)
    assert run.returncode == 0, run.stderr
    tree, model = read_tree(work / "e2e/tree"), read_transition_model(work / "e2e/0.trans_mdl")
    assert run.stdout == f"prepare_e2e.sh: {tree.num_pdfs} pdfs, graphs of 6 transcripts; tree in e2e\n" and model.num_pdfs == tree.num_pdfs
    for job in (1, 2):
        rows = [line.rsplit(":", 1) for line in (work / f"e2e/fst.{job}.scp").read_text().splitlines()]
        data = (work / f"e2e/fst.{job}.ark").read_bytes()
        ends = [int(place) - len(f"{row.split()[0]} ") for row, place in rows[1:]] + [len(data)]
        for (row, place), end in zip(rows, ends, strict=True):
            graph = Fst.parse(data[int(place) : end])
            assert row.split()[1] == f"e2e/fst.{job}.ark" and graph.num_arcs and graph.ilabel.max() <= model.num_transition_ids
    (work / "lang/phones.txt").write_text("HUSH 1\n")
    run = bash(root, "prepare_e2e.sh --treedir e2e data lang other", work)
    assert run.returncode == 1 and "disagree about" in run.stderr


def test_transcripts_as_phones_and_their_counts(root: Path, work: Path) -> None:
    run = bash(root, "text_to_phones.py --edge-silprob 1 --between-silprob 0 lang < data/text", work)
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[0] for row in rows] == [line.split()[0] for line in (work / "data/text").read_text().splitlines()]
    assert all(row[1] == row[-1] == "SIL" and "SIL" not in row[2:-1] for row in rows)
    counts = bash(root, "text_to_phones.py --edge-silprob 0 --between-silprob 0 lang < data/text | cut -d' ' -f 2- | sym2int.pl "
                  "lang/phones.txt | compute_biphone_stats.py lang", work).stdout.split("\n")
    singles = {int(line.split()[0]): int(line.split()[1]) for line in counts if len(line.split()) == 2}
    sets = LangDir(work / "lang").phone_sets
    assert sum(singles.get(phones[0], 0) for phones in sets) == sum(len(row) - 3 for row in rows)
    assert all(len({singles.get(phone) for phone in phones}) == 1 for phones in sets)  # a set counts as one
    run = bash(root, "echo a 1 | compute_biphone_stats.py lang", work)
    assert run.returncode == 1
    assert "line 1: expected numbers of phones, found 'a 1'; make them with utils/sym2int.pl.\n  e.g.: utils/sym2int.pl " in run.stderr
