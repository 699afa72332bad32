"""Formats of other systems' alignments: told apart, read, and refused in words where they are damaged."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.phone_labels import PhoneLabels, Pronunciations, places
from pykaldist.hmm.import_ali.sources import open_source
from pykaldist.hmm.import_ali.sources.base import Frames, Interval, SourceOptions, Times, parse_item, write_item
from pykaldist.hmm.import_ali.sources.textgrid import parse
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import write_int_vectors

Tiers = dict[str, list[tuple[float, float, str]]]
TIERS: Tiers = {"words": [(0, 0.5, ""), (0.5, 1.25, 'say "ab"')], "phones": [(0, 0.5, ""), (0.5, 0.75, "A"), (0.75, 1.25, "B")]}


def long_textgrid(tiers: Tiers, end: float) -> str:
    text = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
    text += f"xmin = 0 \nxmax = {end} \ntiers? <exists> \nsize = {len(tiers)} \nitem []: \n"
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        text += f'    item [{number}]:\n        class = "IntervalTier" \n        name = "{name}" \n'
        text += f"        xmin = 0 \n        xmax = {end} \n"
        text += f"        intervals: size = {len(intervals)} \n"
        for i, (start, stop, label) in enumerate(intervals, 1):
            quoted = label.replace('"', '""')
            text += f'        intervals [{i}]:\n            xmin = {start} \n            xmax = {stop} \n            text = "{quoted}" \n'
    return text


def short_textgrid(tiers: Tiers, end: float) -> str:
    text = f'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n{end}\n<exists>\n{len(tiers)}\n'
    for name, intervals in tiers.items():
        text += f'"IntervalTier"\n"{name}"\n0\n{end}\n{len(intervals)}\n'
        text += "".join('{}\n{}\n"{}"\n'.format(a, b, label.replace('"', '""')) for a, b, label in intervals)
    return text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("write", [long_textgrid, short_textgrid])
def test_textgrid(tmp_path: Path, write: object, encoding: str) -> None:
    (tmp_path / "x.TextGrid").write_text(write(TIERS, 1.25), encoding=encoding)  # type: ignore[operator]  # one of the two functions
    tiers, end = parse(tmp_path / "x.TextGrid")
    assert end == 1.25
    assert {name: [(i.start, i.end, i.label) for i in tier] for name, tier in tiers.items()} == TIERS


LABELS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5).map(str.strip)


@settings(max_examples=50)
@given(st.lists(LABELS, max_size=4))
def test_any_label_in_a_textgrid(tmp_path_factory: pytest.TempPathFactory, labels: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "l.TextGrid"
    tiers = {"phones": [(float(n), n + 1.0, label) for n, label in enumerate(labels)]}
    for write in (long_textgrid, short_textgrid):
        path.write_text(write(tiers, 9.0), encoding="utf-8")
        assert [i.label for i in parse(path)[0]["phones"]] == labels


def test_textgrids_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann/u1.TextGrid").write_text(short_textgrid({"ann - phones": TIERS["phones"], "ann - words": TIERS["words"]}, 1.25))
    source = open_source(tmp_path, SourceOptions())
    [(utt, times)] = source.utterances()
    assert source.format == "TextGrid" and utt == "u1" and isinstance(times, Times)
    assert [i.label for i in times.phones or []] == ["", "A", "B"] and times.end == 1.25 and len(times.words or []) == 2
    (tmp_path / "ann/u1.TextGrid").write_text(short_textgrid({"a - phones": [], "b - phones": []}, 1))
    with pytest.raises(UserError, match="has the tiers a - phones, b - phones; split"):
        list(open_source(tmp_path, SourceOptions()).utterances())
    with pytest.raises(UserError, match="has no tier segments or words, only a - phones"):
        list(open_source(tmp_path, SourceOptions(phones_tier="segments")).utterances())


def test_every_truncated_textgrid_is_refused(tmp_path: Path) -> None:
    whole = long_textgrid(TIERS, 1.25).rstrip()
    for length in range(0, len(whole), 11):
        (tmp_path / "x.TextGrid").write_text(whole[:length])
        with pytest.raises(UserError, match=r"x\.TextGrid, value \d+: "):
            parse(tmp_path / "x.TextGrid")


def test_numbers_beyond_measure(tmp_path: Path) -> None:
    for end, count in (("1e999", "1"), ("1", "1e999"), ("1", "1e12"), ("1", "-1"), ("1", "0.5")):
        (tmp_path / "x.TextGrid").write_text(f'"ooTextFile" "TextGrid" 0 {end} <exists> 1 "IntervalTier" "phones" 0 1 {count} 0 1 "A"')
        with pytest.raises(UserError, match=r"x\.TextGrid, value \d+: "):
            parse(tmp_path / "x.TextGrid")


def test_ctm_by_name_and_by_look(tmp_path: Path) -> None:
    text = ";; a comment\nu1 A 0.30 0.10 B\nu2 1 0.10 0.20 ab 0.9\nu1 A 0.00 0.30 A\n"  # neither by time nor by utterance
    (tmp_path / "x.ctm").write_text(text)
    (tmp_path / "times.txt").write_text(text.split("\n", 1)[1])
    for name in ("x.ctm", "times.txt"):
        source = open_source(tmp_path / name, SourceOptions())
        assert source.in_parts
        found: dict[str, Times] = {}
        for utt, times in source.utterances():
            assert isinstance(times, Times)
            found[utt] = found[utt].joined(times) if utt in found else times
        assert source.format == "CTM" and set(found) == {"u1", "u2"}
        assert found["u1"] == Times(labels=[Interval(0, 0.3, "A"), Interval(0.3, 0.3 + 0.1, "B")])
    (tmp_path / "x.ctm").write_text("u1 1 0.0 -1 A\n")
    with pytest.raises(UserError, match=r"x\.ctm, line 1: expected `utterance channel start duration label"):
        list(open_source(tmp_path / "x.ctm", SourceOptions()).utterances())


def test_archives_and_numpy(tmp_path: Path) -> None:
    labels = {"u1": np.array([0, 4, 4], dtype=np.int32), "u2": np.array([2], dtype=np.int32)}
    names = {"u1": np.array(["SIL", "A", "A"]), "u2": np.array(["B"])}
    write_int_vectors(tmp_path / "x.gz", labels.items())
    write_int_vectors(tmp_path / "some_pdfs.txt", labels.items(), binary=False)
    (tmp_path / "names.txt").write_text("u1 SIL A A\nu2 B\n")
    np.savez(tmp_path / "x.npz", **labels)
    (tmp_path / "npy").mkdir()
    for utt, values in names.items():
        np.save(tmp_path / "npy" / f"{utt}.npy", values)
    for name, kind, expected in (("x.gz", "label", labels), ("some_pdfs.txt", "pdf", labels), ("names.txt", "phone", names),
                                 ("x.npz", "label", labels), ("npy", "phone", names)):
        found = dict(open_source(tmp_path / name, SourceOptions()).utterances())
        assert set(found) == set(expected)
        for utt, item in found.items():
            assert isinstance(item, Frames) and item.kind == kind
            np.testing.assert_array_equal(item.values, expected[utt])
    assert {item.kind for _, item in open_source(tmp_path / "x.gz", SourceOptions("phone")).utterances()} == {"phone"}


def test_refusals(tmp_path: Path) -> None:
    def read(name: str) -> None:
        list(open_source(tmp_path / name, SourceOptions()).utterances())

    with pytest.raises(UserError, match="nothing does not exist"):
        read("nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no alignments known here"):
        read("empty")
    (tmp_path / "ali.1.gz").touch()
    with pytest.raises(UserError, match=r"has ali\.\*\.gz but no final\.mdl"):
        open_source(tmp_path, SourceOptions())
    with pytest.raises(UserError, match="archives of transition_ids, which need"):
        read("ali.1.gz")
    (tmp_path / "d").mkdir()
    for array, message in ((np.zeros((3, 2)), "one integer or string a frame"), (np.array([-1]), "found the label -1"),
                           (np.array([{}], dtype=object), "no readable numpy array")):
        np.save(tmp_path / "d/u.npy", array, allow_pickle=True)
        with pytest.raises(UserError, match=message):
            read("d")
    (tmp_path / "d/u.npy").write_bytes(b"\x93NUMPY\1\0")
    (tmp_path / "x.npz").write_bytes(b"PK\3\4")
    (tmp_path / "x.ark").write_bytes(b"u \0B\4\xff\xff\xff\x7f")
    for name in ("d", "x.npz", "x.ark"):
        with pytest.raises(UserError, match="no readable"):
            read(name)


def test_phones_by_other_names(toy_lang: LangDir) -> None:
    phones = PhoneLabels(toy_lang)
    number = toy_lang.phones
    assert [phones.phone(x) for x in ("SIL", "sil", "", "sp", "A_B", "a_e")] == [*[number["SIL"]] * 4, number["A_B"], number["A_E"]]
    assert [phones.phone("A", place) for place in ("begin", "end", "internal", "singleton")] == \
        [number[f"A_{x}"] for x in "BEIS"]
    assert phones.phone(str(number["C_I"])) == number["C_I"]
    assert [phones.phone(x) for x in ("Q", "Q", "#0", "99", "<eps>")] == [0, 0, 0, 0, number["SIL"]]
    assert phones.unknown == {"Q": 2, "#0": 1, "99": 1}


def test_places_in_words() -> None:
    tier = [Interval(n, n + 1, "x") for n in range(8)]
    words = [Interval(0, 1, ""), Interval(1, 4, "abc"), Interval(4, 5, "a"), Interval(6, 8, "ab")]
    assert places(tier, words) == ["internal", "begin", "internal", "end", "singleton", "internal", "begin", "end"]
    assert places(tier, None) == ["internal"] * 8


def test_words_share_their_frames(toy_lang: LangDir) -> None:
    words = Pronunciations(toy_lang, read_topology(toy_lang.file("topo")))
    number = toy_lang.phones
    assert words.spread("cab", 11) == [(number["C_B"], 4), (number["A_I"], 4), (number["B_E"], 3)]
    assert words.spread("AB", 2) == [(number["A_B"], 1), (number["B_E"], 1)]
    assert words.spread("<eps>", 5) == [(number["SIL"], 5)]
    assert words.spread("zebra", 4) == [(number["SPN_S"], 4)] and words.unknown == {"zebra": 1}


LABELS = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
INTERVALS = st.one_of(st.none(), st.lists(st.builds(Interval, st.floats(0, 100), st.floats(0, 100), LABELS), max_size=4))


@given(st.one_of(
    st.builds(Frames, st.sampled_from(["pdf", "phone", "label"]), arrays(np.int32, st.integers(0, 9))),
    st.builds(Frames, st.just("phone"), st.lists(st.sampled_from(["a", "\u00e4h", "sil"]), min_size=1, max_size=9).map(np.array)),
    st.builds(Times, INTERVALS, INTERVALS, INTERVALS, st.one_of(st.none(), st.floats(0, 100)))))
def test_what_was_written_is_read(item: Frames | Times) -> None:
    stream = io.BytesIO()
    write_item(stream, item)
    found = parse_item(stream.getvalue())
    if isinstance(item, Frames):
        assert isinstance(found, Frames) and found.kind == item.kind and found.values.dtype == item.values.dtype
        np.testing.assert_array_equal(found.values, item.values)
    else:
        assert found == item
