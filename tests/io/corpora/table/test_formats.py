"""The tables of transcripts that are read, and what is wrong with others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.corpora.table.formats import read_transcripts
from pykaldist.io.corpora.table.rows import Row, Table, chosen_columns


def read(path: Path, content: str, columns: str = "") -> Table:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return read_transcripts(path, chosen_columns(columns))


def fields(table: Table) -> list[tuple[str, str, str]]:
    return [(row.audio, row.text, row.speaker) for row in table.rows]


ROWS = [("a.wav", "one, two", "anna"), ("b.wav", 'the "third" word', "ben")]


@pytest.mark.parametrize(("name", "content", "kind"), [
    ("t.csv", 'file_name,transcription,speaker_id\na.wav,"one, two",anna\nb.wav,"the ""third"" word",ben\n', "csv table"),
    ("t.csv", '\ufefffile;text;spk\r\na.wav;one, two;anna\r\n\r\nb.wav;"the ""third"" word";ben\r\n', "table with ; between its fields"),
    ("t.tsv", 'client_id\tpath\tsentence\tup_votes\nanna\ta.wav\tone, two\t2\nben\tb.wav\tthe "third" word\t0\n', "tab-separated table"),
    ("t.txt", 'path|text|speaker\na.wav|one, two|anna\nb.wav|the "third" word|ben\n', "table with | between its fields"),
    ("t.jsonl", '{"file": "a.wav", "text": "one, two", "speaker": "anna"}\n\n'
     '{"file": "b.wav", "text": "the \\"third\\" word", "speaker": "ben"}\n', "table of JSON lines"),
    ("t.json", '[{"file": "a.wav", "text": "one, two", "speaker": "anna"},\n'
     '{"file": "b.wav", "text": "the \\"third\\" word", "speaker": "ben"}]', "table of JSON lines"),
    ("manifest.json", '{"audio_filepath": "a.wav", "duration": 1.5, "text": "one, two", "speaker": "anna"}\n'
     '{"audio_filepath": "b.wav", "duration": 2, "text": "the \\"third\\" word", "speaker": "ben"}\n', "NeMo manifest"),
])
def test_tables(tmp_path: Path, name: str, content: str, kind: str) -> None:
    table = read(tmp_path / name, content)
    assert (fields(table), table.kind, table.has_speakers) == (ROWS, kind, True)
    assert {(row.start, row.end) for row in table.rows} == {(0.0, -1.0)}


def test_a_folder_has_a_table_of_a_known_name(tmp_path: Path) -> None:
    read(tmp_path / "set/metadata.csv", "file_name,transcription\na.wav,one\n")
    table = read_transcripts(tmp_path / "set", {})
    assert fields(table) == [("a.wav", "one", "")] and not table.has_speakers


@pytest.mark.parametrize(("content", "first"), [("a.wav,one\nb.wav,bee\n", ("a.wav", "one", "")),
                                                 ("LJ1|In 1933,|In nineteen,\nLJ2|b|bee\n", ("LJ1", "In nineteen,", ""))])
def test_tables_without_a_header(tmp_path: Path, content: str, first: tuple[str, str, str]) -> None:
    table = read(tmp_path / "metadata.csv", content)
    assert fields(table)[0] == first and len(table.rows) == 2 and table.rows[1].text == "bee"


def test_columns_are_named(tmp_path: Path) -> None:
    content = "id,clip,words,said,who\n1,a.wav,9,one,anna\n"
    assert fields(read(tmp_path / "t.csv", content, "audio=clip text=said speaker=who")) == [("a.wav", "one", "anna")]


@pytest.mark.parametrize(("header", "line", "part"), [
    ("file,text,start,end", "a.wav,one,1.5,2", (1.5, 2.0)), ("file,text,offset,duration", "a.wav,one,1.5,2", (1.5, 3.5)),
    ("file,text,offset,duration", "a.wav,one,0,2", (0.0, 2.0)), ("file,text,duration", "a.wav,one,2", (0.0, -1.0)),
    ("file,text,start,end", "a.wav,one,,", (0.0, -1.0)),
])
def test_parts_of_a_recording(tmp_path: Path, header: str, line: str, part: tuple[float, float]) -> None:
    row, = read(tmp_path / "t.csv", f"{header}\n{line}\n").rows
    assert (row.start, row.end) == part


def test_kaldi_text_and_what_is_beside_it(tmp_path: Path) -> None:
    """A comma or a tab in Kaldi's text makes it no table."""
    for name in ("text", "transcripts.txt", "trans"):
        table = read(tmp_path / name, "anna-1 one, two\nben-1\n\n")
        assert table.rows == [Row("anna-1", "one, two", "", f"{tmp_path / name}, line 1", name="anna-1"),
                              Row("ben-1", "", "", f"{tmp_path / name}, line 2", name="ben-1")]
        (tmp_path / name).unlink()
    folder = tmp_path / "data"
    read(folder / "text", "anna-1\tone\nanna-2 two\nben-1 three\n")
    (folder / "utt2spk").write_text("anna-1 anna\nanna-2 anna\nben-1 ben\n")
    (folder / "segments").write_text("anna-1 recA 0 1.5\nanna-2 recA 1.5 -1\nben-1 recB 2 3\n")
    (folder / "wav.scp").write_text("recA audio/recA.wav\nrecB sph2pipe recB.sph |\n")
    rows = read_transcripts(folder, {}).rows
    assert [(row.name, row.audio, row.speaker, row.start, row.end) for row in rows] == [
        ("anna-1", "audio/recA.wav", "anna", 0.0, 1.5), ("anna-2", "audio/recA.wav", "anna", 1.5, -1.0), ("ben-1", "recB", "ben", 2.0, 3.0)]


def test_lhotse_manifests(tmp_path: Path) -> None:
    """Written by lhotse itself. A recording that is a command is looked for by its name, and never run."""
    from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
    from lhotse.audio import AudioSource

    segments = [SupervisionSegment(f"r{i}-{j}", f"r{i}", start=j, duration=1.0, text=f"word {i}{j}", speaker=f"s{i}")
                for i in range(2) for j in range(2)]
    SupervisionSet.from_segments(segments).to_file(tmp_path / "supervisions.jsonl.gz")
    expected = [(f"r{i}-{j}", f"word {i}{j}", f"s{i}", float(j), j + 1.0) for i in range(2) for j in range(2)]
    table = read_transcripts(tmp_path, {})
    assert [(row.name, row.text, row.speaker, row.start, row.end) for row in table.rows] == expected
    assert [row.audio for row in table.rows] == ["r0", "r0", "r1", "r1"] and table.has_speakers
    sources = [AudioSource("file", [0], str(tmp_path / "r0.wav")), AudioSource("command", [0], f"touch {tmp_path}/was_run")]
    recordings = [Recording(f"r{i}", [sources[i]], 8000, 24000, 3.0) for i in range(2)]
    cuts = [MonoCut(f"c{i}", start=0.5, duration=2.0, channel=0, recording=recordings[i], supervisions=[
        SupervisionSegment(f"r{i}-0", f"r{i}", start=0.25, duration=1.0, text="x")]) for i in range(2)]
    CutSet.from_cuts(cuts).to_file(tmp_path / "mine.jsonl")
    rows = read_transcripts(tmp_path / "mine.jsonl", {}).rows
    assert [(row.audio, row.start, row.end) for row in rows] == [(str(tmp_path / "r0.wav"), 0.75, 1.75), ("r1", 0.75, 1.75)]
    assert not (tmp_path / "was_run").exists()
    RecordingSet.from_recordings(recordings).to_file(tmp_path / "recordings.jsonl")
    with pytest.raises(UserError, match=r"recordings.jsonl, line 1: this is lhotse's manifest of recordings, which has no transcripts"):
        read_transcripts(tmp_path / "recordings.jsonl", {})


def test_gzipped_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"file": "a", "text": "b"}\n'))
    assert fields(read_transcripts(path, {})) == [("a", "b", "")]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="is damaged"):
        read_transcripts(path, {})


CUT = json.dumps({"id": "c", "start": 0, "type": "MonoCut"})
BAD = [
    ("t.csv", "", "t.csv is empty"),
    ("t.csv", "file,text\n", "t.csv has no rows"),
    ("t.csv", "file,text\na.wav,one,two\n", "line 2: expected 2 fields, found 3"),
    ("t.csv", 'file,text\na.wav,"one\n', "line 2: the line is no csv"),
    ("t.csv", "clip,text\na.wav,one\n", "no column is known to have the audio; looked for audio_filepath, .*; found 'clip', 'text'"),
    ("t.tsv", "path\tsaid\na\tb\n", "no column is known to have the text; .* name it with --columns, such as 'text=said'"),
    ("t.csv", "file,text,start\na,b,soon\n", "line 2: expected seconds, found 'soon'"),
    ("t.csv", "file,text,start,end\na,b,2,1\n", "line 2: the utterance begins at 2 s and ends at 1 s"),
    ("t.jsonl", '{"file": "a", "text": "b"}\n{"file": \n', "line 2: no JSON"),
    ("t.jsonl", '{"file": "a", "text": "b"}\n7\n', "line 2: expected a JSON object"),
    ("t.jsonl", '{"file": "a", "text": "b"}\n{"file": "c"}\n', "line 2: expected the field 'text', found 'file'"),
    ("t.json", '[{"file": "a",\n "text"}]', "t.json: no JSON"),
    ("t.jsonl", f"{CUT}\n", "line 1: lhotse cannot read this entry"),
    ("t.jsonl", '{"id": "c", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut", "supervisions": []}\n',
     "line 1: expected a supervision or a cut with a recording, found MonoCut"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / name, content)


def test_folders_without_a_table_and_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with pytest.raises(UserError, match=r"looked in it for one of text, metadata.csv, .*, found notes; name the file"):
        read_transcripts(tmp_path, {})
    for name in ("text", "metadata.csv"):
        (tmp_path / name).write_text("a b\n")
    with pytest.raises(UserError, match=r"found text and metadata.csv; name the file"):
        read_transcripts(tmp_path, {})
    (tmp_path / "t.csv").write_bytes("file,text\na,café\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"t.csv is no UTF-8 text \(byte 15\)"):
        read_transcripts(tmp_path / "t.csv", {})
    (tmp_path / "segments").write_text("other rec 0 1\n")
    with pytest.raises(UserError, match=r"line 1: a is not in .*/segments"):
        read_transcripts(tmp_path / "text", {})


@pytest.mark.parametrize("text", ["audio", "sound=x", "text="])
def test_columns_that_are_not_there(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="--columns: expected words such as audio=path"):
        chosen_columns(text)
    with pytest.raises(UserError, match="has no column 'path' for the audio; it has 'file', 'text'"):
        read(tmp_path / "t.csv", "file,text\na,b\n", "audio=path")
