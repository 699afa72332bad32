"""What is trained next: begun claims first, more seeds before another claim's first, and everything once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from study_claims import a_claim, a_result

from pykaldist.study.claims import Claim, Contrast
from pykaldist.study.order import Examined, in_order, search_of
from pykaldist.study.results import TUNING_SEED, Result, Results, Trial


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def campaign(claims: list[Claim], results: Results, outcome: Callable[[Trial], Result] = a_result) -> list[Trial]:
    """The trainings until nothing is missing, one after the other."""
    done = []
    while (trial := next(in_order(claims, ["toy"], results), None)) is not None:
        assert trial not in results
        results.add(outcome(trial))
        done.append(trial)
    return done


def noisy(trial: Trial) -> Result:
    """Errors that hang on the seed and the optimiser, so that three seeds tell nothing of the difference, and utterances are alike."""
    change = (7 * trial.seed) % 5 if "ngsgd" in trial.options else (3 * trial.seed) % 5
    return a_result(trial, errors=(10 + change,) * 50, words=5000)


def own(trials: list[Trial], word: str) -> list[int]:
    """The places of the trainings of the claim that has this option of its own."""
    return [place for place, trial in enumerate(trials) if word in trial.options]


def test_rates_come_first_and_are_found_without_the_seeds_of_results(results: Results) -> None:
    claim = a_claim("one")
    done = campaign([claim], results, lambda trial: a_result(trial, abs(float(trial.options.split()[3]) - 0.02)))
    decisive = [trial for trial in done if "ngpu" not in trial.options]
    assert [trial.tuning for trial in decisive] == sorted((trial.tuning for trial in decisive), reverse=True)
    for name, cell in claim.cells.items():
        assert search_of(cell, "toy", results).best == 0.02
        seeds = {trial.seed for trial in done if Examined(claim, "toy", results).seeds_of(name)}
        assert seeds == {TUNING_SEED, 0, 1, 2}


def test_an_unresolved_claim_gets_more_seeds_before_another_gets_its_first(results: Results) -> None:
    one, two = a_claim("one", own="--first 1", most_seeds=5), a_claim("two", own="--second 1", most_seeds=5)
    done = campaign([one, two], results, noisy)
    contrasted = [place for place in own(done, "--first") if "ngpu" not in done[place].options]
    assert max(done[place].seed for place in contrasted if not done[place].tuning) == 4
    assert max(contrasted) < min(own(done, "--second"))


def test_a_resolved_claim_leaves_its_turn_to_the_next(results: Results) -> None:
    one, two = a_claim("one", own="--first 1"), a_claim("two", own="--second 1")
    done = campaign([one, two], results, lambda trial: a_result(trial, errors=(1 + 9 * ("ngsgd" in trial.options),) * 50, words=5000))
    assert {trial.seed for trial in done} == {0, 1, 2, TUNING_SEED}
    others = [place for place in own(done, "--first") if "ngpu" in done[place].options]
    assert min(others) > max(place for place in own(done, "--second") if "ngpu" not in done[place].options)


def test_what_is_begun_comes_before_what_is_not(results: Results) -> None:
    one, two = a_claim("one", own="--first 1"), a_claim("two", own="--second 1")
    results.add(a_result(next(in_order([two], ["toy"], results))))
    assert "--second" in next(in_order([one, two], ["toy"], results)).options


def test_a_test_set_that_is_too_small_gets_no_more_seeds(results: Results) -> None:
    def same_in_sum(trial: Trial) -> Result:
        return a_result(trial, errors=(0, 10) * 25 if "ngsgd" in trial.options else (10, 0) * 25, words=500)

    done = campaign([a_claim("one")], results, same_in_sum)
    assert max(trial.seed for trial in done if not trial.tuning) == 2


def test_claims_share_trainings_and_corpora_that_are_not_here_are_left_out(results: Results) -> None:
    one, two = a_claim("one"), a_claim("two", corpora=("toy", "elsewhere"))
    done = campaign([one, two], results)
    assert len(done) == len(set(done)) and {trial.corpus for trial in done} == {"toy"}
    assert not list(in_order([two], ["toy"], results)) and list(in_order([two], ["elsewhere"], results))


def test_what_is_lacking_counts_down_to_nothing(results: Results) -> None:
    claim = a_claim("one")
    one, counts = Examined(claim, "toy", results), []
    while (trial := next(in_order([claim], ["toy"], results), None)) is not None:
        counts.append(sum(one.lacking(name) for name in claim.cells))
        results.add(a_result(trial))
    assert counts == sorted(counts, reverse=True) and counts[0] == 4 * 8 and not sum(one.lacking(name) for name in claim.cells)


def test_a_claim_with_fixed_rates_has_seeds_alone(results: Results) -> None:
    claim = a_claim("one", tries=0)
    assert Examined(claim, "toy", results).lacking("a, 1") == claim.fewest_seeds and not Examined(claim, "toy", results).begun
    done = campaign([claim], results)
    assert not any(trial.tuning for trial in done) and {trial.options.split()[3] for trial in done} == {"0.01"}
    assert {trial.seed for trial in done} == {0, 1, 2} and len(done) == 3 * len(claim.cells)
    assert Examined(claim, "toy", results).begun and not Examined(claim, "toy", results).lacking("a, 1")


def test_losses_of_different_objectives_are_not_compared(results: Results) -> None:
    axes = ({"a": "--objective xent", "b": "--objective smbr", "c": "--objective smbr --splice 1",
             "d": "--objective smbr --one-silence-class false"},)
    contrasts = tuple(Contrast(name, {"b": 1.0, name: -1.0}, "less", 0.1) for name in ("a", "c", "d"))
    claim = a_claim("one", tries=0, axes=axes, contrasts=contrasts)
    campaign([claim], results)
    wers, losses = zip(*(Examined(claim, "toy", results).estimates(contrast) for contrast in contrasts), strict=True)
    assert None not in wers and losses[0] is None and losses[1] is not None and losses[2] is None
