"""ConstArpaLm files against the n-gram models that they were made of; rescored lattices against all paths, each with both models' costs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode import const_arpa
from pykaldist.decode.arpa import grammar
from pykaldist.decode.const_arpa import ConstArpaLm, build_const_arpa
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.lm_rescore import Grammar, LanguageModel, lm_rescored
from pykaldist.errors import UserError
from pykaldist.lm.arpa import write_arpa
from pykaldist.lm.model import NgramModel
from pykaldist.lm.smoothing import estimate

from .conftest import run
from .test_lattice import enumerate_paths, random_lattice

WORDS = ["a", "b", "c", "d"]
SYMBOLS = {word: number for number, word in enumerate(["<eps>", *WORDS, "<unk>", "#0", "<s>", "</s>"])}
UNK = SYMBOLS["<unk>"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), min_size=1, max_size=12)
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=6)
RICH = [line.split() for line in ("a b c d", "a b a b", "c a b d a", "d d a b", "b c d", "a b c a b c d", "c c c")]


def files(folder: Path, model: NgramModel) -> tuple[Path, Path, Path]:
    """ARPA, words.txt and G.carpa of a model."""
    arpa, words, carpa = folder / "lm.arpa", folder / "words.txt", folder / "G.carpa"
    write_arpa(model, arpa)
    words.write_text("".join(f"{word} {number}\n" for word, number in SYMBOLS.items()))
    build_const_arpa(arpa, SYMBOLS, UNK, carpa)
    return arpa, words, carpa


def cost(model: LanguageModel, sentence: list[int] | tuple[int, ...]) -> float:
    state, total = model.start, 0.0
    for word in sentence:
        step = model.step(state, word)
        if step is None:
            return math.inf
        state, total = step[0], total + step[1]
    return total + model.final(state)


def expected(model: NgramModel, sentence: list[str]) -> float:
    words = ["<s>", *sentence, "</s>"]
    return -sum(math.log(model.probability(words[i], words[:i])) for i in range(1, len(words)))


@settings(max_examples=20)
@given(TEXTS, st.integers(1, 5), st.lists(SENTENCES, min_size=1, max_size=5), st.sampled_from([const_arpa.FARTHEST, 8, 1]))
def test_a_sentence_costs_what_the_model_says(tmp_path: Path, text: list[list[str]], order: int, sentences: list[list[str]],
                                              farthest: int) -> None:
    """With small distances, most children are in the table of distant ones."""
    model = estimate(text, [*WORDS, "<unk>"], order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(const_arpa, "FARTHEST", farthest)
        patch.setattr(const_arpa, "_BLOCK", farthest)
        arpa, words, carpa = files(tmp_path, model)
    asked, fst = ConstArpaLm(carpa), Grammar(grammar(arpa, words)[0], "G.fst")
    for sentence in sentences:
        numbers = [SYMBOLS[word] for word in sentence]
        assert cost(asked, numbers) == pytest.approx(expected(model, sentence), rel=1e-5, abs=1e-5)
        assert cost(fst, numbers) == pytest.approx(expected(model, sentence), rel=1e-5, abs=1e-5)


def test_histories_are_no_longer_than_they_matter(tmp_path: Path) -> None:
    lm = ConstArpaLm(files(tmp_path, estimate(RICH, [*WORDS, "<unk>"], 3))[2])
    a, c, d = (SYMBOLS[word] for word in "acd")
    step = lm.step(lm.start, a)
    assert step is not None and step[0] == (lm.bos, a)
    step = lm.step((d, d), c)  # "d c" was never seen
    assert step is not None and step[0] == (c,)
    step = lm.step((c,), 77)  # no word of the model: it is taken for the unknown one
    assert step is not None and step == lm.step((c,), UNK)


def test_words_outside_are_left_out_and_counted(tmp_path: Path) -> None:
    arpa, _, carpa = files(tmp_path, estimate(RICH, [*WORDS, "<unk>"], 3))
    fewer = {word: number for word, number in SYMBOLS.items() if word != "d"}
    kept = build_const_arpa(arpa, fewer, UNK, carpa)
    grams = [line.split()[1:] for line in arpa.read_text().splitlines() if "\t" in line]
    assert sum(kept) == sum("d" not in words for words in grams) < len(grams)
    assert ConstArpaLm(carpa).step((SYMBOLS["a"],), SYMBOLS["d"]) == ConstArpaLm(carpa).step((SYMBOLS["a"],), UNK)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    carpa = files(tmp_path, estimate(RICH, [*WORDS, "<unk>"], 3))[2]
    content = carpa.read_bytes()
    for size in range(0, len(content), 7):
        carpa.write_bytes(content[:size])
        with pytest.raises(UserError, match=r"G\.carpa is (damaged|empty).*build_const_arpa_lm\.sh"):
            ConstArpaLm(carpa)
    with pytest.raises(UserError, match="does not exist"):
        ConstArpaLm(tmp_path / "none")
    at = content.index(b"<LmStates> ") + 20 + 8  # a number of children that is too large
    carpa.write_bytes(content[:at] + b"\xff\xff\xff\x7f" + content[at + 4 :])
    damaged = ConstArpaLm(carpa)
    with pytest.raises(UserError, match="damaged"):
        for word in SYMBOLS.values():
            damaged.step((word,), 1)


def test_text_before_the_model_is_no_part_of_it(tmp_path: Path) -> None:
    """As in the files of the CMU toolkit, which describe the format there, section by section."""
    arpa, _, carpa = files(tmp_path, estimate(RICH, [*WORDS, "<unk>"], 2))
    described = tmp_path / "described.arpa"
    before = "Data formats:\n\\1-grams:\np_1 wd_1 bo_wt_1\n\\2-grams:\np_2 wd_1 wd_2\nend of data mark: \\end\\\n\n"
    described.write_text(before + arpa.read_text())
    build_const_arpa(described, SYMBOLS, UNK, tmp_path / "described.carpa")
    assert (tmp_path / "described.carpa").read_bytes() == carpa.read_bytes()


def best_of(lattice: Lattice) -> dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]]:
    """(graph cost, acoustic cost, transition-ids) of each word sequence, which a determinised lattice has once."""
    paths = enumerate_paths(lattice)
    found = {words: (graph, acoustic, ids) for words, graph, acoustic, ids in paths}
    assert len(found) == len(paths)
    return found


@settings(max_examples=20)
@given(TEXTS, TEXTS, st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_every_path_has_the_new_costs(tmp_path: Path, text: list[list[str]], other: list[list[str]], seed: int, order: int, longer: int,
                                      const: bool) -> None:
    lattice = determinize(random_lattice(seed, len(WORDS) + 1), 1.0, 1e6)
    old_model, new_model = estimate(text, [*WORDS, "<unk>"], order), estimate(other, [*WORDS, "<unk>"], longer)
    arpa, words, _ = files(tmp_path, old_model)
    old = Grammar(grammar(arpa, words)[0], "old")
    arpa, words, carpa = files(tmp_path, new_model)
    new: LanguageModel = ConstArpaLm(carpa) if const else Grammar(grammar(arpa, words)[0], "new")
    found, before = best_of(lm_rescored(lattice, [(old, -1.0), (new, 1.0)], "here")), best_of(lattice)
    assert found.keys() == before.keys()
    for path, (graph, acoustic, ids) in found.items():
        spelled = [WORDS[word - 1] for word in path]
        assert graph == pytest.approx(before[path][0] - expected(old_model, spelled) + expected(new_model, spelled), abs=1e-3)
        assert acoustic == pytest.approx(before[path][1], abs=1e-4) and ids == before[path][2]


def test_paths_that_a_model_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arpa, words, _ = files(tmp_path, estimate(RICH, [*WORDS, "<unk>"], 2))
    fst = grammar(arpa, words)[0]
    some = Grammar(fst, "G.fst")
    none = Grammar(fst, "G.fst")
    monkeypatch.setattr(none, "step", lambda state, word: None)  # a model without any word
    lattice = determinize(random_lattice(3), 1.0, 1e6)
    assert () not in best_of(lattice)
    with pytest.raises(UserError, match="utt1: no path of the lattice is a sentence of both"):
        lm_rescored(lattice, [(some, -1.0), (none, 1.0)], "utt1")
    fst.olabel[:] = 1
    with pytest.raises(UserError, match=r"G\.fst, state \d+: has two arcs of one word"):
        cost(Grammar(fst, "G.fst"), [1])


def test_the_scripts(tmp_path: Path, root: Path) -> None:
    """A lattice is rescored by both scripts with one model in both forms, and back; files and words that do not fit are named."""
    for name in ("steps", "utils"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "path.sh").write_text(f". {root}/path.sh\n")
    old_model, new_model = estimate(RICH, [*WORDS, "<unk>"], 2), estimate(RICH[3:], [*WORDS, "<unk>"], 4)
    for name, model in (("old", old_model), ("new", new_model)):
        (tmp_path / name).mkdir()
        arpa, words, _ = files(tmp_path / name, model)
        grammar(arpa, words)[0].write(tmp_path / name / "G.fst")
        (tmp_path / name / "G.carpa").unlink()
        (tmp_path / name / "oov.int").write_text(f"{UNK}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "decode").mkdir()
    (tmp_path / "decode/num_jobs").write_text("2\n")
    lattices = {f"utt{seed}": determinize(random_lattice(seed, len(WORDS) + 1), 1.0, 1e6) for seed in range(4)}
    for job in (1, 2):
        write_lattices(tmp_path / f"decode/lat.{job}.gz", list(lattices.items())[2 * job - 2 : 2 * job])
    result = run(tmp_path, "utils/build_const_arpa_lm.sh", "new/lm.arpa", "new", "const")
    assert result.returncode == 0 and "const/G.carpa: " in result.stdout, result.stderr
    for script, lang in (("lmrescore.sh", "new"), ("lmrescore_const_arpa.sh", "const")):
        result = run(tmp_path, f"steps/{script}", "old", lang, "data", "decode", f"decode_{lang}")
        assert result.returncode == 0 and result.stdout.endswith(f"{script}: lattices in decode_{lang}\n"), result.stderr
    result = run(tmp_path, "steps/lmrescore.sh", "--mode", "1", "new", "old", "data", "decode_const", "back")
    assert result.returncode == 0, result.stderr
    for job in (1, 2):
        made = {name: dict(read_lattices(tmp_path / name / f"lat.{job}.gz")) for name in ("decode_new", "decode_const", "back")}
        assert list(made["back"]) == list(lattices)[2 * job - 2 : 2 * job]
        for utt in made["back"]:
            new, const, back = (best_of(made[name][utt]) for name in ("decode_new", "decode_const", "back"))
            assert new.keys() == const.keys() == back.keys()
            for path, (graph, _, _) in best_of(lattices[utt]).items():
                assert new[path][0] == pytest.approx(const[path][0], abs=1e-3)
                assert back[path][0] == pytest.approx(graph, abs=1e-3)
                spelled = [WORDS[word - 1] for word in path]
                assert new[path][0] - graph == pytest.approx(expected(new_model, spelled) - expected(old_model, spelled), abs=1e-3)
    result = run(tmp_path, "steps/lmrescore_const_arpa.sh", "old", "new", "data", "decode", "decode_2")
    assert result.returncode == 1 and "ERROR: new/G.carpa does not exist" in result.stderr
    (tmp_path / "new/words.txt").write_text((tmp_path / "new/words.txt").read_text().replace("a 1\n", "a 2\n").replace("b 2\n", "b 1\n"))
    result = run(tmp_path, "steps/lmrescore.sh", "old", "new", "data", "decode", "decode_2")
    assert result.returncode == 1 and "new/words.txt has a as number 2, old/words.txt as 1" in result.stderr
    assert not list((tmp_path / "decode_2").glob("lat.*"))
