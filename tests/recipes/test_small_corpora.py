"""The recipes of TIMIT, TED-LIUM and Common Voice, every stage, on AN4 in their corpora's layouts."""

from __future__ import annotations

import re

import pytest
from layouts import commonvoice, tedlium, timit

TINY = ["--config", "conf/stand_in.conf", "--nj", "2", "--ngpu", "1", "--device", "cpu", "--rbm", "false",
        "--train-opts", "--num-threads 1"]


def rates(output: str) -> dict[str, float]:
    """System/decoding -> error rate, of the report."""
    return {row[0]: float(row[1]) for row in re.findall(r"\| (\w+/decode\w*) +\| +([\d.]+) +\|", output)}


@pytest.mark.parametrize(("speakers", "each", "worst"), [(8, 2, 95), pytest.param(40, 8, 45, marks=pytest.mark.slow)])
def test_timit_from_the_corpus_to_a_phone_error_rate(make_recipe, shared, tmp_path, speakers, each, worst):
    timit.lay_out(shared, tmp_path / "LDC93S1/timit", speakers, each)
    folder, run = make_recipe("timit")
    done = run("--corpus", tmp_path, *TINY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    assert found.keys() == {f"{system}/decode_test" for system in ("mono", "tri1", "tri2", "tri3", "dnn")} | \
        {f"{system}/decode_dev" for system in ("mono", "tri1", "tri2", "tri3", "dnn")}
    assert max(found.values()) < worst, found
    scored = (folder / "exp/dnn/decode_test/scoring_kaldi/test_filt.txt").read_text().split()
    assert "sil" in scored and not {"h#", "q", "cl", "vcl", "ao", "ax"} & set(scored)


@pytest.mark.parametrize(("parts", "worst"), [({"train": (4, 6), "dev": (2, 2), "test": (2, 2)}, 100), pytest.param(tedlium.PARTS, 40,
                                                                                                            marks=pytest.mark.slow)])
def test_tedlium_from_the_corpus_to_word_error_rates(make_recipe, shared, tmp_path, parts, worst):
    tedlium.lay_out(shared, tmp_path / "corpus", tmp_path / "corpus/lm", parts, 3)
    _, run = make_recipe("tedlium", "s5_r3")
    done = run("--corpus", tmp_path / "corpus", *TINY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    decoded = [f"decode_{part}{lm}" for part in ("dev", "test") for lm in ("", "_rescore")]
    assert found.keys() == {f"{system}/{one}" for system in ("tri3", "dnn") for one in decoded}
    assert max(found.values()) <= worst, found


@pytest.mark.parametrize(("parts", "worst"), [({"train": (4, 6), "dev": (2, 2), "test": (2, 2)}, 100), pytest.param(commonvoice.PARTS, 50,
                                                                                                            marks=pytest.mark.slow)])
def test_common_voice_from_a_release_to_a_word_error_rate(make_recipe, shared, tmp_path, parts, worst):
    commonvoice.lay_out(shared, tmp_path / "cv-corpus-1", parts)
    folder, run = make_recipe("commonvoice")
    done = run("--corpus", tmp_path / "cv-corpus-1", "--language", "en", *TINY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    assert found.keys() == {f"{system}/decode_{part}" for system in ("tri3", "dnn") for part in ("dev", "test")}
    assert max(found.values()) <= worst, found
    assert "hid_dim=256" in (folder / "data/local/sizes").read_text().split()  # those for so little speech; the option's are smaller
