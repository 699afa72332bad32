"""OpenFst's and Kaldi's FST programs, in pipelines of the forms that recipes have, and beside OpenFst's own programs where installed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kaldifst
import pytest

ROOT = Path(__file__).resolve().parents[2]
# a bigram model with a back-off of each kind: `b` is never a history, so that its state is one from which one can only back off
ARPA = """
\\data\\
ngram 1=4
ngram 2=4

\\1-grams:
-99 <s> -0.3
-0.6 </s>
-0.5 a -0.2
-0.7 b -0.1

\\2-grams:
-0.4 <s> a
-0.9 a b
-0.3 a </s>
-0.8 b a

\\end\\
"""
WORDS = "<eps> 0\na 1\nb 2\n#0 3\n<s> 4\n</s> 5\n"
OPENFST = shutil.which("fstcompile", path=os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if "src/bin" not in p))


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., str]:
    """A function that runs a line of bash and gives what it has printed."""
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}"}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    (tmp_path / "lm").write_text(ARPA)
    (tmp_path / "words.txt").write_text(WORDS)

    def run(line: str, status: int = 0) -> str:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout

    return run


def cost(path: Path, *labels: int) -> float:
    """The cost of the best path with these input labels, epsilons and #0 (3) between them."""
    fst = kaldifst.StdVectorFst.read(str(path))
    best = {fst.start: 0.0}

    def follow(states: dict[int, float], wanted: int) -> dict[int, float]:
        found: dict[int, float] = {}
        for state, so_far in states.items():
            for arc in kaldifst.ArcIterator(fst, state):
                if arc.ilabel == wanted:
                    found[arc.nextstate] = min(found.get(arc.nextstate, 1e9), so_far + arc.weight.value)
        return found

    def backed_off(states: dict[int, float]) -> dict[int, float]:
        for _ in range(4):
            for label in (0, 3):
                for state, value in follow(states, label).items():
                    states[state] = min(states.get(state, 1e9), value)
        return states

    for label in labels:
        best = follow(backed_off(best), label)
    return min(value + fst.final(state).value for state, value in backed_off(best).items())


def test_the_newer_way_to_g(shell, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As wsj's and yesno's local/ have it; costs are those of the model's probabilities, in natural logarithms."""
    shell("gzip -k lm; gunzip -c lm.gz | arpa2fst --disambig-symbol=#0 --read-symbol-table=words.txt - G.fst")
    ln10 = 2.302585
    assert cost(tmp_path / "G.fst", 1) == pytest.approx((0.4 + 0.3) * ln10, abs=1e-4)  # <s> a </s>
    assert cost(tmp_path / "G.fst", 1, 2, 1) == pytest.approx((0.4 + 0.9 + 0.1 + 0.5 + 0.3) * ln10, abs=1e-4)
    assert cost(tmp_path / "G.fst", 2) == pytest.approx((0.3 + 0.7 + 0.1 + 0.6) * ln10, abs=1e-4)  # by back-offs only
    largest, least = map(float, shell("fstisstochastic G.fst", 1).split())
    assert largest > least > -5
    assert "cyclic                                            y" in shell("fstinfo G.fst | grep cyclic | head -1")
    shell("arpa2fst --disambig-symbol=#0 --read-symbol-table=words.txt lm again.fst && cmp G.fst again.fst")
    shell("arpa2fst --disambig-symbol=#0 --write-symbol-table=w.txt lm H.fst; fstprint --isymbols=w.txt --osymbols=w.txt H.fst | grep '#0'")


def test_the_older_way_to_g(shell, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As an4's run.sh has it: symbols inside the FST, text between the programs."""
    shell("""arpa2fst lm | fstprint | awk '$3 != "<s>" || 1' | sed 's/<eps>/#0/' |
             fstcompile --isymbols=words.txt --osymbols=words.txt --keep_isymbols=false --keep_osymbols=false |
             fstrmepsilon | fstarcsort > G.fst""")
    ln10 = 2.302585
    assert cost(tmp_path / "G.fst", 4, 1, 5) == pytest.approx((0.4 + 0.3) * ln10, abs=1e-4)
    assert kaldifst.StdVectorFst.read(str(tmp_path / "G.fst")).is_ilabel_sorted


def test_lexicon_and_grammar(shell, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As rm's local/ and utils/mkgraph.sh have it: L o G, determinised, minimised, and what it accepts."""
    (tmp_path / "phones.txt").write_text("<eps> 0\nx 1\ny 2\n#0 3\n#1 4\n")
    (tmp_path / "L.txt").write_text("0 1 x a\n1 0 y <eps>\n0 2 x b\n2 0 #1 <eps>\n0 0.1\n")
    shell("arpa2fst --disambig-symbol=#0 --read-symbol-table=words.txt lm G.fst")
    shell("""fstcompile --isymbols=phones.txt --osymbols=words.txt -keep_osymbols=false L.txt |
             fstaddselfloops "echo 3|" "echo 3 |" | fstarcsort --sort_type=olabel > L.fst
             fsttablecompose L.fst G.fst | fstdeterminizestar --use-log=true | fstminimizeencoded | fstpushspecial |
             fstrmsymbols "printf '3\\n4\\n' |" | fstrmepslocal | fstarcsort > LG.fst""")
    shell("fstcompile --acceptor --isymbols=phones.txt > xyx.fst <<< $'0 1 x\n1 2 y\n2 3 x\n3'")
    words = shell("fstcompose xyx.fst LG.fst | fstproject --project_output=true | fstshortestpath | fstprint --acceptor "
                  "--isymbols=words.txt | cut -f 3 | grep '[ab]' | sort")
    assert words.split() == ["a", "b"]
    assert shell("fstcompose L.fst G.fst | fstdeterminizestar | fstprint | wc -l") == \
        shell("fsttablecompose L.fst G.fst - | fstdeterminizestar | fstprint | wc -l")


def test_symbols_arcs_and_penalties(shell) -> None:  # type: ignore[no-untyped-def]
    make = "printf '0 0 1 1\\n0 0 3 2 0.5\\n0\\n' | fstcompile | fstrmsymbols"
    assert shell(f"{make} 'echo 3; echo 4|' | fstprint") == "0\t0\t1\t1\n0\t0\t0\t2\t0.5\n0\n"
    assert shell(f"{make} --remove-from-output=true 'echo 2|' | fstprint") == "0\t0\t1\t1\n0\t0\t3\t0\t0.5\n0\n"
    assert shell(f"{make} --remove-arcs=true 'echo 3|' | fstprint") == "0\t0\t1\t1\n0\n"
    assert shell(f"{make} --penalty=2 'echo 3|' | fstprint") == "0\t0\t1\t1\n0\t0\t3\t2\t2.5\n0\n"
    halves = shell("printf '0 1 1 2 0.6931472\\n0 1 2 2 0.6931472\\n1\\n' | fstcompile | fstisstochastic")
    assert max(abs(float(value)) for value in halves.split()) < 1e-6
    assert shell("printf '0 1 1 2 1\\n1\\n' | fstcompile | fstisstochastic --test-in-log=false", 1) == "1 0\n"
    assert shell("printf '0 1 1 2 1\\n1\\n' | fstcompile --fst_type=const | fstinvert | fstprint") == "0\t1\t2\t1\t1\n1\n"
    table = "k\n0 1 1 2\n1\n\nl\n0 1 3 4 0.5\n1\n\n"
    assert shell(f"printf '{table}' > t; sed 's/^k$/k /;s/^l$/l /' t | fstcopy ark:- ark,t:-").split() == table.split()


def test_what_is_no_fst_is_a_sentence(shell, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for line, said in (("fstarcsort G.txt out", "found an FST as text; compile it with fstcompile"),
                       ("fstprint < /dev/null", "found nothing"),
                       ("fstcompose G.txt nowhere", "found an FST as text"), ("fstprint nowhere", "nowhere does not exist"),
                       ("arpa2fst G.txt out", "has no \\data\\ section"),
                       ("arpa2fst --disambig-symbol=#1 --read-symbol-table=words.txt lm out", "words.txt has no #1"),
                       ("arpa2fst --read-symbol-table=nowhere lm out", "nowhere does not exist"),
                       ("sed 's/-0.8/x0.8/' lm | arpa2fst - out", "cannot be made an FST"),
                       ("head -c 80 lm | arpa2fst - out", "cannot be made an FST"),
                       ("fstaddselfloops 'echo 1|' 'echo|' G.fst", "expected as many"),
                       ("fstarcsort --sort_type=x G.txt", "expected ilabel or olabel")):
        (tmp_path / "G.txt").write_text("0 1 1 1\n1\n")
        assert said in shell(f"{line} 2>&1", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(OPENFST is None, reason="OpenFst's own programs are not installed (Debian's libfst-tools)")
@pytest.mark.parametrize("seed", range(4))
def test_openfsts_own_programs_agree(shell, tmp_path: Path, seed: int) -> None:  # type: ignore[no-untyped-def]
    """Every operation on random acyclic FSTs, beside OpenFst's own program on the same file."""
    rng = random.Random(seed)
    arcs = [f"{s} {rng.randint(s + 1, 7)} {rng.randint(0, 3)} {rng.randint(0, 3)} {rng.randint(0, 8) / 4}\n"
            for s in range(7) for _ in range(3)]
    (tmp_path / "t").write_text("".join(arcs) + "7 0.25\n5\n")
    own = Path(str(OPENFST)).parent
    for program in ("fstcompile t", "fstarcsort a", "fstarcsort --sort_type=olabel a", "fstinvert a", "fstproject --project_type=output a",
                    "fstrmepsilon a", "fstreverse a", "fstconnect a", "fstshortestpath --nshortest=2 a", "fstcompose s a",
                    "fstdeterminize p", "fstminimize d", "fstprint a", "fstinfo a", "fstprint --acceptor p"):
        for name, line in (("a", "fstcompile t"), ("s", "fstarcsort --sort_type=olabel a"), ("p", "fstproject a | fstrmepsilon"),
                           ("d", "fstdeterminize p")):
            if not (tmp_path / name).exists():
                shell(f"{line} > {name}")
        words = program.split()
        text = words[0] in ("fstprint", "fstinfo")
        then = "" if text else f" | {own}/fstprint"
        assert shell(f"{program}{then}") == shell(f"{own}/{program}{then}"), program


def test_kaldis_own_yesno_makes_its_grammar(kaldi_egs: Path, tmp_path: Path) -> None:
    """Its local/prepare_lm.sh, unedited, with an empty path.sh in the place of one that looks for a Kaldi."""
    recipe = tmp_path / "s5"
    shutil.copytree(kaldi_egs / "yesno/s5", recipe, symlinks=True, ignore=shutil.ignore_patterns("steps", "utils"))
    (recipe / "path.sh").write_text("")
    (recipe / "utils").symlink_to(ROOT / "utils")
    done = subprocess.run(["bash", "-c", f". {ROOT}/path.sh; local/prepare_dict.sh && "
                           "utils/prepare_lang.sh --position-dependent-phones false "
                           "data/local/dict '<SIL>' data/local/lang data/lang && local/prepare_lm.sh"], cwd=recipe, capture_output=True,
                          text=True, check=False, env={"PYKALDIST_PYTHON": sys.executable, **os.environ})
    assert done.returncode == 0 and "1.20397 1.20397\n" in done.stdout, done.stdout + done.stderr
    assert "no such" not in done.stderr.lower() and "cycles" not in done.stdout
    assert cost(recipe / "data/lang_test_tg/G.fst", 2, 3) == pytest.approx(3 * 2.302585, abs=1e-3)
