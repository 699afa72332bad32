"""The page of experiments: what is in it, as JSON, and the one HTML file that shows it.

The page is `page.html` with `page.css`, `page.js` and the JSON put in, so that it needs no network and no server; its content security
policy lets the browser load nothing. Symbols (words and phones) stand in one list, utterances of a test set in another, and elsewhere in
the JSON are their numbers, -1 for none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pykaldist
from pykaldist.errors import UserError
from pykaldist.frames.store import StoreManifest
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.schema import read_json
from pykaldist.report.models import model_facts
from pykaldist.report.page import sound, systems, utterances
from pykaldist.report.page.options import PageOptions
from pykaldist.report.page.phones import phone_pairs
from pykaldist.report.page.systems import Pairs
from pykaldist.report.page.utterances import Recognised, TestSet
from pykaldist.report.runs import Run, differing_options, named_systems, runs
from pykaldist.report.table import System
from pykaldist.score.alignment import GAP

HERE = Path(__file__).parent
MEGABYTE = 1_000_000
FRAMES_PER_HOUR = 360_000


class Symbols:
    """Words and phones, each with a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {GAP: -1}

    def __getitem__(self, symbol: str) -> int:
        return self.numbers.setdefault(symbol, len(self.numbers) - 1)

    def list(self) -> list[str]:
        """All symbols, by number."""
        return [symbol for symbol, number in self.numbers.items() if number >= 0]


def write_page(roots: Sequence[Path], options: PageOptions, target: Path) -> None:
    """Write the HTML page of the trainings and scored systems below folders; raises UserError where there is neither."""
    found = named_systems(roots)
    trained = runs(roots)
    if not found and not trained:
        raise UserError(f"{' '.join(map(str, roots))}: there is no training (history.jsonl) and no scored system (decode*/best_wer) below; "
                        "run a recipe's ./run.sh first.")
    page = content(roots, found, trained, options)
    write_text(target, html_page(page))
    heard = sum(len(one["sounds"]) for one in page["sets"])
    utts = sum(len(one["utterances"]) for one in page["sets"])
    print(f"{target}: {len(found)} scored systems, {len(trained)} trainings, {utts} utterances ({heard} with audio), "
          f"{target.stat().st_size / MEGABYTE:.1f} MB; open it in a browser")


def as_json(content: dict[str, Any]) -> str:
    """The content of a page as it stands there: without spaces, and without a character that begins markup."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def html_page(content: dict[str, Any]) -> str:
    """Put the content of a page into its template."""
    data = as_json(content)
    page = (HERE / "page.html").read_text(encoding="utf-8")
    parts = {"TITLE": escape(content["title"]), "CSS": (HERE / "page.css").read_text(encoding="utf-8"),
             "JS": (HERE / "page.js").read_text(encoding="utf-8"), "DATA": data}
    for name, text in parts.items():
        before, after = page.split(f"/*{name}*/")
        page = before + text + after
    return page


def content(roots: Sequence[Path], found: Sequence[System], trained: Sequence[Run], options: PageOptions) -> dict[str, Any]:
    """Everything that the page shows."""
    symbols, given = Symbols(), [DataDir(name) for name in options.data.split(",") if name]
    sets: list[TestSet] = []
    alignments: list[dict[str, Pairs]] = []
    places: list[int | None] = []
    for system in found:
        aligned = systems.read_alignments(system.per_utt) if system.per_utt.is_file() else {}
        alignments.append(aligned)
        places.append(_set_of(system, aligned, sets, given) if aligned else None)
    results = [_system(system, aligned, sets[place] if place is not None else None, place, symbols, options)
               for system, aligned, place in zip(found, alignments, places, strict=True)]
    page = {
        "title": title(roots), "made": time.strftime("%Y-%m-%d %H:%M %Z"),
        "version": pykaldist.__version__, "runs": [_run(run) for run in trained],
        "differences": differing_options([run for run in trained if run.config]) if len(trained) > 1 else [],
        "systems": results, "beside": systems.beside_others(found), "sets": [_test_set(one) for one in sets], "symbols": symbols.list(),
    }
    if options.audio != "none":
        _add_sounds(page, sets, alignments, places, options)
    return page


def title(roots: Sequence[Path]) -> str:
    """A folder's name with those above that say what it is, as prompts/s5/exp; several of one folder as prompts/s5/exp: tri1, dnn."""
    whole = [root.resolve() for root in roots]
    if len(whole) > 1 and len({root.parent for root in whole}) == 1:
        return f"{os.path.join(*whole[0].parts[-4:-1])}: {', '.join(root.name for root in whole)}"
    return " and ".join(os.path.join(*root.parts[-3:]) for root in whole)


def _set_of(system: System, aligned: dict[str, Pairs], sets: list[TestSet], given: Sequence[DataDir]) -> int:
    """The number of the test set of a system among `sets`, where a new one is put at the end."""
    references = utterances.references_of(aligned)
    for number, known in enumerate(sets):
        if known.references == references:
            return number
    data, by_user = utterances.data_of(system, references, given)
    sets.append(TestSet(os.path.relpath(data.path) if data else f"test set of {system.name}", references, data, by_user))
    return len(sets) - 1


def _run(run: Run) -> dict[str, Any]:
    """A training for the page."""
    model = model_facts(run.path)
    facts: list[tuple[str, str]] = [("folder", str(run.path)), ("model", str(model) if model else "")]
    if run.config:
        config = run.config
        facts += [("workers", f"{config.ngpu} on {config.device}"), ("began", config.started), ("host", config.host),
                  ("commit", config.commit or ""), ("versions", ", ".join(map(" ".join, config.versions.items()))), *data_facts(run)]
    return {
        "name": run.name, "workers": run.workers, "strategy": run.option("strategy"), "objective": run.objective,
        "facts": [fact for fact in facts if fact[1]], "layers": model.layers if model else "", "history": run.history,
        "simulated": run.simulated, "framesPerSecond": run.frames_per_second, "seconds": run.seconds,
        "options": [[one.name, one.value, one.default, one.help, one.changed] for one in run.options],
    }


def data_facts(run: Run) -> list[tuple[str, str]]:
    """The training and held-out data of a training, where its frame store is still there."""
    facts = []
    for part, name in (("train", "training data"), ("dev", "held-out data")):
        store = next((root / run.config.store / part for root in (Path(), *run.path.parents)
                      if (root / run.config.store / part / "manifest.json").is_file()), None) if run.config else None
        if store is not None:
            manifest = read_json(store / "manifest.json", StoreManifest, "pack the store again (steps/nnet/pack.sh)")
            facts.append((name, f"{manifest.num_utts:,} utterances, {manifest.num_frames:,} frames "
                                f"({manifest.num_frames / FRAMES_PER_HOUR:.2f} h) of dimension {manifest.dim}, {manifest.num_pdfs:,} pdfs"))
            origin = manifest.provenance if part == "train" else {}
            facts += [(what, str(origin[of])) for of, what in (("data", "data directory"), ("ali", "alignments")) if of in origin]
    return facts


def _system(system: System, aligned: dict[str, Pairs], test: TestSet | None, place: int | None, symbols: Symbols,
            options: PageOptions) -> dict[str, Any]:
    """A scored system for the page."""
    model = model_facts(system.decode_dir.parent)
    counts = [systems.counted(pairs) for pairs in aligned.values()]
    shown: dict[str, Any] = {
        "name": system.name, "set": place, "wer": system.wer, "errors": system.errors, "words": system.words, "lmwt": system.lmwt,
        "penalty": system.wip, "devWer": system.dev_wer, "interval": systems.interval(system), "model": str(model) if model else "",
        "epochs": system.epochs, "frameAccuracy": system.cv_acc, "trainSeconds": system.train_seconds, "time": system.time,
        "edits": system.edits,
        "wrongUtterances": sum(sum(row[1:]) > 0 for row in counts), "sweep": dataclasses.asdict(systems.read_sweep(system.decode_dir)),
    }
    if test is not None:
        shown["groups"] = {**{name: systems.by_group(aligned, table) for name, table in test.maps().items()},
                           "words in the reference": systems.by_length(aligned)}
        shown["confusions"] = systems.confusions(aligned)
        shown["aligned"] = [[symbols[word] for pair in aligned[utt] for word in pair] for utt in test.utts]
        lattices = utterances.recognised(system, options.nbest)
        lexicon = utterances.pronunciations(utterances.graph_of(system.decode_dir)) if lattices else {}
        shown["phoneConfusions"] = systems.confusions({utt: phone_pairs(aligned[utt], found.said, lexicon)
                                                       for utt, found in lattices.items() if utt in aligned})
        shown["recognised"] = [_recognised(lattices.get(utt), symbols) for utt in test.utts]
    return shown


def _recognised(found: Recognised | None, symbols: Symbols) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"words": _timed(found.words, symbols), "phones": _timed(found.phones, symbols),
            "paths": [[round(cost, 2), [symbols[word] for word in words]] for cost, words in found.paths]}


def _timed(timed: utterances.Timed, symbols: Symbols) -> list[float]:
    """Begin and end in hundredths of a second and the symbol's number, one after the other."""
    return [number for begin, end, symbol in timed for number in (round(100 * begin), round(100 * end), symbols[symbol])]


def _test_set(test: TestSet) -> dict[str, Any]:
    seconds = test.seconds()
    maps = test.maps()
    return {"name": test.name, "utterances": test.utts, "sounds": {}, "seconds": [seconds.get(utt) for utt in test.utts],
            "maps": {name: [table.get(utt) for utt in test.utts] for name, table in maps.items()}, "missing": 0, "rate": 0}


def _add_sounds(page: dict[str, Any], sets: Sequence[TestSet], alignments: Sequence[dict[str, Pairs]], places: Sequence[int | None],
                options: PageOptions) -> None:
    """Put audio into a page, as much as it has room for; in each test set, utterances with the most errors of all systems first."""
    room = int(options.max_megabytes * MEGABYTE) - len(html_page(page).encode())
    for number, test in enumerate(sets):
        if test.data is None or not test.data.has("wav.scp"):
            continue
        if test.data.pipes() and not test.by_user:
            page["sets"][number]["silent"] = f"The audio of {test.name} comes from commands; report with --data {test.name} to run them."
            continue
        errors = dict.fromkeys(test.utts, 0)
        for aligned, place in zip(alignments, places, strict=True):
            if place == number:
                for utt, pairs in aligned.items():
                    errors[utt] += sum(systems.counted(pairs)[1:])
        order = sorted(test.utts, key=lambda utt: -errors[utt])
        heard = sound.sounds(test.data, order, options.audio, room // (len(sets) - number), test.seconds())
        room -= sum(len(one.uri) for one in heard.values())
        index = {utt: i for i, utt in enumerate(test.utts)}
        page["sets"][number]["sounds"] = {str(index[utt]): one.uri for utt, one in heard.items()}
        for utt, one in heard.items():
            page["sets"][number]["seconds"][index[utt]] = one.seconds
            page["sets"][number]["rate"] = one.rate
        page["sets"][number]["missing"] = len(test.utts) - len(heard)
