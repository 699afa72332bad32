"""Data directories are mended, cut, and refused when wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir, restrict, write_datadir
from pykaldist.io.datadir_tools import choose_utterances, fix_data_dir, utterances_of_list


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    utts = {f"{spk}-{i:02}": spk for spk in ("ann", "bob", "cid") for i in range(4)}
    return write_datadir(tmp_path / "data", {u: f"{u}.wav" for u in utts}, {u: "yes no" for u in utts}, utts)


def test_a_valid_directory_stays_as_it_is(data: DataDir) -> None:
    before = {p.name: p.read_text() for p in data.path.iterdir()}
    assert fix_data_dir(data.path) == []
    assert {p.name: p.read_text() for p in data.path.iterdir() if p.is_file()} == before


def test_fixing_makes_it_valid(data: DataDir) -> None:
    text = data.path / "text"
    lines = text.read_text().splitlines()
    lines[0] = "ann-00"  # an empty transcript
    text.write_text("\n".join([*reversed(lines), lines[3], "", "stranger-1 hello"]) + "\n")
    wav = data.path / "wav.scp"
    wav.write_text("".join(line for line in wav.read_text().splitlines(True) if not line.startswith("bob")))
    with pytest.raises(UserError, match=r"text, line 14: empty line"):
        DataDir(data.path).validate()
    said = fix_data_dir(data.path)
    fixed = DataDir(data.path)
    fixed.validate()
    assert fixed.utterances() == ["ann-01", "ann-02", "ann-03", "cid-00", "cid-01", "cid-02", "cid-03"]
    assert list(fixed.table("spk2utt")) == ["ann", "cid"]
    assert "text: sorted" in said and "text: dropped 3 repeated or empty lines" in said
    assert (data.path / ".backup/text").is_file()


@pytest.mark.usefixtures("all_plain_lines")
def test_the_verbs_say_how_far_they_are_and_what_they_took(data: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate-data-dir", str(data.path)]) == 1  # there are no features
    assert main(["validate-data-dir", "--no-feats", str(data.path)]) == 0
    said = capsys.readouterr()
    assert "checking data: 8/8 (100 %) check" in said.err
    assert "12 utterances, 3 speakers; " in said.out and "MB written" in said.out
    assert main(["fix-data-dir", str(data.path)]) == 0
    said = capsys.readouterr()
    assert "reading tables of data: 3/3 (100 %) table" in said.err and "writing tables of data: 3/3 (100 %) table" in said.err
    assert "has 12 utterances; " in said.out and "MB written" in said.out


def test_segments_follow_their_recordings(tmp_path: Path) -> None:
    data = write_datadir(tmp_path, {"r1": "r1.wav", "r2": "r2.wav"}, {"a": "x", "b": "x"}, {"a": "s", "b": "s"},
                         {"a": "r1 0 1", "b": "gone 0 1"})
    fix_data_dir(data.path)
    assert DataDir(tmp_path).utterances() == ["a"]
    assert list(DataDir(tmp_path).wav_scp) == ["r1"]


def test_nothing_in_common_is_an_error(data: DataDir) -> None:
    (data.path / "text").write_text("other-1 yes\n")
    with pytest.raises(UserError, match="no utterance is in all of"):
        fix_data_dir(data.path)
    assert (data.path / "text").read_text() == "other-1 yes\n"


def test_choices(data: DataDir) -> None:
    assert choose_utterances(data, 2, "first") == ["ann-00", "ann-01"]
    assert choose_utterances(data, 1, "last") == ["cid-03"]
    assert choose_utterances(data, 3) == ["ann-00", "bob-00", "cid-00"]
    assert choose_utterances(data, 2, "per-spk") == ["ann-00", "ann-02", "bob-00", "bob-02", "cid-00", "cid-02"]
    assert choose_utterances(data, 5, "speakers") == [f"{s}-{i:02}" for s in ("ann", "bob") for i in range(4)]
    (data.path / "utt2dur").write_text("".join(f"{u} {20 - i}\n" for i, u in enumerate(data.utterances())))
    assert choose_utterances(data, 2, "shortest") == ["cid-03", "cid-02"]
    with pytest.raises(UserError, match="has 12 utterances, 0 were asked for"):
        choose_utterances(data, 0)


@pytest.mark.parametrize("how", ["--first", "--shortest", "--speakers", ""])
def test_where_there_are_fewer_all_are_taken(data: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str) -> None:
    (data.path / "utt2dur").write_text("".join(f"{u} 1\n" for u in data.utterances()))
    assert main(["subset-data-dir", *filter(None, [how]), str(data.path), "13", str(tmp_path / "new")]) == 0
    assert DataDir(tmp_path / "new").utterances() == data.utterances()
    assert "has 12 utterances, 13 were asked for; all are taken" in capsys.readouterr().err


def test_lists(data: DataDir, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("bob-01 whatever\n")
    assert utterances_of_list(data, names) == ["bob-01"]
    names.write_text("bob\n")
    assert utterances_of_list(data, names, speakers=True) == [f"bob-{i:02}" for i in range(4)]
    with pytest.raises(UserError, match="bob is not in"):
        utterances_of_list(data, names)


def test_a_copy_replaces_what_was_there(data: DataDir, tmp_path: Path) -> None:
    write_datadir(tmp_path / "copy", {"rec": "rec.wav"}, None, {"a": "a"}, segments={"a": "rec 0 1"})
    copy = restrict(data, ["bob-01"], tmp_path / "copy")
    copy.validate()
    assert copy.utterances() == ["bob-01"] and not copy.has("segments")
    with pytest.raises(UserError, match="both source and target"):
        restrict(data, ["bob-01"], data.path)
    (data.path / "segments").write_text("bob-00 bob-00 0 1\n")
    with pytest.raises(UserError, match=r"segments lacks 1 utterances of utt2spk, such as bob-01"):
        restrict(DataDir(data.path), ["bob-00", "bob-01"], tmp_path / "other")


def test_only_newlines_end_a_line(data: DataDir) -> None:
    text = (data.path / "text").read_text()
    (data.path / "text").write_text(text.replace("yes no", "yes\u2028\x1cno", 1))
    data.validate()
    assert len(data.text) == len(data.utt2spk)


_LINES = st.lists(st.tuples(st.text("abäz", max_size=2), st.text("rst ", max_size=3)), max_size=12)


@given(st.dictionaries(st.sampled_from(["text", "segments", "feats.scp", "wav.scp", "reco2dur", "cmvn.scp", "utt2dur"]), _LINES), _LINES)
def test_fixed_tables_are_those_that_dictionaries_give(tmp_path_factory: pytest.TempPathFactory, tables: dict[str, list[tuple[str, str]]],
                                                       utt2spk: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("data")
    tables["utt2spk"] = utt2spk
    for name, lines in tables.items():
        (path / name).write_text("".join(f"{key} {value}\n" for key, value in lines))
    expected = _fixed_by_dictionaries(tables)
    if expected is None:
        with pytest.raises(UserError, match="no utterance is in all of"):
            fix_data_dir(path)
        return
    fix_data_dir(path)
    assert {name: (path / name).read_text() for name in tables} == expected
    speakers: dict[str, list[str]] = {}
    for line in expected["utt2spk"].splitlines():
        speakers.setdefault(line.split(maxsplit=1)[1], []).append(line.split()[0])
    assert (path / "spk2utt").read_text() == "".join(f"{speaker} {' '.join(speakers[speaker])}\n" for speaker in sorted(speakers))


def _fixed_by_dictionaries(tables: dict[str, list[tuple[str, str]]]) -> dict[str, str] | None:
    """What fixed tables hold, worked out with whole tables in memory; None where no utterance is left."""
    read: dict[str, dict[str, str]] = {}
    for name, lines in tables.items():
        read[name] = {}
        for key, *value in ((f"{key} {value}".split(maxsplit=1) or [""]) for key, value in lines):
            if key and (value or name not in ("utt2spk", "text", "segments", "feats.scp", "wav.scp")):
                read[name].setdefault(key, value[0].strip() if value else "")
    keep = set.intersection(*(set(read[name]) for name in ("utt2spk", "text", "segments", "feats.scp") if name in read))
    recording = {utt: read["segments"][utt].split()[0] if "segments" in read else utt for utt in keep}
    keep = {utt for utt in keep if recording[utt] in read.get("wav.scp", recording.values())}
    wanted = {"reco2dur": {recording[utt] for utt in keep}, "cmvn.scp": {read["utt2spk"][utt] for utt in keep}}
    wanted["wav.scp"] = wanted["reco2dur"]
    return {name: "".join(f"{key} {table[key]}".rstrip() + "\n" for key in sorted(table) if key in wanted.get(name, keep))
            for name, table in read.items()} if keep else None


@pytest.mark.parametrize(("content", "words"), [
    ("ann-00 a\nbob-00 b\nann-01 c\n", "text is not sorted (ann-01 stands after bob-00); run utils/fix_data_dir.sh"),
    ("ann-00 a\n\nbob-00 b\n", "text, line 2: empty line; remove it"), ("ann-00 a\nann-00 b\n", "text, line 2: ann-00 appears twice"),
    ("ann-00 \udce4\n", "text is not UTF-8 text (byte 7)")])
def test_a_table_that_is_none(data: DataDir, content: str, words: str) -> None:
    (data.path / "text").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=re.escape(words)):
        DataDir(data.path).validate()
