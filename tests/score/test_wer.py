from __future__ import annotations

import kaldialign
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.score.alignment import GAP, align
from pykaldist.score.details import operation_details, speaker_details, utterance_details
from pykaldist.score.wer import compute_wer, edit_counts

sentences = st.lists(st.sampled_from("abcd"), max_size=9)


def levenshtein(ref: list[str], hyp: list[str]) -> int:
    if not ref or not hyp:
        return len(ref) + len(hyp)
    return min(levenshtein(ref[1:], hyp[1:]) + (ref[0] != hyp[0]), levenshtein(ref[1:], hyp) + 1, levenshtein(ref, hyp[1:]) + 1)


@given(st.lists(st.sampled_from("abc"), max_size=5), st.lists(st.sampled_from("abc"), max_size=5))
def test_errors_are_the_levenshtein_distance(ref: list[str], hyp: list[str]) -> None:
    ins, dels, subs = edit_counts(ref, hyp)
    assert ins + dels + subs == levenshtein(ref, hyp)
    assert ins - dels == len(hyp) - len(ref)


@given(sentences, sentences)
def test_alignment_spells_both_sides_at_the_least_cost(ref: list[str], hyp: list[str]) -> None:
    pairs = align(ref, hyp)
    assert [r for r, _ in pairs if r != GAP] == ref and [h for _, h in pairs if h != GAP] == hyp
    assert sum(r != h for r, h in pairs) == kaldialign.edit_distance(ref, hyp)["total"] == sum(edit_counts(ref, hyp))


def test_ties_go_as_in_kaldi() -> None:
    # compute-wer takes a substitution only where strictly better, so this costs an insertion and a deletion; align-text substitutes.
    assert edit_counts(list("ab"), list("bc")) == (1, 1, 0)
    assert align(list("ab"), list("bc")) == [("a", "b"), ("b", "c")]
    assert edit_counts(list("ab"), list("xy")) == (0, 0, 2)


def test_the_lines_of_compute_wer() -> None:
    refs = {"u1": list("abc"), "u2": list("de"), "u3": ["f"]}
    stats = compute_wer(refs, {"u1": list("axcd"), "u2": list("de")})
    assert str(stats) == ("%WER 40.00 [ 2 / 5, 1 ins, 0 del, 1 sub ] [PARTIAL]\n%SER 50.00 [ 1 / 2 ]\n"
                          "Scored 2 sentences, 1 not present in hyp.\n")
    everything = compute_wer(refs, {"u1": list("abc"), "u2": list("de")}, mode="all")
    assert (everything.words, everything.deletions, everything.sentences, everything.absent) == (6, 1, 3, 1)


def test_what_cannot_be_scored_is_an_error() -> None:
    with pytest.raises(UserError, match="no hypothesis"):
        compute_wer({"u": ["a"]}, {})
    with pytest.raises(UserError, match=r"such as v, have a hypothesis and no reference"):
        compute_wer({"u": ["a"]}, {"v": ["a"]})
    with pytest.raises(UserError, match="hold no word"):
        compute_wer({"u": []}, {"u": ["a"]})


def test_details_have_kaldis_form() -> None:
    words = [f"word-{letter}" for letter in "ABCDEFXY"]
    a, b, c, d, e, f, x, y = words
    text, counts = utterance_details("UTT-A", align([a, b, c, d, e, f], [y, a, b, c, e, x]))
    assert text == ("UTT-A ref    ***   word-A  word-B  word-C  word-D  word-E  word-F\n"
                    "UTT-A hyp  word-Y  word-A  word-B  word-C    ***   word-E  word-X\n"
                    "UTT-A op      I       C       C       C       D       C       S  \n"
                    "UTT-A #csid 4 1 1 1\n")
    assert counts == {"C": 4, "S": 1, "I": 1, "D": 1}
    # the example in wer_per_spk_details.pl
    assert speaker_details([("A", {"C": 3, "S": 1, "I": 1, "D": 1})]) == (
        "SPEAKER         id       #SENT      #WORD       Corr        Sub        Ins        Del        Err      S.Err\n"
        "A               raw          1          5          3          1          1          1          3          1\n"
        "A               sys          1          5      60.00      20.00      20.00      20.00      60.00     100.00\n"
        "SUM             raw          1          5          3          1          1          1          3          1\n"
        "SUM             sys          1          5      60.00      20.00      20.00      20.00      60.00     100.00\n")


def test_operations_have_kaldis_form() -> None:
    a, b, c, d, e, x = (f"word-{letter}" for letter in "ABCDEX")
    pairs = [(a, a), (GAP, a), (b, b), (c, GAP), (d, d), (e, x), (d, d)]  # the example in wer_ops_details.pl, and one word more
    assert operation_details([pairs]) == ("correct       word-D    word-D    2\ncorrect       word-A    word-A    1\n"
                                          "correct       word-B    word-B    1\ndeletion      word-C       ***    1\n"
                                          "insertion        ***    word-A    1\nsubstitution  word-E    word-X    1\n")
    long = operation_details([[("a" * 20, "b")] * 10])
    assert long == f"substitution  {'a' * 20}    {'b':>16}    10\n"
