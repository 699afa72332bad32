"""Claims are read with all their cells; what does not fit is refused; the project's own claims have options that training takes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from study_claims import a_claim

from pykaldist.cli import train
from pykaldist.errors import UserError
from pykaldist.study.claims import chosen, read_claims
from pykaldist.study.corpora import read_corpora
from pykaldist.study.order import options_at
from pykaldist.study.starts import HERE
from pykaldist.train.chain_forms import read_chain_form

STUDY = Path(__file__).resolve().parents[2] / "egs" / "study"


def test_a_cell_is_one_value_of_each_axis() -> None:
    claim = a_claim("one", first_rates={"": 0.01, "b": 0.02, "b, 4": 0.04})
    assert list(claim.cells) == ["a, 1", "a, 4", "b, 1", "b, 4"]
    assert [cell.first_rate for cell in claim.cells.values()] == [0.01, 0.01, 0.02, 0.04]
    assert claim.decisive == ["b, 1", "a, 1"]


def test_options_are_written_alike_whatever_their_order_and_a_later_one_takes_the_place_of_an_earlier() -> None:
    cell = a_claim("one", options="--hid-dim 8 --learn-rate {rate} --hid-dim 16", axes=({"a": "--ngpu 4"},),
                   contrasts=()).cells["a"]
    assert options_at(cell, 0.5) == "--hid-dim 16 --learn-rate 0.5 --ngpu 4"
    assert "--final-learn-rate 0.05 " in options_at(a_claim("two").cells["a, 1"], 0.5)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"options": "--learn-rate 0.1"}, "{rate}"),
    ({"first_rates": {"a": 0.1}}, 'a rate for ""'),
    ({"axes": [{"a": "sgd"}]}, "begin with --"),
    ({"contrasts": [{"name": "c", "weights": {"a, 1": 1, "c, 1": -1}, "expected": "more", "margin": 1}]}, "c, 1"),
    ({"contrasts": [{"name": "c", "weights": {"a, 1": 1, "b, 1": 1}, "expected": "more", "margin": 1}]}, "add up to 0"),
    ({"contrasts": [{"name": "c", "weights": {"a, 1": 1, "b, 1": -1}, "expected": "better", "margin": 1}]}, "one of more, less, alike"),
    ({"fewest_seeds": 9}, "2 to 8"),
    ({"tries": 1}, "0, where rates are fixed"),
])
def test_a_claim_that_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    good = {"title": "t", "source": "s", "published": "p", "corpora": ["toy"], "options": "--learn-rate {rate}",
            "axes": [{"a": "--optimizer sgd", "b": "--optimizer ngsgd"}, {"1": ""}], "first_rates": {"": 0.1}, "contrasts": []}
    path = tmp_path / "claim.json"
    path.write_text(json.dumps(good))
    assert [claim.name for claim in read_claims(tmp_path)] == ["claim"]
    path.write_text(json.dumps({**good, **changes}))
    with pytest.raises(UserError, match=f"claim.json.*{sentence}"):
        read_claims(tmp_path)


def test_unknown_names_and_folders_without_claims_are_refused(tmp_path: Path) -> None:
    claims = [a_claim("one"), a_claim("two")]
    assert [claim.name for claim in chosen(claims, ["two"])] == ["two"] and chosen(claims, []) == claims
    with pytest.raises(UserError, match="no claim three; choose among one, two"):
        chosen(claims, ["three"])
    with pytest.raises(UserError, match="has no claim"):
        read_claims(tmp_path)


@pytest.mark.parametrize("claim", read_claims(STUDY / "claims"), ids=lambda claim: claim.name)
def test_training_takes_the_options_of_every_cell(claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "run_job", lambda *_: 0)
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    known = read_corpora(STUDY / "corpora.json")
    for cell in claim.cells.values():
        options = options_at(cell, cell.first_rate).replace("{seed}", "1").replace("{dbn}", "dbn").replace(
            "{lattices}", "--nnet-init final.nnet --feature-transform transform --class-frame-counts counts --denlats store")
        assert "{" not in options, cell
        for corpus in (known[name] for name in claim.corpora):
            words = [*map(str, HERE), *options.split()]
            if corpus.chain:
                folders = ("--feat-dir", "data", "--tree-dir", "tree", "--lat-dir", ".", "--dir", "exp")
                form = read_chain_form([*words, *corpus.chain.split(), *folders], frames=lambda data: 900_000)
                words = [f"--{name}={value}" for name, value in form.job.items()]
            assert train.run(parser.parse_args([*words, "store", "exp"])) == 0, cell
