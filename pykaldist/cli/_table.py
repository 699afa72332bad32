"""What `prepare-table` and `new-recipe` share: the options that name a corpus of one's own, and its lexicon."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora.table.prepare import GRAPHEMES, Corpus, TableOptions, plan
from pykaldist.lm.lexicons import Pronounced, of_file, of_graphemes
from pykaldist.options import add_options, from_args


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a corpus."""
    parser.add_argument("--audio", required=True, help="folder with the audio files, in folders of any depth: wav, "
                        "flac, sph, mp3, ogg or opus")
    parser.add_argument("--transcripts", required=True, help="table with what is said in them: csv, tsv, JSON lines, Kaldi's text, "
                        "a manifest of NeMo or lhotse, an audiofolder's metadata; or a folder that has one of these")
    parser.add_argument("--lexicon", required=True, help="file with a word and its phones on each line; or graphemes: each letter "
                        "is a phone")
    add_options(parser, TableOptions)


def read_corpus(args: argparse.Namespace) -> tuple[Corpus, Pronounced]:
    """The corpus that the options name, and the lexicon of its training words, with sentences about both."""
    corpus = plan(args.audio, args.transcripts, by_letters(args.lexicon), from_args(TableOptions, args))
    return corpus, pronounce(corpus, args.lexicon, args.language)


def by_letters(lexicon: str) -> bool:
    """Whether --lexicon asks for graphemes; raises UserError where it is no file either."""
    if lexicon != GRAPHEMES and not Path(lexicon).is_file():
        raise UserError(f"--lexicon {lexicon} is no file; give one with a word and its phones on each line, or the word graphemes.")
    return lexicon == GRAPHEMES


def pronounce(corpus: Corpus, lexicon: str, language: str) -> Pronounced:
    """The lexicon of a corpus's training words, by a lexicon's file or graphemes, with sentences about it and about other sets' words."""
    words = corpus.words_of("train")
    pronounced = of_graphemes(words) if by_letters(lexicon) else of_file(lexicon, words, language)
    for part in ("dev", "test"):
        counts = corpus.words_of(part)
        unknown = {word: count for word, count in counts.items() if word not in pronounced.lexicon}
        if unknown:
            share = 100 * sum(unknown.values()) / sum(counts.values())
            some = " ".join(sorted(unknown, key=lambda word: (-unknown[word], word))[:5])
            pronounced.said.append(f"{share:.1f} % of the words of {part} are not in the vocabulary, such as {some}: each is an error")
    return pronounced
