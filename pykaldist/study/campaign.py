"""A study in its folder, and what a call of `pykaldist study` does with it: what is missing, the trainings, the page."""

from __future__ import annotations

import sys
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.lock import locked
from pykaldist.study.claims import chosen, read_claims
from pykaldist.study.corpora import Prepared, missing, prepare, read_corpora
from pykaldist.study.evidence import check
from pykaldist.study.page import Missing, missing_table, missing_trainings, render
from pykaldist.study.results import Results
from pykaldist.study.runner import carry_out, run_missing


class Campaign:
    """The claims of a study's folder that were chosen, its results, and the corpora that are here."""

    def __init__(self, study: Path, exp: Path, claims: list[str], corpora: str) -> None:
        """Read all. Raises UserError for an unknown claim or corpus; a corpus that is not whole is left out, with a warning."""
        self.study, self.exp = study, exp
        self.all_claims = read_claims(study / "claims")
        self.claims = chosen(self.all_claims, claims)
        self.results = Results(study / "results")
        self.specs = read_corpora(study / "corpora.json")
        self.sources: dict[str, Path] = {}
        for part in filter(None, corpora.split(",")):
            name, _, folder = part.partition("=")
            if name not in self.specs or not folder:
                raise UserError(f"--corpora has {part}: expected NAME=DIR, with a name among {', '.join(self.specs)}.")
            if lacking := missing(self.specs[name], Path(folder)):
                print(f"WARNING: {name} is left out: {folder} has no {lacking[0]}", file=sys.stderr)
            else:
                self.sources[name] = Path(folder)

    def run(self, nj: int, max_minutes: float) -> None:
        """Do what is missing. Raises UserError where no corpus is here, and where trainings failed."""
        if not self.sources:
            raise UserError(f"no corpus of the study is here; name one by --corpora NAME=DIR ({', '.join(self.specs)}).")
        with locked(self.exp):
            ready: dict[str, Prepared] = {name: prepare(self.specs[name], source, self.exp / "corpora" / name)
                                          for name, source in self.sources.items()}
            failed = run_missing(self.claims, ready, self.results, self.exp, nj, max_minutes, after=self.write_page)
            self.write_page()
        if failed:
            raise UserError(f"{len(failed)} trainings failed; the next call tries them again. The first: {next(iter(failed.values()))}")

    def compare(self) -> None:
        """Train some cells again, and print them beside their bands. Raises UserError where one is outside, or there is none."""
        outside = []
        with locked(self.exp):
            for name, source in self.sources.items():
                prepared = prepare(self.specs[name], source, self.exp / "corpora" / name)
                table, holds = check(name, prepared, self.results, self.exp / "evidence", carry_out)
                print(f"{name}: each cell trained again, in brackets what its seeds allow\n\n{table}")
                outside += [] if holds else [name]
        if outside:
            raise UserError(f"cells on {' and '.join(outside)} do not come out as the study found them; the table says which (NO).")

    def write_page(self) -> None:
        """Write RESULTS.md, of all claims."""
        write_text(self.study / "RESULTS.md", render(self.all_claims, self.results))

    def missing(self) -> list[Missing]:
        """What is missing, and what it will cost."""
        return missing_trainings(self.claims, self.results)

    def described(self) -> str:
        """What is missing, what it will cost, and which corpora are not here."""
        absent = [name for name in self.specs if name not in self.sources]
        lines = [f"{name} is not here, so that nothing of it will be done." for name in absent]
        return "\n\n".join([missing_table(self.missing()), *lines])
