"""Import from every kind of source gives the one form; what does not match is counted, and too much of it is an error."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, silence_pdfs
from pykaldist.hmm.gmm.model_files import read_tree
from pykaldist.hmm.import_ali.import_ali import ImportOptions, import_alignments
from pykaldist.hmm.import_ali.phone_states import PhoneStates
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter, write_int_vectors

Import = Callable[..., AlignmentDir]
LENGTHS = {"a-1": 40, "a-2": 31, "b-1": 52, "b-2": 45}


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    data = write_datadir(tmp_path / "data", {u: "none" for u in LENGTHS}, None, {u: u[0] for u in LENGTHS})
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for utt, frames in LENGTHS.items():
            writer.write(utt, np.zeros((frames, 2), dtype=np.float32))
    return DataDir(data.path)


@pytest.fixture
def phones(toy_lang: LangDir) -> dict[str, np.ndarray]:
    """The phone of each frame: silence, A B, silence; each a quarter of the utterance, the odd frames to the last."""
    ids = [toy_lang.phones[p] for p in ("SIL", "A_B", "B_E", "SIL")]
    return {u: np.repeat(ids, [n // 4] * 3 + [n - 3 * (n // 4)]).astype(np.int32) for u, n in LENGTHS.items()}


@pytest.fixture
def run(data: DataDir, toy_lang: LangDir, tmp_path: Path) -> Import:
    def run(source: Path, log: list[str] | None = None, nj: int = 2, target: str = "exp", **options: object) -> AlignmentDir:
        import_alignments(source, data.path, toy_lang.path, tmp_path / target, ImportOptions(**options), nj,  # type: ignore[arg-type]
                          (log if log is not None else []).append)
        return AlignmentDir(tmp_path / target)

    return run


def intervals(phones: np.ndarray, lang: LangDir) -> list[tuple[float, float, str]]:
    starts = [0, *(np.flatnonzero(np.diff(phones)) + 1).tolist(), len(phones)]
    return [(a / 100, b / 100, lang.phones.symbol(int(phones[a]))) for a, b in itertools.pairwise(starts)]


def source_of(kind: str, path: Path, phones: dict[str, np.ndarray], lang: LangDir) -> Path:
    path.mkdir()
    if kind == "ids":
        write_int_vectors(path / "phones.gz", phones.items())
    elif kind == "names":
        (path / "a.txt").write_text("".join(f"{u} {' '.join(map(lang.phones.symbol, x.tolist()))}\n" for u, x in phones.items()))
    elif kind == "npz":
        np.savez(path / "x.npz", **phones)
        return path / "x.npz"
    elif kind == "ctm":
        lines = [f"{u} 1 {a:.2f} {b - a:.2f} {p}\n" for u, x in phones.items() for a, b, p in intervals(x, lang)]
        (path / "a.ctm").write_text("".join(lines))
    elif kind == "words":
        (path / "a.ctm").write_text("".join(f"{u} 1 {len(x) // 4 / 100:.2f} {len(x) // 4 * 2 / 100:.2f} ab\n" for u, x in phones.items()))
    else:
        for utt, x in phones.items():
            rows = [(a, b, "" if p == "SIL" else p[0]) for a, b, p in intervals(x, lang)]
            words = [rows[0], (rows[1][0], rows[2][1], "ab"), rows[3]]
            text = f'"ooTextFile"\n"TextGrid"\n0\n{rows[-1][1]}\n<exists>\n2\n'
            for name, tier in (("words", words), ("phones", rows)):
                text += f'"IntervalTier"\n"{name}"\n0\n{rows[-1][1]}\n{len(tier)}\n' + "".join(f'{a}\n{b}\n"{p}"\n' for a, b, p in tier)
            (path / f"{utt}.TextGrid").write_text(text)
    return path


@pytest.mark.parametrize("kind", ["ids", "names", "npz", "ctm", "words", "textgrid"])
def test_phones_from_every_source(kind: str, run: Import, tmp_path: Path, phones: dict[str, np.ndarray], toy_lang: LangDir) -> None:
    log: list[str] = []
    ali = run(source_of(kind, tmp_path / "source", phones, toy_lang), log)
    assert ali.model is not None and ali.has_transition_ids and ali.num_pdfs == 15
    assert ali.num_pdfs == read_tree(ali.path / "tree").num_pdfs
    for utt, expected in phones.items():
        np.testing.assert_array_equal(ali.phones(utt), expected)
        found = ali.pdfs(utt)
        assert found is not None and len(found) == LENGTHS[utt]
        states = ali.model.tid2hmm_state[ali.labels[utt]]
        for start, length in zip(*phone_segments(ali.labels[utt], ali.model)[1:], strict=True):
            assert np.unique(states[start:start + length], return_counts=True)[1].tolist() == \
                [length // 3 + (k < length % 3) for k in range(3)]
    assert ali.archives == [ali.path / "ali.1.gz", ali.path / "ali.2.gz"] and ali.pdfs("zzz") is None
    silence = sum(int((x == 1).sum()) for x in phones.values()) / sum(LENGTHS.values())
    assert f"silence is {100 * silence:.1f} % of the frames" in log
    assert ali.provenance["report"]["matched"] == 4 and ali.provenance["labels"] == ("word" if kind == "words" else "phone")
    if kind == "ids":  # probabilities are those counted, where there are enough
        tids = np.concatenate(list(ali.labels.values()))
        first = ali.model.tuple2state(int(phones["a-1"][12]), 0, ali.model.tuples[ali.model.tuples[:, 0] == phones["a-1"][12]][0, 2])
        ids = range(*ali.model.state2first[first:first + 2])
        counts = np.array([(tids == i).sum() for i in ids])
        np.testing.assert_allclose(np.exp(ali.model.log_probs[list(ids)]), counts / counts.sum(), rtol=1e-5)


def test_transition_ids_stay(run: Import, tmp_path: Path, phones: dict[str, np.ndarray], toy_lang: LangDir) -> None:
    """A directory as Kaldi leaves it: what belongs to the system comes along, older things go."""
    ours = run(source_of("ids", tmp_path / "source", phones, toy_lang), target="kaldi")
    for name in ("final.mat", "trans.1", "splice_opts"):
        (ours.path / name).write_text(name)
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp/ali.7.gz").touch()
    again = run(ours.path, nj=1)
    assert again.provenance["labels"] == "transition_id"
    for utt in LENGTHS:
        np.testing.assert_array_equal(again.labels[utt], ours.labels[utt])
    for name in ("final.mdl", "tree", "final.mat", "trans.1", "splice_opts"):
        assert (again.path / name).read_bytes() == (ours.path / name).read_bytes()
    assert [p.name for p in again.archives] == ["ali.1.gz"] and (again.path / "num_jobs").read_text() == "1\n"
    with pytest.raises(UserError, match="is both source and target"):
        run(ours.path, target="kaldi")


def test_pdfs_stay_pdfs(run: Import, tmp_path: Path, phones: dict[str, np.ndarray], toy_lang: LangDir) -> None:
    ours = run(source_of("ids", tmp_path / "source", phones, toy_lang), target="kaldi")
    pdfs = {utt: ours.pdfs(utt) for utt in LENGTHS}
    write_int_vectors(tmp_path / "x.ark", pdfs.items())
    log: list[str] = []
    alone = run(tmp_path / "x.ark", log)
    assert not alone.has_transition_ids and alone.model is None and alone.num_pdfs == 1 + max(int(x.max()) for x in pdfs.values())
    assert any(line.startswith("WARNING: pdfs came without a model") for line in log) and alone.phones("a-1") is None
    with_model = run(tmp_path / "x.ark", log, model=str(ours.path))
    assert with_model.num_pdfs == 15 and (with_model.path / "tree").is_file()
    assert "silence is 51.2 % of the frames" in log
    for ali in (alone, with_model, run(with_model.path, target="again")):
        for utt in LENGTHS:
            np.testing.assert_array_equal(ali.pdfs(utt), pdfs[utt])
    write_int_vectors(tmp_path / "high.ark", ((u, x + 99) for u, x in pdfs.items()))
    with pytest.raises(UserError, match=r"found the id 1[01][0-9], the model has 0 to 14"):
        run(tmp_path / "high.ark", model=str(ours.path))


def test_what_does_not_match_is_reported(run: Import, tmp_path: Path, phones: dict[str, np.ndarray], toy_lang: LangDir) -> None:
    names = {u: [toy_lang.phones.symbol(p) for p in x.tolist()] for u, x in phones.items()}
    names["a-1"] += ["SIL"] * 5
    names["a-2"] += ["SIL"] * 6
    names["b-1"][20] = "Q"
    names["extra"] = names.pop("b-2")
    (tmp_path / "names.txt").write_text("".join(f"{u} {' '.join(x)}\n" for u, x in names.items()))
    with pytest.raises(UserError, match=r"3 of 4 utterances .* more than 10 %: 1 utterances have features but no alignment: b-2; check"):
        run(tmp_path / "names.txt")
    assert not (tmp_path / "exp").exists()
    log: list[str] = []
    ali = run(tmp_path / "names.txt", log, max_unmatched=75.0)
    assert list(ali.labels) == ["a-1"] and len(ali.labels["a-1"]) == 40
    report = ali.provenance["report"]
    assert (report["trimmed"], report["extra"], report["missing"], report["unknown_phones"]) == (1, 1, ["b-2"], {"Q": 1})
    assert report["lengths"] == {"a-2": "37 frames of alignment, 31 of features"} and list(report["unusable"]) == ["b-1"]
    assert "WARNING: 1 phones are unknown to the language directory: Q (1)" in log


def test_times_that_leave_gaps_or_overlap(run: Import, tmp_path: Path, toy_lang: LangDir) -> None:
    (tmp_path / "a.ctm").write_text("a-1 1 0.10 0.10 A\na-1 1 0.25 0.05 B\na-2 1 0.00 0.20 A\na-2 1 0.18 0.10 B\n"
                                    "b-1 1 0 1e300 A\nb-2 1 0 0.02 A\n")
    ali = run(tmp_path / "a.ctm", max_unmatched=50)
    number = toy_lang.phones
    assert ali.phones("a-1").tolist() == [1] * 10 + [number["A_I"]] * 10 + [1] * 5 + [number["B_I"]] * 5 + [1] * 10
    report = ali.provenance["report"]
    assert report["unusable"] == {"a-2": "A (0 to 0.2 s) and B (from 0.18 s) overlap"} and list(report["lengths"]) == ["b-1"]
    assert report["short_phones"] == 1 and report["unlabelled_frames"] == 25 + 43


def test_recordings_are_cut_into_segments(tmp_path: Path, toy_lang: LangDir, data: DataDir, run: Import) -> None:
    (data.path / "segments").write_text("a-1 rec 1.0 1.4\na-2 rec 2.0 2.31\nb-1 rec 3.0 3.52\nb-2 rec 4.0 4.45\n")
    (tmp_path / "a.ctm").write_text("rec 1 1.2 1.0 A\nrec 1 3.0 0.52 B\n")
    ali = run(tmp_path / "a.ctm")
    a, b = toy_lang.phones["A_I"], toy_lang.phones["B_I"]
    assert [ali.phones(u).tolist() for u in LENGTHS] == [[1] * 20 + [a] * 20, [a] * 20 + [1] * 11, [b] * 52, [1] * 45]


def test_damage_and_disagreement(run: Import, tmp_path: Path, phones: dict[str, np.ndarray], toy_lang: LangDir) -> None:
    ours = run(source_of("ids", tmp_path / "source", phones, toy_lang), target="kaldi")
    with pytest.raises(UserError, match="--nj: expected a number from 1 to 4"):
        run(ours.path, nj=5)
    table = (ours.path / "phones.txt").read_text()
    (ours.path / "phones.txt").write_text(table.replace("A_B", "Z_B"))
    with pytest.raises(UserError, match=r"phones\.txt has changed since steps/import_ali\.sh made .*; run steps/import_ali\.sh again"):
        run(ours.path)
    (ours.path / "inputs.json").unlink()
    with pytest.raises(UserError, match=r"disagree about A_B"):
        run(ours.path)
    (ours.path / "phones.txt").write_text(table)
    write_int_vectors(ours.path / "ali.1.gz", [("a-1", np.array([9999]))])
    with pytest.raises(UserError, match=r"ali\.1\.gz, a-1: found the id 9999"):
        run(ours.path)
    (tmp_path / "twice.txt").write_text("a-1 1 2\na-1 1 2\n")
    with pytest.raises(UserError, match="has a-1 twice"):
        run(tmp_path / "twice.txt")
    (ours.path / "provenance.json").write_text("{")
    with pytest.raises(UserError, match=r"provenance\.json is damaged"):
        _ = AlignmentDir(ours.path).provenance
    (ours.path / "final.mdl").unlink()
    with pytest.raises(UserError, match=r"has ali\.\*\.gz but no final\.mdl"):
        AlignmentDir(ours.path)


def test_silence_pdfs_are_those_of_silence_alone(toy_lang: LangDir) -> None:
    assert silence_pdfs(PhoneStates(toy_lang).model, toy_lang.silence_phones).tolist() == [0, 1, 2, 3, 4, 5]


def test_as_a_user_runs_it(root: Path, data: DataDir, toy_lang: LangDir, tmp_path: Path, phones: dict[str, np.ndarray]) -> None:
    source_of("ctm", tmp_path / "source", phones, toy_lang)

    def bash(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", f"cd '{tmp_path}'; . '{root}/path.sh'; '{root}/steps/import_ali.sh' {script}"],
                              capture_output=True, text=True, check=False)

    made = bash(f"--nj 2 source data '{toy_lang.path}' exp/ali")
    assert made.returncode == 0, made.stderr
    assert made.stdout == ("import_ali.sh: 4 of 4 utterances have an alignment, 168 frames, silence is 51.2 % of the frames; alignments in "
                           "exp/ali\n")
    assert json.loads((tmp_path / "exp/ali/provenance.json").read_text())["format"] == "CTM"
    text = (tmp_path / "source/a.ctm").read_text().splitlines()
    (tmp_path / "source/a.ctm").write_text("\n".join(text[:-4]))
    failed = bash(f"--nj 2 source data '{toy_lang.path}' exp/other")
    assert failed.returncode == 1 and "1 of 4 utterances of data have no usable alignment in source, more than 10 %" in failed.stderr
    allowed = bash(f"--nj 2 --max-unmatched 25 source data '{toy_lang.path}' exp/other")
    assert allowed.returncode == 0 and "WARNING: 1 utterances have features but no alignment: b-2" in allowed.stderr
    asked, wrong = bash("--help"), bash("")
    assert (asked.returncode, wrong.returncode) == (0, 1) and asked.stdout == wrong.stderr and " e.g.: " in asked.stdout
