"""Turn a language of Common Voice into data directories and a dictionary; see egs/commonvoice/s5/local/prepare_data.sh.

<data>/local/sizes has the sizes of systems that go with the hours of training speech, a line `name=value` each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._table import by_letters, pronounce
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora import commonvoice
from pykaldist.io.corpora.dictionary import write_dict
from pykaldist.io.corpora.table.prepare import write
from pykaldist.io.corpora.table.recipe import sizes_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", help="folder of a release, which has a folder for the language")
    parser.add_argument("data", type=Path, help="folder of data directories to write, such as data")
    parser.add_argument("--language", required=True, help="code of the language, as in the release: de, tr, zh-CN")
    parser.add_argument("--lexicon", default="graphemes", help="file with a word and its phones on each line, or graphemes (default)")


def run(args: argparse.Namespace) -> None:
    if not args.corpus:
        raise UserError(f"--corpus is needed: the folder of a release of {commonvoice.TITLE}, which is fetched by hand.")
    corpus = commonvoice.plan(args.corpus, args.language, by_letters(args.lexicon), args.data / "local/commonvoice")
    pronounced = pronounce(corpus, args.lexicon, args.language.split("-")[0])
    (args.data / "local/dict").mkdir(parents=True, exist_ok=True)
    write_dict(args.data / "local/dict", pronounced.lexicon)
    write_text(args.data / "local/sizes", "".join(f"{name}={value}\n" for name, value in vars(sizes_for(corpus.hours("train"))).items()))
    for line in (*corpus.said, *pronounced.said, *write(corpus, args.data)):
        print(line)
