"""The page of a study, made of its claims and results alone: the cells of each claim, its contrasts and what they say, what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from pykaldist.report.figures import pyplot, save
from pykaldist.report.text import markdown, without_empty_columns
from pykaldist.study.claims import Claim, Contrast
from pykaldist.study.order import Examined, search_of
from pykaldist.study.results import MEASURES, Result, Results
from pykaldist.study.statistics import over_seeds, verdict, written

INTRODUCTION = """# Claims examined

Claims of papers on training by many workers, each examined by many small trainings. `egs/study/run.sh` does what is missing, and writes
this page from `egs/study/results/`. Each cell has its own learning rate, found by the same search in at most five tries, by the held-out
loss of one seed that is used for nothing else; where a claim has no tries, its rates are those of its options. Differences are computed
within seeds; ± is half of a 95 % interval. That of differences in word error rate holds for other seeds and other utterances, so that a
small test set widens it however many seeds there are. A difference is resolved where p < 0.0142: adding seeds until it is then finds one
that is not there in 5 of 100 cases, so that of many differences on this page some are not there. "Resolves" is the smallest difference that
such data resolve in four of five studies. Seconds of CPU are those of a whole training with its decoding, all workers in one process on one
core; simulated ones, of a cluster, are there where the order of events is simulated."""


def render(claims: Sequence[Claim], results: Results, pictures: Mapping[tuple[str, str], str] | None = None) -> str:
    """Write the page; `pictures` are addresses of those that `plot` drew, by claim and corpus."""
    examined = [Examined(claim, corpus, results) for claim in claims for corpus in claim.corpora]
    left = sum(one.lacking(name) for one in examined for name in one.claim.cells)
    parts = [INTRODUCTION, f"{len(results)} trainings are done; at most {left} are missing until every cell has its first seeds."]
    for claim in claims:
        parts += [f"## {claim.title}", f"{claim.source}. {claim.published}."]
        for one in (one for one in examined if one.claim is claim):
            parts += _section(one)
            if picture := (pictures or {}).get((claim.name, one.corpus)):
                parts.append(f"![Word error rate and held-out loss of each cell on {one.corpus}]({picture})")
        parts += [claim.explanation] if claim.explanation else []
    return "\n\n".join(parts) + "\n"


def _section(one: Examined) -> list[str]:
    """A claim on one corpus."""
    left = sum(one.lacking(name) for name in one.claim.cells)
    head = f"**{one.corpus}**: " + (f"{left} trainings missing, at most." if left else "complete.")
    cells = [row for name in one.claim.cells if (row := _cell(one, name))]
    if not cells:
        return [head]
    contrasts = [_contrast(one, contrast) for contrast in one.claim.contrasts]
    return [head, markdown(without_empty_columns([CELLS, *cells])), markdown(without_empty_columns([CONTRASTS, *contrasts]))]


CELLS = ["cell", "rate", "its held-out loss in the search", "seeds", "rate of all workers", "held-out loss", "frames right, %",
         "held-out WER on lattices, %", "WER, %", "disagreement x 1000", "cosine of updates", "sharpness", "simulated s an epoch",
         "s of CPU", "diverged"]
CONTRASTS = ["difference", "published", "seeds", "WER, points", "p", "resolves", "verdict", "held-out loss", "its verdict"]


def _cell(one: Examined, name: str) -> list[str]:
    """The row of a cell; empty where none of it was trained."""
    found, state = one.seeds_of(name), search_of(one.claim.cells[name], one.corpus, one.results)
    if state.best is None:
        return []
    ended = [result for result in found.values() if not result.diverged]
    tries = len(one.tries_of(name))
    if not tries and not found:
        return []
    told = f" ({tries} {'try' if tries == 1 else 'tries'})"
    searching = told if state.next is not None else "" if state.bracketed else " (edge of its tries)"
    best = min((result.loss for result in one.tries_of(name)), default=None)
    in_search = "" if best is None else f"{best:.4f}" if math.isfinite(best) else "diverged"
    return [name, f"{state.best:g}{searching}", in_search, str(len(found)),
            rate_of_all(ended), over(ended, MEASURES["held-out loss"], 4),
            over(ended, lambda result: 100 * (result.cv_acc or 0.0), 2), over(ended, lattice_wer, 2),
            over(ended, MEASURES["WER, %"], 2), over(ended, disagreement, 1), over(ended, noted("update_cosine"), 2),
            over(ended, noted("sharpness"), 2), over(ended, simulated_seconds, 3),
            f"{mean(one.cpu_seconds for one in ended):.0f}" if ended else "", str(len(found) - len(ended) or "")]


def disagreement(result: Result) -> float:
    """The mean distance of workers from their mean, over its length, times 1000, in the middle epoch; 0 of one worker."""
    return 1000 * noted("disagreement")(result)


def noted(name: str) -> Callable[[Result], float]:
    """What the middle epoch has under a name: how workers' updates lie to each other; 0 where it was not measured."""
    return lambda result: float(result.history[len(result.history) // 2].get(name) or 0.0) if result.history else 0.0


def lattice_wer(result: Result) -> float:
    """The word error rate in % of the last epoch's held-out utterances among the words of their lattices; 0 of other objectives."""
    return 100 * float(result.history[-1].get("cv_wer") or 0.0) if result.history else 0.0


def simulated_seconds(result: Result) -> float:
    """The mean seconds of an epoch on the cluster that was simulated; 0 where none was."""
    seconds = [float(epoch["seconds"]["total"]) for epoch in result.history if epoch.get("time") == "simulated"]
    return mean(seconds) if seconds else 0.0


def rate_of_all(results: Sequence[Result]) -> str:
    """The learning rates of the first epoch that all workers share, as scaled for their number."""
    return ", ".join(f"{rate:.3g}" for rate in sorted({float(result.history[0]["learn_rate"]) for result in results if result.history}))


def over(results: Sequence[Result], value: Callable[[Result], float], digits: int) -> str:
    """The mean of a value with its interval over seeds; empty where there is none, or all are 0."""
    values = [value(result) for result in results]
    if len(set(values)) == 1 and values[0]:
        return f"{values[0]:.{digits}f}"
    return written(over_seeds(values), digits) if any(values) else ""


def _contrast(one: Examined, contrast: Contrast) -> list[str]:
    """The row of a contrast."""
    wer, loss = one.estimates(contrast)
    if wer is None:
        return [contrast.name, contrast.published, "0", "", "", "", "no seed yet", "", ""]
    fewest = one.claim.fewest_seeds
    several = wer.n > 1
    return [contrast.name, contrast.published, str(wer.n), written(wer, 2, "+"), f"{wer.p:.3f}" if several else "",
            f"{wer.smallest:.2f}" if several else "", verdict(wer, contrast.expected, fewest, " points"),
            *(("", "") if loss is None else (written(loss, 4, "+"), verdict(loss, contrast.expected, fewest, "", 4)))]


@dataclass
class Missing:
    """The trainings that a claim lacks on a corpus, at most, and the CPU time that they will take, None where it is not known yet."""

    claim: str
    corpus: str
    trainings: int
    cpu_seconds: float | None


def missing_trainings(claims: Sequence[Claim], results: Results) -> list[Missing]:
    """What is missing of each claim and corpus, and what it will take by what is known of trainings like it."""
    found = []
    for one in (Examined(claim, corpus, results) for claim in claims for corpus in claim.corpora):
        left = {name: one.lacking(name) for name in one.claim.cells}
        seconds = [count * cost for name, count in left.items() if count and (cost := _cost(one, name)) is not None]
        known = len(seconds) == sum(map(bool, left.values()))
        found.append(Missing(one.claim.name, one.corpus, sum(left.values()), sum(seconds) if known else None))
    return found


def missing_table(found: Sequence[Missing]) -> str:
    """What is missing, as a table."""
    rows = [["claim", "corpus", "trainings missing, at most", "CPU, minutes"]]
    rows += [[one.claim, one.corpus, str(one.trainings), "not known yet" if one.cpu_seconds is None else f"{one.cpu_seconds / 60:.0f}"]
             for one in found]
    return markdown(rows)


def _cost(one: Examined, name: str) -> float | None:
    """The mean seconds of CPU of a cell's trainings; where there are none, of the corpus's; None where there are none of these either."""
    own = [result.cpu_seconds for result in (*one.tries_of(name), *one.seeds_of(name).values()) if not result.diverged]
    known = own or [result.cpu_seconds for result in one.results if result.corpus == one.corpus and not result.diverged]
    return mean(known) if known else None


def plot(one: Examined, path: Path) -> bool:
    """Draw the cells' word error rates and held-out losses with their intervals; returns False where there is nothing to draw."""
    found = {name: [result for result in one.seeds_of(name).values() if not result.diverged] for name in one.claim.cells}
    found = {name: results for name, results in found.items() if results}
    if not found:
        return False
    plt = pyplot(path)
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 1.2 + 0.3 * len(found)))
    for panel, (label, value) in zip(axes, MEASURES.items(), strict=True):
        estimates = [over_seeds([value(result) for result in results]) for results in found.values()]
        halves = [one.half if math.isfinite(one.half) else 0.0 for one in estimates]
        panel.errorbar([one.mean for one in estimates], list(found), xerr=halves, fmt="o", capsize=3)
        panel.set_xlabel(f"{label} (95 % over seeds)")
        panel.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    save(plt, figure, path)
    return True
