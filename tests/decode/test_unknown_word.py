"""The unknown word by a phone language model: its language directory is valid, L takes its phones, and decoding finds it."""

from __future__ import annotations

import shutil
from pathlib import Path

import kaldifst
import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.arpa import format_lm
from pykaldist.decode.ctm import WordTimer
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions, make_graph
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.lang.check_lang import problems_of
from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_archive, read_lines

OOV = "<UNK>"
DROPPED = "SEVEN"


@pytest.fixture(scope="module")
def made(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AN4's dictionary without a word, a model of unknown words, the language directory with it, and one with a unigram grammar."""
    folder = tmp_path_factory.mktemp("unknown")
    shutil.copytree(golden / "an4_kaldi/dict", folder / "dict")
    for path in (folder / "dict").glob("lexicon*.txt"):
        path.write_text("".join(f"{line}\n" for line in read_lines(path) if line.split()[0] != DROPPED))
    assert main(["make-unk-lm", str(folder / "dict"), str(folder / "unk")], told=True) == 0
    prepare_lang(folder / "dict", OOV, folder / "tmp", folder / "lang", LangOptions(unk_fst=str(folder / "unk/unk_fst.txt")))
    words = [word for word in LangDir(folder / "lang").words if not word.startswith(("<", "#", "!"))]
    lines = [f"-{2.3 if word == OOV else 1.8}\t{word}" for word in ["<s>", "</s>", OOV, *words]]
    (folder / "lm.arpa").write_text("\\data\\\nngram 1={}\n\n\\1-grams:\n{}\n\n\\end\\\n".format(len(lines), "\n".join(lines)))
    format_lm(folder / "lang", folder / "lm.arpa", folder / "dict/lexicon.txt", folder / "lang_test")
    return folder


def takes(lang: LangDir, name: str, phones: list[str], word: str) -> bool:
    """Whether a lexicon transducer takes phones and gives a word, disambiguation symbols taking nothing."""
    fst = kaldifst.StdVectorFst.read(str(lang.path / name))
    wanted, quiet = [lang.phones[phone] for phone in phones], {0, *lang.disambig_phones}
    stack, seen = [(0, 0, False)], set()
    while stack:
        state, used, given = here = stack.pop()
        if here in seen:
            continue
        seen.add(here)
        if used == len(wanted) and given and np.isfinite(float(fst.final(state).value)):
            return True
        for arc in kaldifst.ArcIterator(fst, state):
            if arc.olabel not in ((0,) if given else (0, lang.words[word])):
                continue
            if arc.ilabel in quiet:
                stack.append((arc.nextstate, used, given or arc.olabel > 0))
            elif used < len(wanted) and arc.ilabel == wanted[used]:
                stack.append((arc.nextstate, used + 1, given or arc.olabel > 0))
    return False


def test_the_language_directory_is_valid_and_kaldis_form(made: Path) -> None:
    lang = LangDir(made / "lang")
    assert problems_of(lang) == [] and problems_of(LangDir(made / "lang_test")) == []
    unknown = lang.words[OOV]
    assert lang.modelled_words == [unknown]
    assert f"{OOV} {OOV} #1 #2 #3" in (made / "lang/phones/align_lexicon.txt").read_text().splitlines()
    assert next(line for line in read_lines(made / "tmp/lexiconp.txt") if line.startswith(OOV)).split() == [OOV, "1", "#1", "#2", "#3"]
    marked = [line.split()[2:] for line in read_lines(made / "tmp/lexiconp_disambig.txt")]
    used = {int(symbol[1:]) for row in marked for symbol in row if symbol.startswith("#")}
    assert {1, 2, 3} <= used and all(row == ["#1", "#2", "#3"] or not {"#1", "#2", "#3"} & set(row) for row in marked)
    for name in ("L.fst", "L_disambig.fst"):
        assert lang.phones["#2"] not in Fst.read(lang.path / name).ilabel


@pytest.mark.parametrize("name", ["L.fst", "L_disambig.fst"])
def test_the_lexicon_takes_any_word_in_place_of_the_unknown_one(made: Path, name: str) -> None:
    lang = LangDir(made / "lang")
    spoken = ["S_B", "EH_I", "V_I", "AH_I", "N_E"]  # the word that the lexicon lacks
    assert takes(lang, name, spoken, OOV) and takes(lang, name, [*spoken, "SIL"], OOV)
    assert not takes(lang, name, spoken[:-1], OOV) and not takes(lang, name, ["S_S"], OOV) and not takes(lang, name, ["SPN_S"], OOV)
    assert not takes(lang, name, ["Z_B", "Z_E"], OOV)  # which no pronunciation has side by side
    assert takes(lang, name, ["F_B", "AY_I", "V_E"], "FIVE")


def test_decoding_gives_the_unknown_word_and_its_place(made: Path, golden: Path, tmp_path: Path) -> None:
    """With and without the word in the lexicon: where it was, <UNK> is; the word's phones are about those that it has."""
    an4 = golden / "an4_kaldi"
    graph = make_graph(made / "lang_test", an4 / "tri3_ali", tmp_path / "graph", GraphOptions())
    model = read_transition_model(an4 / "tri3_ali/final.mdl")
    decoder = LatticeDecoder(graph, model.tid2pdf, DecoderOptions(acwt=0.1))
    lang = LangDir(made / "lang")
    timer = WordTimer(LangDir(tmp_path / "graph"), model)
    transcripts = {line.split()[0]: line.split()[1:] for line in read_lines(an4 / "data/test/text")}
    found = right = words = utterances = 0
    for utt, matrix in read_archive(an4 / "dnn/loglikes.ark"):
        path = best_path(decoder.decode(matrix), 0.1)
        said = [lang.words.symbol(word) for word in path.words]
        expected = [OOV if word == DROPPED else word for word in transcripts[utt]]
        right, utterances = right + (said == expected), utterances + 1
        words += OOV in expected
        for part in timer.spoken(path.words, path.transition_ids):
            if part.word == lang.words[OOV] and OOV in expected:
                found += 1
                phones = [lang.phones.symbol(phone) for phone in part.phones]
                assert phones[0].endswith("_B") and phones[-1].endswith("_E") and 10 < part.frames < 120
    assert words == 10 and found >= 8 and right > utterances / 2


def test_training_graphs_have_the_model(made: Path, golden: Path) -> None:
    """An utterance with the unknown word is aligned with any phones that the model takes."""
    an4 = golden / "an4_kaldi"
    lang, model = LangDir(made / "lang"), read_transition_model(an4 / "mono/final.mdl")
    graph = GraphCompiler(lang, read_tree(an4 / "mono/tree"), model).compile([lang.words["FIVE"], lang.words[OOV]])
    phones = {lang.phones.symbol(int(model.tid2phone[tid])) for tid in np.unique(graph.tid)}
    assert {"SIL", "F_B", "AY_I", "V_E"} <= phones and not any(phone.startswith("#") for phone in phones)
    assert len(phones) > 60 and graph.min_frames == 3 * 3 + 2 * 3


def test_errors(made: Path, tmp_path: Path) -> None:
    for text, message in (("0\t1\tA_B\tA_B\tx\n", "line 1: expected"), ("0\t1\tA_B\tA_B\n", "no path to a final state"),
                          ("0\t1\tZZ_B\tZZ_B\n1\n", "phone ZZ_B is not one of the language's")):
        (tmp_path / "unk_fst.txt").write_text(text)
        with pytest.raises(UserError, match=message):
            prepare_lang(made / "dict", OOV, tmp_path / "tmp", tmp_path / "lang", LangOptions(unk_fst=str(tmp_path / "unk_fst.txt")))
    with pytest.raises(UserError, match=r"make it with utils/lang/make_unk_lm\.sh"):
        prepare_lang(made / "dict", OOV, tmp_path / "tmp", tmp_path / "lang", LangOptions(unk_fst=str(tmp_path / "none")))
    shutil.copytree(made / "dict", tmp_path / "dict")
    with open(tmp_path / "dict/lexicon.txt", "a") as lexicon:
        lexicon.write(f"{OOV} S\n")
    (tmp_path / "dict/lexiconp.txt").unlink(missing_ok=True)
    with pytest.raises(UserError, match="has several pronunciations"):
        prepare_lang(tmp_path / "dict", OOV, tmp_path / "tmp", tmp_path / "lang", LangOptions(unk_fst=str(made / "unk/unk_fst.txt")))
