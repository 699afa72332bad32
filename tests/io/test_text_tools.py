"""The text tools: round trips, partitions without loss, sentences about bad input; and Kaldi's own scripts on random input."""

from __future__ import annotations

import math
import os
import random
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.io.text_tools.lexicon import disambiguation
from pykaldist.io.text_tools.lists import equal_parts
from pykaldist.io.text_tools.run import DATA_DIRS, MODULES, tool_named

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(name for names in MODULES.values() for name in names)
LAUNCHER = {name: "data_tools" if module == DATA_DIRS else "text_tools" for module, names in MODULES.items() for name in names}
TOKEN = st.text("abcäß01", min_size=1, max_size=3)


def run(name: str, *arguments: object, cwd: Path, given: str = "", utils: Path = ROOT / "utils") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYKALDIST_ROOT": str(ROOT), "LC_ALL": "C.UTF-8"}
    return subprocess.run([str(utils / name), *map(str, arguments)], cwd=cwd, input=given, capture_output=True, text=True, check=False,
                          env=env)


def out(name: str, *arguments: object, cwd: Path, given: str = "") -> str:
    done = run(name, *arguments, cwd=cwd, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_is_a_link_and_shows_its_usage(name, tmp_path):
    assert (ROOT / "utils" / name).resolve() == (ROOT / "utils" / LAUNCHER[name]).resolve()
    tool = tool_named(name)
    helped = run(name, "--help", cwd=tmp_path)
    assert helped.returncode == 0 and helped.stdout.startswith(("Usage: utils/", "Usage: steps/")) and " e.g.: " in helped.stdout
    assert Path(name).name in helped.stdout and tool.usage.splitlines()[0] in helped.stdout
    for option in tool.options:
        assert f"-{option}" in helped.stdout, option
    if tool.least > 0:
        bare = run(name, cwd=tmp_path)
        assert (bare.returncode, bare.stdout) == (1, "") and bare.stderr == helped.stdout
    wrong = run(name, "--no-such-option", "x", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "") and wrong.stderr == \
        f"{Path(name).name}: ERROR: there is no option --no-such-option; --help shows the usage.\n"


def test_a_tool_without_arguments_and_options_it_needs_says_so(tmp_path):
    assert "option --fea-dim is needed" in run("nnet/gen_splice.py", cwd=tmp_path).stderr


# lists ------------------------------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(TOKEN, min_size=1, max_size=12), st.lists(TOKEN, min_size=1, max_size=5))
def test_filter_and_exclude_divide_a_table(tmp_path, keys, wanted):
    (tmp_path / "ids").write_text("".join(f"{key} more\n" for key in wanted), encoding="utf-8")
    table = [f"{key} value {i}\n" for i, key in enumerate(keys)]
    chosen = out("filter_scp.pl", "ids", cwd=tmp_path, given="".join(table)).splitlines(True)
    others = out("filter_scp.pl", "--exclude", "ids", cwd=tmp_path, given="".join(table)).splitlines(True)
    assert chosen == [line for line in table if line.split()[0] in wanted] and others == [line for line in table if line not in chosen]
    turned = "".join(f"{line.split()[2]} {line.split()[0]}\n" for line in table)
    assert len(out("filter_scp.pl", "-f", "2", "ids", cwd=tmp_path, given=turned).splitlines()) == len(chosen)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_equal_parts_lose_nothing_and_are_never_empty(sizes, data):
    count = data.draw(st.integers(1, len(sizes)))
    ends = equal_parts(sizes, count)
    assert ends[0] == 0 and ends[-1] == len(sizes) and len(ends) == count + 1 and all(a < b for a, b in pairwise(ends))
    sums = [sum(sizes[a:b]) for a, b in pairwise(ends)]
    if max(sizes) <= sum(sizes) / count:  # no part need be larger for one group's sake
        assert max(abs(total - sum(sizes) / count) for total in sums) <= max(sizes) + 1e-9
    if set(sizes) == {1}:
        assert max(sums) - min(sums) <= 1 and sums == sorted(sums, reverse=True)


def test_a_table_is_split_by_lines_by_speakers_and_by_job(tmp_path):
    rng = random.Random(3)
    utts = [f"s{s:02d}-{u}" for s in range(9) for u in range(rng.randint(1, 7))]
    (tmp_path / "scp").write_text("".join(f"{utt} x\n" for utt in utts))
    (tmp_path / "utt2spk").write_text("".join(f"{utt} {utt[:3]}\n" for utt in utts))
    for options, by in (((), False), (("--utt2spk=utt2spk",), True)):
        out("split_scp.pl", *options, "scp", *(f"scp.{i}" for i in range(4)), cwd=tmp_path)
        parts = [(tmp_path / f"scp.{i}").read_text() for i in range(4)]
        assert "".join(parts) == (tmp_path / "scp").read_text()
        if by:
            speakers = [{line[:3] for line in part.splitlines()} for part in parts]
            assert sum(map(len, speakers)) == len(set.union(*speakers))
        for i, part in enumerate(parts):
            assert out("split_scp.pl", "-j", "4", str(i), *options, "scp", cwd=tmp_path) == part
            assert out("split_scp.pl", "-j", "4", str(i + 1), "--one-based", *options, "scp", cwd=tmp_path) == part
    few = run("split_scp.pl", "--utt2spk=utt2spk", "scp", *(f"o{i}" for i in range(10)), cwd=tmp_path)
    assert few.returncode == 1 and "has 9 speakers, which is too few for 10 parts" in few.stderr and not list(tmp_path.glob("o*"))
    wrong = run("split_scp.pl", "-j", "4", "4", "scp", cwd=tmp_path)
    assert wrong.returncode == 1 and "expected a job from 0 to 3" in wrong.stderr


def test_a_table_is_divided_by_several_lists_at_once(tmp_path):
    (tmp_path / "scp").write_text("".join(f"u{i} {i}\n" for i in range(10)))
    (tmp_path / "ids.1").write_text("u1\nu4\n")
    (tmp_path / "ids.2").write_text("u0\nu4\nu9\n")
    done = run("filter_scps.pl", "JOB=1:2", "ids.JOB", "scp", "out.JOB", cwd=tmp_path)
    assert done.returncode == 0 and "6 went to no output, 1 to more than one" in done.stderr
    for job in "12":
        assert (tmp_path / f"out.{job}").read_text() == out("filter_scp.pl", f"ids.{job}", "scp", cwd=tmp_path)
    assert run("filter_scps.pl", "JOB=1:2", "ids.1", "scp", "out.JOB", cwd=tmp_path).returncode == 1


@settings(max_examples=15)
@given(st.dictionaries(TOKEN, TOKEN, min_size=1, max_size=12))
def test_speakers_and_utterances_turn_round_and_back(tmp_path, utt2spk):
    table = "".join(f"{utt} {speaker}\n" for utt, speaker in sorted(utt2spk.items(), key=lambda item: item[1]))
    turned = out("utt2spk_to_spk2utt.pl", cwd=tmp_path, given=table)
    assert out("spk2utt_to_utt2spk.pl", cwd=tmp_path, given=turned) == table


def test_subsets_and_shuffles(tmp_path):
    lines = [f"u{i:02d}\n" for i in range(20)]
    (tmp_path / "l").write_text("".join(lines))
    spread = out("subset_scp.pl", "7", "l", cwd=tmp_path).splitlines(True)
    gaps = [lines.index(b) - lines.index(a) for a, b in pairwise(spread)]
    assert len(spread) == 7 and set(gaps) <= {2, 3}
    assert out("subset_scp.pl", "--first", "3", "l", cwd=tmp_path) == "".join(lines[:3])
    assert out("subset_scp.pl", "--last", "3", "l", cwd=tmp_path) == "".join(lines[-3:])
    assert out("subset_scp.pl", "--quiet", "30", "l", cwd=tmp_path) == "".join(lines)
    assert "has 20 lines, 30 were asked for" in run("subset_scp.pl", "30", "l", cwd=tmp_path).stderr
    shuffled = out("shuffle_list.pl", "l", cwd=tmp_path)
    assert sorted(shuffled.splitlines(True)) == lines and shuffled != "".join(lines)
    assert shuffled == out("shuffle_list.pl", "--srand", "0", cwd=tmp_path, given="".join(lines))
    assert shuffled != out("shuffle_list.pl", "--srand", "1", "l", cwd=tmp_path)


def test_word_times_move_to_the_recording(tmp_path):
    (tmp_path / "segments").write_text("utt reco 10.0 20.0\n")
    (tmp_path / "r2f").write_text("reco file A\n")
    assert out("convert_ctm.pl", "segments", "r2f", cwd=tmp_path, given="utt 1 8.0 1.0 word 0.5\n") == "file A 18.00 1.00 word 0.5\n"
    unknown = run("convert_ctm.pl", "segments", "r2f", cwd=tmp_path, given="utt 1 0 1 a\nother 1 0 1 b\n")
    assert unknown.returncode == 1 and "standard input, line 2: utterance other is not in segments" in unknown.stderr
    assert out("convert_ctm.pl", "--skip-unknown", "segments", "r2f", cwd=tmp_path, given="utt 1 0 1 a\nother 1 0 1 b\n").count("\n") == 1


def test_segments_grow_and_do_not_overlap(tmp_path):
    segments = "a r 1.00 2.00\nb r 2.10 3.00\nc q 0.05 1.00\n"
    grown = [line.split() for line in out("data/extend_segment_times.py", "--start-padding=0.2", "--end-padding=0.2",
                                          "--last-segment-end-padding=0.5", cwd=tmp_path, given=segments).splitlines()]
    times = {row[0]: (float(row[2]), float(row[3])) for row in grown}
    assert [row[0] for row in grown] == ["a", "b", "c"] and times["c"] == (0.0, 1.2)
    assert times["a"][0] == pytest.approx(0.8) and times["b"][1] == pytest.approx(3.2) and times["a"][1] == times["b"][0]


# symbols ----------------------------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(st.lists(TOKEN, min_size=1, max_size=6), min_size=1, max_size=5))
def test_symbols_become_numbers_and_symbols_again(tmp_path, sentences):
    symbols = sorted({word for words in sentences for word in words})
    (tmp_path / "words.txt").write_text("<eps> 0\n" + "".join(f"{word} {i}\n" for i, word in enumerate(symbols, 1)), encoding="utf-8")
    text = "".join(f"utt{i} {' '.join(words)}\n" for i, words in enumerate(sentences))
    numbers = out("sym2int.pl", "-f", "2-", "words.txt", cwd=tmp_path, given=text)
    assert all(field.isdigit() for line in numbers.splitlines() for field in line.split()[1:])
    assert [line.split() for line in out("int2sym.pl", "-f", "2-", "words.txt", cwd=tmp_path, given=numbers).splitlines()] == \
        [line.split() for line in text.splitlines()]


def test_unknown_symbols_are_named_with_their_place(tmp_path):
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n<unk> 2\n")
    missing = run("sym2int.pl", "-f", "2-", "words.txt", cwd=tmp_path, given="u1 a\nu2 a b\n")
    assert (missing.returncode, missing.stdout) == (1, "u1 1\n")
    assert "standard input, line 2, field 3: b is not in words.txt" in missing.stderr
    for oov in ("<unk>", "2"):
        mapped = run("sym2int.pl", "--map-oov", oov, "-f", "2-", "words.txt", cwd=tmp_path, given="u1 a b a c\n")
        assert (mapped.returncode, mapped.stdout) == (0, "u1 1 2 1 2\n") and "replaced 2 words" in mapped.stderr
    assert "this symbol is not in words.txt" in run("sym2int.pl", "--map-oov", "x", "words.txt", cwd=tmp_path, given="").stderr
    assert "--map-oov needs a value" in run("sym2int.pl", "--map-oov", "words.txt", "words.txt", cwd=tmp_path, given="").stderr
    assert "line 1, field 1: 7 is not in words.txt" in run("int2sym.pl", "words.txt", cwd=tmp_path, given="7\n").stderr
    assert "line 1, field 2: expected a number, found 'x'" in run("int2sym.pl", "words.txt", cwd=tmp_path, given="1 x\n").stderr
    assert "words.txt, line 1: expected `symbol number`" in run("int2sym.pl", "bad/words.txt", cwd=_with_bad_table(tmp_path)).stderr
    assert "none.txt: No such file or directory" in run("int2sym.pl", "none.txt", cwd=tmp_path).stderr


def _with_bad_table(folder: Path) -> Path:
    (folder / "bad").mkdir()
    (folder / "bad" / "words.txt").write_text("a\n")
    return folder


@pytest.mark.parametrize(("options", "expected"), [((), "a1 a2 b a1 a2\n"), (("-f", "1"), "a1 a2 B A\n"), (("-f", "2-"), "A b a1 a2\n")])
def test_maps_are_applied_to_fields(tmp_path, options, expected):
    (tmp_path / "map").write_text("A a1 a2\nB b\n")
    assert out("apply_map.pl", *options, "map", cwd=tmp_path, given="A B A\n") == expected
    unknown = run("apply_map.pl", "map", cwd=tmp_path, given="A\nC\n")
    assert unknown.returncode == 1 and "line 2: C is not in map" in unknown.stderr
    assert out("apply_map.pl", "--permissive", "map", cwd=tmp_path, given="C A\n") == "C a1 a2\n"


def test_transcripts_with_strange_blanks_are_found(tmp_path):
    for text, words in (("u1 a b\n", ""), ("u1 a\u00a0b\n", "line 1 (u1): found the blank U+00A0"), ("u1 a\r\n", "U+000D"),
                        ("", "is empty"), ("u1 a\nu2 b", "line 2: the line has no end")):
        (tmp_path / "text").write_bytes(text.encode())
        done = run("validate_text.pl", "text", cwd=tmp_path)
        assert done.returncode == bool(words) and words in done.stderr


def test_phones_of_two_tables(tmp_path):
    (tmp_path / "a").write_text("<eps> 0\nx 1\n#0 2\n")
    (tmp_path / "b").write_text("<eps> 0\nx 1\n#0 3\n")
    (tmp_path / "c").write_text("<eps> 0\nx 2\n")
    for second, status in (("b", 0), ("c", 1), ("none", 0)):
        assert run("lang/check_phones_compatible.sh", "a", second, cwd=tmp_path).returncode == status
    assert "neither none nor no exists" in run("lang/check_phones_compatible.sh", "none", "no", cwd=tmp_path).stderr


# lexicon ----------------------------------------------------------------------------------------------------------------------------

PRONUNCIATION = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)


@given(st.lists(PRONUNCIATION, min_size=1, max_size=12), st.integers(1, 3))
def test_disambiguated_pronunciations_are_unique_and_begin_no_other(pronunciations, first):
    numbers, highest = disambiguation(pronunciations, first)
    made = [(*phones, *([f"#{n}"] if n else [])) for phones, n in zip(pronunciations, numbers, strict=True)]
    assert len(set(made)) == len(made) and highest == max([n for n in numbers if n], default=first - 1)
    assert not [(a, b) for a in made for b in made if a != b and b[:len(a)] == a]
    for phones, n in zip(pronunciations, numbers, strict=True):  # those that need none have none
        needs = pronunciations.count(phones) > 1 or any(other != phones and other[:len(phones)] == phones for other in pronunciations)
        assert (n is not None) == needs


def test_the_lexicon_transducer_is_a_distribution(tmp_path):
    """From the loop each pronunciation goes on with and without silence, by the probability of silence."""
    (tmp_path / "lexiconp").write_text("a 1.0 x\nb 0.5 x y\nb 0.5 y\n")
    arcs = [line.split("\t") for line in out("lang/make_lexicon_fst.py", "--sil-phone=SIL", "--sil-prob=0.3", "lexiconp",
                                             cwd=tmp_path).splitlines()]
    mass: dict[str, float] = {}
    for arc in arcs[:-1]:
        mass[arc[0]] = mass.get(arc[0], 0.0) + math.exp(-float(arc[4]))
    assert mass["0"] == pytest.approx(1) and mass["1"] == pytest.approx(2) and arcs[-1] == ["1", "0.0"]
    assert sorted(word for *_, word, _ in arcs[:-1] if word != "<eps>") == ["a", "a", "b", "b", "b"]
    same = out("make_lexicon_fst.pl", "--pron-probs", "lexiconp", "0.3", "SIL", cwd=tmp_path)
    assert same.splitlines() == ["\t".join(arc) for arc in arcs]
    _with(tmp_path, "map", "ZH JH\nONG UH NG\nA AA\nG G\n")
    assert out("pinyin_map.pl", "map", cwd=tmp_path, given="w ZHONG1 A4\nv\n") == "w JH UH1 NG1 AA4\nv\n"
    assert "line 1: map has no line for 'UO' of the syllable GUO2" in run("pinyin_map.pl", "map", cwd=tmp_path, given="w GUO2\n").stderr
    _with(_with(tmp_path, "silprobs", "<s> 0.9\n</s>_s 1.5\n</s>_n 0.5\noverall 0.3\n"), "quiet", "a 0.5 0.25 1.5 2 x y\n")
    quiet = out("lang/make_lexicon_fst_silprob.py", "--sil-phone=SIL", "quiet", "silprobs", cwd=tmp_path)
    arcs = {tuple(line.split("\t")[:4]): math.exp(-float((*line.split("\t"), 0)[4])) for line in quiet.splitlines()[:-2]}
    assert arcs == pytest.approx({("0", "1", "<eps>", "<eps>"): 0.1, ("0", "2", "SIL", "<eps>"): 0.9, ("1", "3", "x", "a"): 1.0,
                                  ("2", "3", "x", "a"): 0.75, ("3", "4", "y", "<eps>"): 1.0, ("4", "1", "<eps>", "<eps>"): 0.75,
                                  ("4", "2", "SIL", "<eps>"): 0.25})
    assert [math.exp(-float(line.split("\t")[1])) for line in quiet.splitlines()[-2:]] == pytest.approx([1.5, 0.5])
    assert out("make_lexicon_fst_silprob.pl", "quiet", "silprobs", "SIL", cwd=tmp_path) == quiet
    assert "quiet, line 1: expected `word probability" in run("lang/make_lexicon_fst_silprob.py", "--sil-phone=SIL", "quiet", "silprobs",
                                                              cwd=_with(tmp_path, "quiet", "a 0.5\n")).stderr
    assert "above 0" in run("lang/make_lexicon_fst.py", "bad", cwd=_with(tmp_path, "bad", "a 0.0 x\n")).stderr
    assert "bad, line 1: <eps> is reserved" in run("make_lexicon_fst.pl", "bad", cwd=_with(tmp_path, "bad", "<eps> x\n")).stderr


def _with(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder


# grammars ---------------------------------------------------------------------------------------------------------------------------


def test_grammars_as_text_lose_sentence_ends_and_unknown_words(tmp_path):
    fst = "0\t1\t<s>\t<s>\t0.5\n1\t2\ta\ta\t1\n1\t0\t<eps>\t<eps>\t2\n2\t3\toov\toov\n2\t3\t</s>\t</s>\n3\t0.25\n"
    (tmp_path / "oovs").write_text("oov\n")
    removed = run("remove_oovs.pl", "oovs", cwd=tmp_path, given=fst)
    assert removed.stderr == "remove_oovs.pl: removed 1 lines.\n" and "oov" not in removed.stdout
    backed = out("eps2disambig.pl", cwd=tmp_path, given=removed.stdout)
    assert "1\t0\t#0\t<eps>\t2\n" in backed and backed.count("#0") == 1
    ended = out("s2eps.pl", cwd=tmp_path, given=backed)
    assert "<s>" not in ended and "</s>" not in ended and "0\t1\t<eps>\t<eps>\t0.5\n" in ended and ended.endswith("3\t0.25\n")
    assert "line 1: the grammar has the word #0" in run("eps2disambig.pl", cwd=tmp_path, given="0\t1\t#0\t#0\n").stderr


ARPA = ("\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1\t<s>\t-0.3\n-1\ta\t-0.2\n-1\tnew\n-1\t</s>\n\n\\2-grams:\n-0.5\ta new\n\n"
        "\\end\\\n")


def test_words_of_arpa_models_are_found_and_mapped(tmp_path):
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n#0 2\n<s> 3\n</s> 4\n")
    assert out("find_arpa_oovs.pl", "words.txt", cwd=tmp_path, given=ARPA) == "new\n"
    assert "no \\data\\ section" in run("find_arpa_oovs.pl", "words.txt", cwd=tmp_path, given="x\n").stderr
    mapped = run("map_arpa_lm.pl", "words.txt", cwd=tmp_path, given=ARPA)
    assert "left out 2 n-grams" in mapped.stderr and "-1\t3 -0.3\n-1\t1 -0.2\n-1\t4\n" in mapped.stdout
    back = out("map_arpa_lm.pl", "--sym2int", "false", "words.txt", cwd=tmp_path, given=mapped.stdout)
    assert "-1\t<s> -0.3\n-1\ta -0.2\n-1\t</s>\n" in back


def test_a_unigram_grammar_sums_to_one(tmp_path):
    lines = [line.split("\t") for line in out("make_unigram_grammar.pl", cwd=tmp_path, given="1 2 1\n3 1\n").splitlines()]
    assert sum(math.exp(-float(line[-1])) for line in lines) == pytest.approx(1) and [len(line) for line in lines] == [5, 5, 5, 2]


# storage ----------------------------------------------------------------------------------------------------------------------------


def test_links_lead_where_they_should(tmp_path):
    (tmp_path / "exp" / "a").mkdir(parents=True)
    (tmp_path / "exp" / "b").mkdir()
    (tmp_path / "exp" / "a" / "f").write_text("f")
    for _ in range(2):  # a link that is there is made anew
        out("ln.pl", "exp/a/f", "exp/b", cwd=tmp_path)
    assert os.readlink(tmp_path / "exp" / "b" / "f") == "../a/f" and (tmp_path / "exp" / "b" / "f").read_text() == "f"
    assert out("make_absolute.sh", "exp/b/f", cwd=tmp_path) == f"{(tmp_path / 'exp' / 'a' / 'f').resolve()}\n"
    assert run("make_absolute.sh", "none/f", cwd=tmp_path).returncode == 1


def test_data_is_divided_among_disks(tmp_path):
    out("create_split_dir.pl", "--suffix", "egs", "disk1", "disk2", "disk3", "exp/storage", cwd=tmp_path)
    assert "is there already" in run("create_split_dir.pl", "disk1", "exp/storage", cwd=tmp_path).stderr
    files = [f"exp/egs.{a}.{b}.ark" for a in range(6) for b in range(6)]
    out("create_data_link.pl", *files, cwd=tmp_path)
    for file in files:
        (tmp_path / file).write_text(file)
    counts = [len(list((tmp_path / f"disk{i}" / "egs").glob("*.ark"))) for i in (1, 2, 3)]
    assert counts == [12, 12, 12] and (tmp_path / "disk2" / "egs" / "README.txt").is_file()
    assert out("create_data_link.pl", "elsewhere.1.ark", cwd=tmp_path) == "" and not (tmp_path / "elsewhere.1.ark").exists()


def test_warnings_are_counted_by_stage(tmp_path):
    (tmp_path / "log").mkdir()
    for name, text in (("acc.1.1", "WARNING x\nWARNING y\n"), ("acc.1.2", "WARNING z\n"), ("update.1", "fine\n")):
        (tmp_path / "log" / f"{name}.log").write_text(text)
    assert out("summarize_warnings.pl", "log", cwd=tmp_path) == "3 warnings in log/acc.*.*.log\n"


# prototypes -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--bottleneck-dim=42"], ["--bottleneck-dim=42", "--no-bottleneck-trick", "--with-dropout"]])
@pytest.mark.parametrize("layers", [0, 1, 4])
def test_the_dimensions_of_a_prototype_fit(tmp_path, options, layers):
    lines = [line.split() for line in out("nnet/make_nnet_proto.py", *options, 440, 1943, layers, 1024, cwd=tmp_path).splitlines()]
    assert (lines[-1] == ["</NnetProto>"]) == (layers == 0)
    lines = [line for line in lines if len(line) > 1]
    dims = [(int(line[2]), int(line[4])) for line in lines]
    assert dims[0][0] == 440 and dims[-1] == (1943, 1943) and all(a[1] == b[0] for a, b in pairwise(dims))
    assert sum(line[0] == "<AffineTransform>" for line in lines) == layers + 1 + bool(options)


def test_the_matrices_of_features(tmp_path):
    assert out("nnet/gen_splice.py", "--fea-dim=3", "--splice=2", "--splice-step=2", cwd=tmp_path) == "<splice> 15 3\n[ -4 -2 0 2 4 ]\n"
    matrix = [[float(x) for x in line.split()] for line in out("nnet/gen_dct_mat.py", "--fea-dim=2", "--splice=3", "--dct-basis=4",
                                                               cwd=tmp_path).splitlines()[1:-1]]
    assert len(matrix) == 8 and {len(row) for row in matrix} == {14}
    for i, a in enumerate(matrix):
        for j, b in enumerate(matrix):
            product = sum(x * y for x, y in zip(a, b, strict=True))
            assert product == pytest.approx(0 if i != j else 2 if i < 2 else 1, abs=1e-9)
    window = out("nnet/gen_hamm_mat.py", "--fea-dim=2", "--splice=2", cwd=tmp_path).splitlines()[1:-1]
    diagonal = [float(row.split()[i]) for i, row in enumerate(window)]
    assert len(diagonal) == 10 and diagonal == pytest.approx(diagonal[::-1])
    assert (min(diagonal), max(diagonal)) == pytest.approx((0.08, 1.0))


# Kaldi's own ------------------------------------------------------------------------------------------------------------------------


def _sample(folder: Path, seed: int) -> dict[str, str]:
    """Random inputs: tables, a lexicon, a grammar; returns what some tools read from standard input."""
    rng = random.Random(seed)
    words = [f"w{i}é" for i in range(30)]
    utts = [f"s{s}-u{u:02d}" for s in range(6) for u in range(rng.randint(1, 9))]
    files = {"words.txt": "<eps> 0\n" + "".join(f"{word} {i}\n" for i, word in enumerate(words, 1)) + "#0 31\n<s> 32\n</s> 33\n",
             "utt2spk": "".join(f"{utt} {utt[:2]}\n" for utt in utts),
             "ids": "".join(f"{utt} x\n" for utt in rng.sample(utts, len(utts) // 2)),
             "scp": "".join(f"{utt}\t{rng.choice(words)} \n" for utt in utts), "map": "".join(f"{w} {w}1 {w}2\n" for w in words),
             "text": "".join(f"{utt} {' '.join(rng.choices(words, k=rng.randint(0, 6)))}\n" for utt in utts), "oovs": "w1é\nw2é\n"}
    lexicon = ["".join(rng.choices("ab", k=rng.randint(1, 4))) for _ in range(15)]
    files["lexicon"] = "".join(f"w{i} {' '.join(phones)}\n" for i, phones in enumerate(lexicon))
    files["pinyin"] = "ZH JH\nONG UH NG\nG G\nUO W AO\nA AA\nER ER\nC T S\nI IY\nSH SH\nCH CH\n"
    files["silprob"] = "<s> 0.9\n</s>_s 1.5\n</s>_n 0.5\noverall 0.3\n"
    files["lexiconp_silprob"] = "".join(f"w{i} {rng.choice(('1.0', '0.5'))} {rng.choice(('0.1', '0.5'))} 1.5 0.7 {' '.join(phones)}\n"
                                        for i, phones in enumerate(lexicon))
    files["lexiconp"] = "".join(f"w{i} {rng.choice(('1.0', '0.5', '0.25'))} {' '.join(phones)}\n" for i, phones in enumerate(lexicon))
    files["fst"] = "".join(f"{rng.randint(0, 5)}\t{rng.randint(0, 5)}\t{w}\t{w}\t{rng.random():.3f}\n"
                           for w in rng.choices([*words[:5], "<eps>", "<s>", "</s>"], k=30)) + "3\t0.5\n"
    files["segments"] = "".join(f"{utt} r{utt[1]} {i * 3} {i * 3 + 2}\n" for i, utt in enumerate(utts))
    files["r2f"] = "".join(f"r{s} file{s} A\n" for s in range(6))
    files["ctm"] = "".join(f"{utt} 1 {rng.random():.3f} {rng.random():.3f} w 0.5\n" for utt in utts)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return files


CALLS = [  # tool, arguments, standard input; %s in a file's name: what the tool writes
    ("filter_scp.pl", "ids scp", ""), ("filter_scp.pl", "--exclude ids scp", ""), ("filter_scp.pl", "-f 2 words.txt scp", ""),
    ("filter_scp.pl", "ids", "utt2spk"), ("utt2spk_to_spk2utt.pl", "utt2spk", ""), ("spk2utt_to_utt2spk.pl", "utt2spk", ""),
    ("sym2int.pl", "-f 2- words.txt text", ""), ("sym2int.pl", "-f 2 words.txt", "scp"), ("sym2int.pl", "--map-oov w3é words.txt text", ""),
    ("apply_map.pl", "-f 2- map", "text"), ("apply_map.pl", "--permissive map", "text"), ("int2sym.pl", "-f 2 words.txt", "numbers"),
    ("split_scp.pl", "scp %1 %2 %3", ""), ("split_scp.pl", "-j 3 1 scp %1", ""), ("split_scp.pl", "-j 3 1 --one-based scp", ""),
    ("subset_scp.pl", "--first 3 scp", ""), ("subset_scp.pl", "--last 3 scp", ""), ("subset_scp.pl", "--quiet 99 scp", ""),
    ("eps2disambig.pl", "", "fst"), ("s2eps.pl", "", "fst"), ("remove_oovs.pl", "oovs", "fst"), ("convert_ctm.pl", "segments r2f ctm", ""),
    ("add_lex_disambig.pl", "lexicon %1", ""), ("add_lex_disambig.pl", "--pron-probs lexiconp %1", ""),
    ("add_lex_disambig.pl", "--first-allowed-disambig 3 lexicon %1", ""), ("lang/make_lexicon_fst.py", "lexiconp", ""),
    ("lang/make_lexicon_fst.py", "--sil-prob=0.5 --sil-phone=SIL lexiconp", ""),
    ("lang/make_lexicon_fst.py", "--sil-prob=0.5 --sil-phone=SIL --sil-disambig=#5 lexiconp", ""), ("add_disambig.pl", "words.txt 3", ""),
    ("add_lex_disambig.pl", "--pron-probs --sil-probs lexiconp_silprob %1", ""),
    ("lang/make_lexicon_fst_silprob.py", "--sil-phone=SIL lexiconp_silprob silprob", ""), ("pinyin_map.pl", "pinyin", "syllables"),
    ("lang/make_lexicon_fst_silprob.py", "--sil-phone=SIL --sil-disambig=#5 lexiconp_silprob silprob", ""),
    ("add_disambig.pl", "--include-zero words.txt 3", ""), ("map_arpa_lm.pl", "words.txt", "arpa"),
    ("find_arpa_oovs.pl", "words.txt", "arpa"),
    ("nnet/make_nnet_proto.py", "440 1943 6 1024", ""), ("nnet/make_nnet_proto.py", "40 30 0 10", ""),
    ("nnet/make_nnet_proto.py", "--bottleneck-dim=42 --with-dropout --dropout-opts=<DropoutRetention>_0.8 440 1943 3 1024", ""),
    ("nnet/make_nnet_proto.py", "--no-softmax --hid-bias-mean=0 --activation-type=<Tanh> --max-norm=5 440 1943 2 100", ""),
    ("nnet/make_nnet_proto.py", "--no-glorot-scaled-stddev --no-smaller-input-weights --block-softmax-dims=10:20 40 30 2 100", ""),
    ("nnet/make_nnet_proto.py", "--bottleneck-dim=30 --no-bottleneck-trick 440 1943 0 100", ""),
    ("nnet/make_cnn_proto.py", "--splice=5 --delta-order=2 1320", ""),
    ("nnet/gen_splice.py", "--fea-dim=13 --splice=4", ""), ("nnet/gen_dct_mat.py", "--fea-dim=5 --splice=3 --dct-basis=4", ""),
    ("nnet/gen_hamm_mat.py", "--fea-dim=5 --splice=3", ""),
    ("data/extend_segment_times.py", "--start-padding=0.15 --end-padding=0.6", "segments"),
]


def _tokens(text: str) -> list[list[object]]:
    """Lines as words and rounded numbers; lines that differ in blanks only are alike."""
    rows = []
    for line in text.splitlines():
        row: list[object] = []
        for word in line.split():
            try:
                row.append(round(float(word), 5))
            except ValueError:
                row.append(word)
        if row:
            rows.append(row)
    return rows


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "arguments", "given"), CALLS, ids=lambda value: str(value)[:40])
def test_kaldis_scripts_say_the_same(kaldi_egs, name, arguments, given, seed, tmp_path):
    found = []
    for utils in (ROOT / "utils", kaldi_egs / "wsj" / "s5" / "utils"):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        files = {**_sample(folder, seed), "arpa": ARPA, "numbers": "x 1\ny 2\n", "": "",
                 "syllables": "w ZHONG1 GUO2\nv A1 ER4\nu CI3 SHI2 CHI1\n"}
        done = run(name, *arguments.replace("%", "out.").split(), cwd=folder, given=files[given], utils=utils)
        written = {path.name: _tokens(path.read_text()) for path in folder.glob("*") if path.name not in files}
        said = _tokens(done.stdout)
        found.append((done.returncode, sorted(said) if name == "find_arpa_oovs.pl" else said, written))  # whose order is Perl's
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(5))
def test_speakers_are_divided_as_well_as_by_kaldi(kaldi_egs, seed, tmp_path):
    """The parts need not be Kaldi's; their sum of squared sizes is not larger by more than a tenth."""
    _sample(tmp_path, seed)
    squares = []
    for utils in (ROOT / "utils", kaldi_egs / "wsj" / "s5" / "utils"):
        assert run("split_scp.pl", "--utt2spk=utt2spk", "scp", "o1", "o2", "o3", cwd=tmp_path, utils=utils).returncode == 0
        squares.append(sum(len((tmp_path / f"o{i}").read_text().splitlines()) ** 2 for i in (1, 2, 3)))
    assert squares[0] <= 1.1 * squares[1]
