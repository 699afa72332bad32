"""Frame stores of lhotse's cuts: those of the data directory, and with copies that lhotse makes while they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import write_labels
from pykaldist.io.cuts import data_dir_cuts
from pykaldist.io.datadir import DataDir, write_datadir

RATE, UTTS, PDFS = 8000, 24, 5
CONF = "--sample-frequency=8000\n--dither=0\n"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """24 utterances of 4 speakers, with features, CMVN and an alignment, and the manifest of their cuts."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"s{n % 4}-u{n:02d}" for n in range(UTTS)]
    wavs = {}
    for name in names:
        wavs[name] = str(tmp_path / f"{name}.wav")
        soundfile.write(wavs[name], rng.normal(0, 2000, int(rng.integers(3000, 6000))).astype(np.int16), RATE)
    data = write_datadir(tmp_path / "data", wavs, {name: "A" for name in names}, {name: name[:2] for name in names})
    (tmp_path / "mfcc.conf").write_text(CONF)
    assert main(["make-feats", "data", "mfcc", "--feats-config", "mfcc.conf"]) == 0
    assert main(["collect-feats", "data", "mfcc"]) == 0
    assert main(["make-cmvn", "data", "cmvn"]) == 0
    labels = {utt: rng.integers(0, PDFS, len(feats)).astype(np.int32) for utt, feats in DataDir(data.path).feats.items()}
    (tmp_path / "ali").mkdir()
    write_labels(tmp_path / "ali", data, labels, 1, PDFS)
    assert main(["make-cuts", "data", "cuts.jsonl.gz"]) == 0
    return tmp_path


def packed(corpus: Path, cuts: str, store: str, *options: str) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Features and targets of each utterance in the stores that pack-cuts makes."""
    assert main(["pack-cuts", "--feats-config", "mfcc.conf", *options, cuts, "ali", store]) == 0
    return {name: of_store(corpus / store / name) for name in ("train", "dev")}


def of_store(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    store = FrameStore(path)
    return {utt: (np.asarray(store.features(i)), np.asarray(store.targets[store.offsets[i]:store.offsets[i + 1]]))
            for i, utt in enumerate(store.utts)}


def test_the_store_of_a_data_directorys_cuts_is_that_of_the_data_directory(corpus: Path) -> None:
    found = packed(corpus, "cuts.jsonl.gz", "of_cuts", "--cv-percent", "30", "--cmvn-opts=--norm-vars=true")
    (corpus / "held").write_text("".join(f"{utt}\n" for utt in found["dev"]))
    assert main(["pack", "--cv-utts", "held", "data", "ali", "of_data"]) == 0
    assert 0 < len(found["dev"]) < UTTS and len(found["train"]) + len(found["dev"]) == UTTS
    for name, utts in found.items():
        expected = of_store(corpus / "of_data" / name)
        assert utts.keys() == expected.keys()
        for utt, (feats, targets) in utts.items():
            np.testing.assert_allclose(feats, expected[utt][0], atol=2e-4)
            np.testing.assert_array_equal(targets, expected[utt][1])
    for name in ("cmvn_opts", "delta_opts"):
        assert (corpus / "of_cuts" / name).read_text() == (corpus / "of_data" / name).read_text()


@pytest.mark.parametrize("cuts", ["both.jsonl.gz", "shar"])
def test_copies_are_made_while_they_are_read_and_take_their_utterances_alignment(corpus: Path, cuts: str) -> None:
    plain = data_dir_cuts("data").to_eager()
    both = plain + plain.perturb_volume(2.0)
    if cuts == "shar":
        Path("shar").mkdir()
        both.to_shar("shar", fields={"recording": "wav"}, shard_size=7)
    else:
        both.to_file(cuts)
    found = packed(corpus, cuts, "of_both", "--cv-percent", "30", "--cmvn-opts=--norm-means=false")
    assert not any(utt.endswith("_vp2.0") for utt in found["dev"])
    for utt in [utt for utt in found["train"] if not utt.endswith("_vp2.0")]:
        (feats, targets), (louder, same) = found["train"][utt], found["train"][f"{utt}_vp2.0"]
        np.testing.assert_array_equal(targets, same)
        np.testing.assert_allclose(louder[:, 1:], feats[:, 1:], atol=0.5)  # twice as loud: the energy alone is another
        assert (louder[:, 0] - feats[:, 0]).mean() == pytest.approx(2 * np.log(2), abs=0.1)
    assert len(found["train"]) == 2 * (UTTS - len(found["dev"]))


def test_other_speeds_need_alignments_of_their_own_and_dev_may_be_named(corpus: Path) -> None:
    cuts = data_dir_cuts("data").to_eager()
    CutSet(list(cuts)[:12]).perturb_speed(0.8).to_file("slow.jsonl.gz")
    CutSet(list(cuts)[12:]).to_file("rest.jsonl.gz")
    assert main(["pack-cuts", "--feats-config", "mfcc.conf", "slow.jsonl.gz", "ali", "none"]) == 1
    CutSet(list(cuts)[:12]).to_file("first.jsonl.gz")
    found = packed(corpus, "first.jsonl.gz", "parts", "--cv-cuts", "rest.jsonl.gz")
    assert (len(found["train"]), len(found["dev"])) == (12, 12)


def test_features_that_are_stored_with_cuts_are_taken(corpus: Path) -> None:
    from lhotse import Fbank, FbankConfig

    cuts = data_dir_cuts("data").to_eager()
    cuts.compute_and_store_features(Fbank(FbankConfig(sampling_rate=RATE, num_filters=23)), "fbank").to_file("fbank.jsonl.gz")
    assert main(["pack-cuts", "--stored-features", "true", "--cmvn-opts=--norm-means=false", "fbank.jsonl.gz", "ali", "stored"]) == 0
    assert of_store(corpus / "stored/train")["s0-u00"][0].shape[1] == 23
    assert main(["pack-cuts", "--stored-features", "true", "cuts.jsonl.gz", "ali", "nothing"]) == 1
