"""What is in the page of experiments, against numbers of Kaldi's and against counts made another way."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import kaldialign
import numpy as np
import pytest
import soundfile

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.report.page.options import PageOptions
from pykaldist.report.page.phones import phone_pairs
from pykaldist.report.page.sound import encoded, sounds
from pykaldist.report.page.systems import by_group, by_length, confusions, read_alignments
from pykaldist.report.page.write import Symbols, title, write_page


def data_of(page: Path) -> dict[str, Any]:
    """The JSON in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def grouped(flat: list[Any], size: int) -> list[list[Any]]:
    """The items of a list, `size` of them together."""
    return [flat[start : start + size] for start in range(0, len(flat), size)]


@pytest.fixture(scope="module")
def page(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "report.html"
    write_page([experiment / "exp"], PageOptions(), target)
    return target


@pytest.fixture(scope="module")
def shown(page: Path) -> dict[str, Any]:
    return data_of(page)


@pytest.fixture(scope="module")
def hypotheses(experiment: Path, shown: dict[str, Any]) -> dict[str, list[str]]:
    """What scoring wrote as the hypotheses of exp/wide at its best point."""
    wide = next(one for one in shown["systems"] if one["name"] == "wide/decode")
    path = experiment / f"exp/wide/decode/scoring_kaldi/penalty_{wide['penalty']}/{wide['lmwt']}.txt"
    return {fields[0]: fields[1:] for fields in map(str.split, path.read_text().splitlines())}


def test_the_sweep_is_kaldis(shown: dict[str, Any], golden: Path) -> None:
    wide = next(one for one in shown["systems"] if one["name"] == "wide/decode")
    cells = {(int(lmwt), penalty): wer for penalty, row in zip(wide["sweep"]["penalties"], wide["sweep"]["wers"], strict=True)
             for lmwt, wer in zip(wide["sweep"]["lmwts"], row, strict=True)}
    lines = (golden / "an4_kaldi/decode_dnn/sweep.txt").read_text().splitlines()
    expected = {(int(fields[0].partition("=")[2]), fields[1].partition("=")[2]): float(fields[3]) for fields in map(str.split, lines)}
    assert expected and all(cells[point] == wer for point, wer in expected.items())
    assert wide["wer"] == min(cells.values()) == cells[wide["lmwt"], str(wide["penalty"])]


def test_utterances_and_groups_have_the_errors_of_an_independent_count(shown: dict[str, Any], hypotheses, experiment: Path) -> None:
    wide, test = next(one for one in shown["systems"] if one["name"] == "wide/decode"), shown["sets"][0]
    data = DataDir(experiment / "data/test")
    errors = {utt: kaldialign.edit_distance(data.text[utt], hyp)["total"] for utt, hyp in hypotheses.items()}
    for utt, flat in zip(test["utterances"], wide["aligned"], strict=True):
        pairs = [(shown["symbols"][a] if a >= 0 else None, shown["symbols"][b] if b >= 0 else None) for a, b in grouped(flat, 2)]
        assert [ref for ref, _ in pairs if ref] == data.text[utt] and [hyp for _, hyp in pairs if hyp] == hypotheses[utt]
        assert sum(ref != hyp for ref, hyp in pairs) == errors[utt]
    assert wide["errors"] == sum(errors.values()) == sum(wide["edits"])
    assert wide["wrongUtterances"] == sum(count > 0 for count in errors.values())
    for name, table in (("speaker", data.utt2spk), ("gender", {utt: spk[0] for utt, spk in data.utt2spk.items()})):
        for group, count, words, *edits in wide["groups"][name]:
            members = [utt for utt in errors if table[utt] == group]
            assert (count, words) == (len(members), sum(len(data.text[utt]) for utt in members))
            assert sum(edits) == sum(errors[utt] for utt in members)
    assert sum(row[1] for row in wide["groups"]["words in the reference"]) == 43
    assert sum(count for _, _, count in wide["confusions"]) == wide["errors"]


def test_intervals_and_comparisons(shown: dict[str, Any]) -> None:
    narrow, wide = shown["systems"]
    assert (narrow["name"], wide["name"]) == ("narrow/decode", "wide/decode")
    assert wide["interval"][0] < wide["wer"] < wide["interval"][1]
    there, back = shown["beside"][0][1], shown["beside"][1][0]
    assert there["difference"] == pytest.approx(100 * (wide["errors"] - narrow["errors"]) / 279) and there["difference"] < 0
    assert back["difference"] == -there["difference"] and back["p"] == there["p"] and there["better"] + back["better"] == pytest.approx(1)
    assert shown["beside"][0][0] is None


def test_paths_and_times_are_those_of_the_lattice(shown: dict[str, Any], hypotheses: dict[str, list[str]]) -> None:
    wide, utts = next(one for one in shown["systems"] if one["name"] == "wide/decode"), shown["sets"][0]["utterances"]
    for utt, found in zip(utts, wide["recognised"], strict=True):
        costs, paths = [cost for cost, _ in found["paths"]], [[shown["symbols"][n] for n in words] for _, words in found["paths"]]
        assert paths[0] == hypotheses[utt] and costs[0] == 0 and costs == sorted(costs)
        assert len({tuple(words) for words in paths}) == len(paths)
        words, phones = (grouped(found[kind], 3) for kind in ("words", "phones"))
        assert [shown["symbols"][n] for _, _, n in words] == hypotheses[utt]
        assert all(end == begin for (_, end, _), (begin, _, _) in itertools.pairwise(phones)) and phones[0][0] == 0
        borders = {begin for begin, _, _ in phones} | {phones[-1][1]}
        assert {border for begin, end, _ in words for border in (begin, end)} <= borders


def test_trainings_say_what_is_not_at_its_default(shown: dict[str, Any]) -> None:
    narrow, wide = shown["runs"]
    changed = {option[0]: option[1:3] for option in narrow["options"] if option[4]}
    assert changed.keys() >= {"strategy", "learn_rate"} and changed["strategy"] == ["ma", "local"] and changed["learn_rate"][0] == 0.032
    assert not changed.keys() & {"init", "partition_level"}
    assert [option[4] for option in narrow["options"]] == sorted((option[4] for option in narrow["options"]), reverse=True)
    assert narrow["workers"] == 4 and narrow["framesPerSecond"] == pytest.approx(4 * wide["framesPerSecond"]) == pytest.approx(10_000)
    differences = dict(shown["differences"])
    assert differences["ngpu"] == [4, 1] and differences["learn_rate"] == [0.032, 0.008] and "hid_dim" not in differences
    assert len(narrow["history"]) == 3 and narrow["history"][1]["accepted"] is False
    assert any(name == "model" and value.startswith("GMM, ") for name, value in wide["facts"])


def test_the_page_needs_nothing_from_elsewhere(page: Path, shown: dict[str, Any]) -> None:
    text = page.read_text(encoding="utf-8")
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert "default-src 'none'" in outside and not re.findall(r"(?:src|href)=[\"'](?!#|data:)", outside) and "/*DATA*/" not in outside
    assert set(re.findall(r"https?://[^\s\"'<)]*", outside)) == {"http://www.w3.org/2000/svg"}
    test = shown["sets"][0]
    assert test["missing"] == 0 and len(test["sounds"]) == 43
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(test["sounds"]["0"].partition(",")[2])))
    assert rate == 8000 or rate == 48000
    assert len(samples) / rate == pytest.approx(0.25, abs=0.03)


def test_names_and_words_are_no_markup(experiment: Path, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    folder = tmp_path / "exp/<b>&" / "decode"
    (folder / "scoring_kaldi/wer_details").mkdir(parents=True)
    write_text(folder / "best_wer", "%WER 50.00 [ 1 / 2, 0 ins, 0 del, 1 sub ] exp/x/wer_7_0.0\n")
    write_text(folder / "scoring_kaldi/wer_details/per_utt", f"u1 ref {evil} a\nu1 hyp b a\nu1 op S C\nu1 #csid 1 1 0 0\n")
    write_page([tmp_path / "exp"], PageOptions(), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)" in text and "<script>alert" not in text and text.count("</script>") == 2
    assert evil in data_of(tmp_path / "page.html")["symbols"]


def test_audio_fills_the_room_with_the_worst_utterances(experiment: Path, tmp_path: Path) -> None:
    data = DataDir(experiment / "data/test")
    utts = data.utterances()[::-1]
    one = len(sounds(data, utts[:1], "wav", 10**9, {})[utts[0]].uri)
    found = sounds(data, utts, "wav", 3 * one + one // 2, {})
    assert list(found) == utts[:3] and all(sound.seconds == 0.25 for sound in found.values())
    assert list(sounds(data, utts, "wav", 10**9, dict.fromkeys(utts, 10**9))) == []
    write_page([experiment / "exp"], PageOptions(audio="none"), tmp_path / "small.html")
    size = (tmp_path / "small.html").stat().st_size
    write_page([experiment / "exp"], PageOptions(audio="wav", max_megabytes=(size + 5.5 * one) / 1e6), tmp_path / "page.html")
    shown = data_of(tmp_path / "page.html")
    heard = {int(i) for i in shown["sets"][0]["sounds"]}
    errors = [sum(sum(a != b for a, b in grouped(system["aligned"][i], 2)) for system in shown["systems"]) for i in range(43)]
    assert len(heard) == 5 and shown["sets"][0]["missing"] == 38
    assert min(errors[i] for i in heard) >= max(errors[i] for i in range(43) if i not in heard)
    assert (tmp_path / "page.html").stat().st_size <= size + 5.5 * one


def test_opus_has_rates_of_its_own() -> None:
    tone = 8000 * np.sin(2 * np.pi * 440 * np.arange(11025) / 11025).astype(np.float32)
    sound = encoded(tone, 11025, "opus")
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sound.uri.partition(",")[2])))
    spectrum = np.abs(np.fft.rfft(samples))
    assert sound.seconds == 1 and abs(np.argmax(spectrum) * rate / len(samples) - 440) < 2


def test_commands_for_audio_are_run_only_where_the_user_names_the_data(experiment: Path, tmp_path: Path) -> None:
    data = experiment / "data/test"
    before = (data / "wav.scp").read_text()
    entries = [line.split() for line in before.splitlines()]
    write_text(data / "wav.scp", "".join(f"{utt} touch {tmp_path}/run; cat {path} |\n" for utt, path in entries))
    try:
        write_page([experiment / "exp/wide"], PageOptions(nbest=0), tmp_path / "page.html")
        shown = data_of(tmp_path / "page.html")["sets"][0]
        assert shown["sounds"] == {} and "--data" in shown["silent"] and not (tmp_path / "run").exists()
        write_page([experiment / "exp/wide"], PageOptions(nbest=0, data=str(data), audio="wav"), tmp_path / "page.html")
        assert len(data_of(tmp_path / "page.html")["sets"][0]["sounds"]) == 43 and (tmp_path / "run").exists()
    finally:
        write_text(data / "wav.scp", before)


def test_experiments_beside_each_other_have_names_of_their_own(experiment: Path, tmp_path: Path) -> None:
    write_page([experiment / "exp/narrow", experiment / "exp/wide"], PageOptions(audio="none", nbest=0), tmp_path / "page.html")
    shown = data_of(tmp_path / "page.html")
    assert [one["name"] for one in shown["systems"]] == ["narrow/decode", "wide/decode"] and len(shown["sets"]) == 1
    assert [one["name"] for one in shown["runs"]] == ["narrow", "wide"]


def test_lattices_that_do_not_belong_are_left_out(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lattices = experiment / "exp/wide/decode/lat.1.gz"
    lattices.rename(lattices.with_name("away"))
    try:
        write_page([experiment / "exp/wide"], PageOptions(audio="none"), tmp_path / "page.html")
    finally:
        lattices.with_name("away").rename(lattices)
    assert "WARNING: no times and paths of decode" in capsys.readouterr().err
    shown = data_of(tmp_path / "page.html")
    assert set(map(str, shown["systems"][0]["recognised"])) == {"None"} and shown["systems"][0]["errors"] > 0


def test_the_command_line(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(experiment / "exp"), "--html", str(tmp_path / "out.html"), "--audio", "none"]) == 0
    assert "2 scored systems, 2 trainings, 43 utterances (0 with audio)" in capsys.readouterr().out
    assert main(["report", str(experiment / "exp"), "--audio", "none"]) == 1
    assert "--audio is for a page; add --html FILE" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "none.html")]) == 1
    assert "there is no training" in capsys.readouterr().err and not (tmp_path / "none.html").exists()
    with pytest.raises(UserError, match="more than 0 megabytes"):
        PageOptions(max_megabytes=0)


def test_alignments_of_utterances(tmp_path: Path) -> None:
    write_text(tmp_path / "per_utt", "u1 ref a b *** \nu1 hyp a *** c\nu1 op C D I\nu1 #csid 1 0 1 1\n"
                                     "u2 ref \nu2 hyp \nu2 op \nu2 #csid 0 0 0 0\n")
    found = read_alignments(tmp_path / "per_utt")
    assert found == {"u1": [("a", "a"), ("b", "***"), ("***", "c")], "u2": []}
    assert by_group(found, {"u1": "x", "u2": "x"}) == [["x", 2, 2, 0, 1, 1]]
    assert by_length(found) == [["0", 1, 0, 0, 0, 0], ["2", 1, 2, 0, 1, 1]]
    assert confusions(found) == [("***", "c", 1), ("b", "***", 1)]
    write_text(tmp_path / "per_utt", "u1 ref a b\nu1 hyp a\n")
    with pytest.raises(UserError, match="as many words behind ref"):
        read_alignments(tmp_path / "per_utt")


def test_symbols_have_numbers() -> None:
    symbols = Symbols()
    assert [symbols["a"], symbols["***"], symbols["b"], symbols["a"]] == [0, -1, 1, 0] and symbols.list() == ["a", "b"]


def test_phones_are_confused_where_words_are() -> None:
    """Of several pronunciations the nearest; a word that is right has none wrong; a word that the lexicon lacks is left out."""
    lexicon = {"one": [("W", "AH", "N")], "nine": [("N", "AY", "N")], "the": [("DH", "IY"), ("DH", "AH")], "a": [("AH",)]}
    said = [("nine", ("N", "AY", "N")), ("a", ("AH",)), ("one", ("W", "AH", "N"))]
    pairs = [("one", "nine"), ("the", "a"), ("one", "one"), ("nine", "***")]
    found = phone_pairs(pairs, said, lexicon)
    assert [pair for pair in found if pair[0] != pair[1]] == [("W", "N"), ("AH", "AY"), ("DH", "***")] + [
        (phone, "***") for phone in ("N", "AY", "N")]
    assert phone_pairs(pairs, said[:2], lexicon) == []
    assert phone_pairs([("Ohio", "nine"), ("***", "a"), ("one", "one")], said, lexicon) == []


def test_phone_confusions_of_the_page(shown: dict[str, Any], experiment: Path) -> None:
    """Counted another way: alone in an utterance of spelled letters, a wrong letter's phones are those of its line in the lexicon."""
    wide = next(one for one in shown["systems"] if one["name"] == "wide/decode")
    confused = wide["phoneConfusions"]
    assert confused and all(ref != hyp and count > 0 for ref, hyp, count in confused)
    assert not any(phone.endswith(("_B", "_E", "_I", "_S")) or phone == "SIL" for row in confused for phone in row[:2])
    assert sum(row[2] for row in confused) >= wide["errors"] / 2


def test_a_page_is_named_as_its_folders(tmp_path):
    one, other = tmp_path / "an4" / "s5" / "exp" / "tri1", tmp_path / "an4" / "s5" / "exp" / "dnn"
    assert title([one.parent]) == "an4/s5/exp" and title([one]) == "s5/exp/tri1"
    assert title([one, other]) == "an4/s5/exp: tri1, dnn"
    assert title([one.parent, tmp_path / "wsj" / "s5" / "exp" / "tri1"]) == "an4/s5/exp and s5/exp/tri1"
