"""The page of a test set of 1,000 utterances: its size, seconds to write it, and seconds until Chromium shows it.

    tests/bench/run.sh report_page egs/an4/s5 tri3/decode dnn/decode [--utterances 1000] [--opens 5]

The recipe's test set and the lattices of its scored systems are copied under other names until there are so many utterances, and scored.
Needs playwright and a Chromium (tests/browser.py); without them the page is written and not opened.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from pykaldist.decode.lattice import read_decode_dir, write_lattices
from pykaldist.decode.pairs import record_decoding
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import SymbolTable
from pykaldist.report.page.options import PageOptions
from pykaldist.report.page.write import write_page
from pykaldist.score.score_dir import ScoreOptions, score_dir
from pykaldist.serve.recipe import graph_of

sys.path.insert(0, os.fspath(Path(__file__).resolve().parent.parent))


def enlarge(recipe: Path, system: str, data: DataDir, copies: dict[str, str], folder: Path) -> None:
    """Leave a scored system in `folder`, of the lattices of one in a recipe; `copies` has the utterance that each is a copy of."""
    model, decode = folder / "exp" / Path(system).parent, folder / "exp" / system
    decode.mkdir(parents=True)
    source = recipe / "exp" / system
    for name in ("final.mdl", "tree", "phones.txt"):
        if (source.parent / name).exists():
            (model / name).symlink_to((source.parent / name).resolve())
    lattices = dict(read_decode_dir(source))
    write_lattices(decode / "lat.1.gz", ((utt, lattices[one]) for utt, one in copies.items() if one in lattices))
    graph = graph_of(source.parent, None)
    record_decoding(decode, graph, model / "final.mdl")
    score_dir(data, SymbolTable.read(graph / "words.txt"), decode, ScoreOptions())


def opened(page: Path, times: int) -> list[float]:
    """Seconds from asking Chromium for the page until its last line is there."""
    from browser import chromium

    found = []
    with chromium() as browser:
        for _ in range(times):
            tab = browser.new_page(viewport={"width": 1300, "height": 900})
            begin = time.monotonic()
            tab.goto(page.as_uri())
            tab.wait_for_selector("footer p")
            found.append(time.monotonic() - begin)
            tab.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("systems", nargs="+", help="decode directories below the recipe's exp")
    parser.add_argument("--data", default="data/test", help="test set (default: data/test)")
    parser.add_argument("--utterances", type=int, default=1000)
    parser.add_argument("--opens", type=int, default=5, help="times that the page is opened (default: 5)")
    args = parser.parse_args()
    known = DataDir(args.recipe / args.data)
    copies = dict(islice(((f"{utt}-{number}", utt) for number in range(args.utterances) for utt in known.utterances()), args.utterances))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = write_datadir(folder / "data/test", {utt: known.wav_scp[one] for utt, one in copies.items()},
                             {utt: " ".join(known.text[one]) for utt, one in copies.items()},
                             {utt: known.utt2spk[one] for utt, one in copies.items()})
        for system in args.systems:
            enlarge(args.recipe, system, data, copies, folder)
        begin = time.monotonic()
        write_page([folder / "exp"], PageOptions(), folder / "report.html")
        print(f"{(folder / 'report.html').stat().st_size / 1e6:.1f} MB, written in {time.monotonic() - begin:.0f} s", flush=True)
        try:
            print("opened in " + ", ".join(f"{one:.2f}" for one in opened(folder / "report.html", args.opens)) + " s")
        except BaseException as error:  # pytest's skip is none of Exception
            print(f"not opened: {error}")


if __name__ == "__main__":
    main()
