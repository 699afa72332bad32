"""Edits of a recognised path against its transcript, and the good segments between errors: worked examples and invariants."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.ctm import Spoken
from pykaldist.errors import UserError
from pykaldist.io.lang import EPSILON, LangDir
from pykaldist.score.cleanup import edits_of_jobs, write_edits
from pykaldist.score.edits import Edit, edits_of, non_scored_words
from pykaldist.score.good_segments import Segment, SegmentOptions, good_segments

SHORT = SegmentOptions(min_segment_length=0.1, min_new_segment_length=0.1, max_junk_proportion=0.15)


@pytest.fixture(scope="module")
def lang(tmp_path_factory: pytest.TempPathFactory) -> LangDir:
    from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang

    base = tmp_path_factory.mktemp("lang")
    (base / "dict").mkdir()
    for name, text in (("silence_phones", "SIL\nSPN\nNSN\n"), ("nonsilence_phones", "A\nB\n"), ("optional_silence", "SIL\n"),
                       ("lexicon", "<unk> SPN\n<noise> NSN\na A\nb B\nc A B\nd B A\n")):
        (base / "dict" / f"{name}.txt").write_text(text)
    prepare_lang(base / "dict", "<unk>", base / "tmp", base / "lang", LangOptions())
    return LangDir(base / "lang")


def spoken(lang: LangDir, text: str) -> list[Spoken]:
    """`a b _ c`: words of 20 frames, silences (_) of 10."""
    parts, at = [], 0
    for word in text.split():
        frames = 10 if word == "_" else 20
        parts.append(Spoken(0 if word == "_" else lang.words[word], at, frames, ()))
        at += frames
    return parts


def kinds(lang: LangDir, said: str, written: str) -> str:
    edits = edits_of(spoken(lang, said), written.split(), lang, non_scored_words(lang))
    assert sum(edit.frames for edit in edits) == sum(part.frames for part in spoken(lang, said))
    return " ".join(edit.kind if edit.kind in ("sil", "cor") else f"{edit.kind}:{edit.hyp}/{edit.ref}" for edit in edits)


def test_edits_by_hand(lang: LangDir) -> None:
    assert non_scored_words(lang) == {"<noise>"}
    assert kinds(lang, "_ a b _", "a b") == "sil cor cor sil"
    assert kinds(lang, "a c _ b", "a d b") == "cor sub:c/d sil cor"
    assert kinds(lang, "a _ b", "a c d b") == f"cor del:{EPSILON}/c del:{EPSILON}/d sil cor"
    assert kinds(lang, "a c b", "a b") == f"cor ins:c/{EPSILON} cor"
    assert kinds(lang, "<unk> b", "zebra b") == "cor cor"  # a word that the lexicon lacks
    assert kinds(lang, "a <noise> b", "a b") == "cor fix:<noise>/<noise> cor"  # a noise that is not written
    assert kinds(lang, "a b", "a <noise> b") == "cor cor"  # one that is not there
    assert kinds(lang, "a c b c b d", "a c b d") == "cor fix:c/c fix:b/b cor cor cor"  # said again
    assert kinds(lang, "a <unk> b", "a b") == f"cor ins:<unk>/{EPSILON} cor"


def segments(lang: LangDir, said: str, written: str, options: SegmentOptions = SHORT) -> list[tuple[int, int, str]]:
    edits = edits_of(spoken(lang, said), written.split(), lang, non_scored_words(lang))
    return [(part.start, part.end, " ".join(part.words)) for part in good_segments(edits, lang.oov, options)]


def test_segments_by_hand(lang: LangDir) -> None:
    assert segments(lang, "_ a b _", "a b") == [(0, 60, "a b")]
    # a substitution: 0.05 s of it stay on both sides as <unk>
    assert segments(lang, "a b c d a b", "a b d d a b") == [(0, 45, "a b <unk>"), (55, 120, "<unk> d a b")]
    # too much of a segment would be padding: none
    assert segments(lang, "a b d", "a c d") == [(0, 20, "a"), (40, 60, "d")]
    # silence beside an error: 0.05 s of it stay, without a word
    assert segments(lang, "a b c _ d _ a b c", "a b c c a b c") == [(0, 65, "a b c"), (95, 160, "a b c")]
    # words nobody said, between two words without a pause: one stays in the text, two do not; at a pause they cut
    assert segments(lang, "a b c d", "a b a c d") == [(0, 80, "a b a c d")]
    assert segments(lang, "a b c d", "a b a a c d") == [(0, 80, "a b c d")]
    assert segments(lang, "a b _ c d", "a b a c d") == [(0, 40, "a b"), (45, 90, "c d")]
    # repetitions, noises and unknown words are in the text as they were said
    assert segments(lang, "a c c <noise> d", "a c d") == [(0, 100, "a c c <noise> d")]
    assert segments(lang, "a <unk> d", "a zebra d") == [(0, 60, "a zebra d")]
    # an unknown word beside an error is not sure
    assert segments(lang, "a b c <unk> d a b c", "a b c zebra c a b c")[0] == (0, 65, "a b c")
    assert segments(lang, "b", "a") == [] and segments(lang, "_", "a") == []


def test_lengths(lang: LangDir) -> None:
    edits = [Edit(0, 90, EPSILON, EPSILON, "sil", False), Edit(90, 40, "a", "a", "cor"), Edit(130, 250, EPSILON, EPSILON, "sil", False),
             Edit(380, 110, "b", "b", "cor")]
    assert good_segments(edits, "<unk>", SegmentOptions()) == [Segment(40, 180, ("a",)), Segment(330, 490, ("b",))]
    long = SegmentOptions(min_new_segment_length=1.5)
    assert good_segments(edits, "<unk>", long) == [Segment(330, 490, ("b",))]
    whole = [Edit(0, 60, "a", "a", "cor")]
    assert good_segments(whole, "<unk>", SegmentOptions()) == [Segment(0, 60, ("a",))]  # an utterance as it was may be shorter
    assert good_segments([], "<unk>", SegmentOptions()) == []
    with pytest.raises(UserError, match="--min-segment-length"):
        SegmentOptions(min_segment_length=2.0)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "c", "d", "_", "<noise>", "<unk>"]), max_size=12),
       st.lists(st.sampled_from(["a", "b", "c", "d", "zebra", "<noise>"]), max_size=8))
def test_segments_lie_in_order_and_say_what_was_said(lang: LangDir, said: list[str], written: list[str]) -> None:
    edits = edits_of(spoken(lang, " ".join(said)), written, lang, non_scored_words(lang))
    assert [edit.hyp for edit in edits if edit.hyp != EPSILON] == [word for word in said if word != "_"]
    assert sum(edit.wrong for edit in edits) <= max(len(written), len(said))
    if [word for word in said if word != "_"] == written and written:
        assert not any(edit.wrong for edit in edits)
    found = good_segments(edits, lang.oov, SHORT)
    ends = [0, *(place for part in found for place in (part.start, part.end)), edits[-1].end if edits else 0]
    assert ends == sorted(ends)
    for part in found:
        inside = [edit for edit in edits if part.start <= edit.start and edit.end <= part.end and edit.frames]
        right = [edit.ref for edit in inside if edit.kind in ("cor", "fix") and edit.scored and not edit.unknown]
        assert right and not any(edit.wrong for edit in inside)
        kept = list(part.words)
        for word in right:
            kept.remove(word)


def test_files_of_edits_come_back(lang: LangDir, tmp_path: Path) -> None:
    edits = {utt: edits_of(spoken(lang, said), written.split(), lang, non_scored_words(lang))
             for utt, said, written in (("u", "_ a <noise> <unk> c", "a zebra b"), ("v", "a b _", "a b c"))}
    assert write_edits(tmp_path / "ctm_edits.1", [("u", edits["u"])], 0.01) == 1
    write_edits(tmp_path / "ctm_edits.2", [("v", edits["v"])], 0.01)
    assert edits_of_jobs(tmp_path, 0.01) == edits
    (tmp_path / "ctm_edits.2").write_text("v 1 0.0\n")
    with pytest.raises(UserError, match=r"ctm_edits\.2, line 1: expected"):
        edits_of_jobs(tmp_path, 0.01)
    with pytest.raises(UserError, match=r"clean_and_segment_data\.sh from its beginning"):
        edits_of_jobs(tmp_path / "nowhere", 0.01)
