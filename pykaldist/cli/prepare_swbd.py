"""Turn Switchboard-1, Fisher and NIST's tests of telephone speech into data directories; see local/prepare_data.sh of egs/swbd/s5c."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora import fisher, hub5, swbd
from pykaldist.io.corpora.dictionary import read_lexicon, write_dict
from pykaldist.io.corpora.swbd_lexicon import ACRONYMS, NOISES, spoken_letters
from pykaldist.io.datadir import DataDir
from pykaldist.lm.lexicons import Pronounced, add_modelled

FOLDERS = ("eval2000", "eval2000-transcripts", "eval2001", "rt03")
FISHER = tuple(number.lower() for part in fisher.PARTS for number in part[:2])
TRAIN, WITH_FISHER = "train", ("train_swbd", "train_fisher")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", help="folder with the packages of the Linguistic Data Consortium, LDC97S62 and others")
    parser.add_argument("data", type=Path, help="folder of data directories to write, such as data")
    parser.add_argument("--tables", type=Path, default=Path("local"),
                        help="folder of words.tsv, stm.tsv, letters.txt, fisher.tsv (default: local)")
    parser.add_argument("--sets", default="train eval2000",
                        help=f"some of: train, or {' and '.join(WITH_FISHER)}; {' '.join(hub5.SETS)} (default: train eval2000)")
    parser.add_argument("--min-count", type=int, default=2,
                        help="how often a word of Fisher has to be said to get into the lexicon (default: 2)")
    parser.add_argument("--swbd", default="", help="folder of LDC97S62, where it is elsewhere")
    parser.add_argument("--transcripts", default="", help="folder of Mississippi State's transcripts (default: there, or fetched)")
    for name in FOLDERS + FISHER:
        parser.add_argument(f"--{name}", default="", help="folder of this package, where it is elsewhere")
    parser.add_argument("--fetch-dir", default="corpus", help="where fetched transcripts go (default: corpus)")


def run(args: argparse.Namespace) -> None:
    sets, known = args.sets.split(), (TRAIN, *WITH_FISHER, *hub5.SETS)
    if not sets or any(name not in known for name in sets):
        raise UserError(f"--sets {args.sets!r}: expected some of {', '.join(known)}.")
    folders = {name: getattr(args, name.replace("-", "_")) for name in FOLDERS + FISHER}
    for name in sets:
        for line in _prepare(name, args, folders):
            print(line)


def _prepare(name: str, args: argparse.Namespace, folders: dict[str, str]) -> Iterable[str]:
    if name in (TRAIN, WITH_FISHER[0]):
        return swbd.prepare(args.swbd or args.corpus, args.data, args.fetch_dir, args.tables / "words.tsv", args.tables / "letters.txt",
                            args.transcripts or None, name)
    if name == WITH_FISHER[1]:
        return _prepare_fisher(args, folders)
    return hub5.prepare(name, args.corpus, folders, args.data, args.tables / "stm.tsv")


def _prepare_fisher(args: argparse.Namespace, folders: dict[str, str]) -> Iterable[str]:
    """Fisher's data directory, and its words beside those of Switchboard's dictionary, which is there."""
    dictionary = args.data / "local/dict"
    if not (dictionary / "lexicon.txt").is_file():
        raise UserError(f"{dictionary}/lexicon.txt does not exist; give train_swbd before train_fisher in --sets.")
    yield from fisher.prepare(args.corpus, folders, args.data, args.tables / "fisher.tsv")
    lexicon = {word: variants for word, variants in read_lexicon(dictionary / "lexicon.txt").items() if word not in NOISES}
    texts = [" ".join(words) for words in DataDir(args.data / WITH_FISHER[1]).text.values()]
    words = fisher.new_words(texts, {**lexicon, **NOISES}, args.min_count)
    letters = fisher.spelled(words, read_lexicon(args.tables / "letters.txt"))
    pronounced = Pronounced({word: variants for word, variants in lexicon.items() if not set("._[") & set(word)})
    add_modelled(pronounced, [word for word in words if word not in letters])
    lexicon.update(letters)
    lexicon.update({word: pronounced.lexicon[word] for word in pronounced.modelled})
    write_dict(dictionary, lexicon, NOISES)
    with open(dictionary / ACRONYMS, "a", encoding="utf-8") as stream:
        stream.writelines(f"{word} {word} {' '.join(spoken_letters(word))}\n" for word in letters)
    yield f"{len(lexicon):,} words in {dictionary}/lexicon.txt, {len(letters):,} of them acronyms of Fisher by their letters"
    yield from pronounced.said
