"""Turn a public corpus into data directories and a dictionary; see egs/<corpus>/s5/local/prepare_data.sh."""

from __future__ import annotations

import argparse

from pykaldist.errors import UserError
from pykaldist.io.corpora import an4, librispeech, prompts, speechocean762, tedlium, timit, yesno

LIBRISPEECH = {"librispeech": librispeech.FULL, "mini_librispeech": librispeech.MINI}
WITH_TABLE = ("tedlium", "timit")
"""Corpora whose recipe has a table that says what becomes of their transcripts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=("an4", "librispeech", "mini_librispeech", "prompts", "speechocean762", *WITH_TABLE, "yesno"),
                        help="corpus")
    parser.add_argument("data", help="folder of data directories to write, such as data")
    parser.add_argument("--corpus", help="folder with the corpus (default: it is looked for, or fetched)")
    parser.add_argument("--fetch-dir", default="corpus", help="where a fetched corpus goes (default: corpus)")
    parser.add_argument("--lexicon", help="prompts: words and their phones")
    parser.add_argument("--languages", help="prompts: some of them, such as 'en fr' (default: all)")
    parser.add_argument("--parts", help="librispeech: some of its parts, such as 'train-clean-100 dev-clean' (default: all)")
    parser.add_argument("--lms", help="librispeech: language models, of tgsmall, tgmed, tglarge, fglarge (default: all but fglarge)")
    parser.add_argument("--table", help=f"{', '.join(WITH_TABLE)}: table of phones, or of rules for words, in the recipe's folder local")
    parser.add_argument("--speakers", choices=("adults", "all"), help="speechocean762: whose speech (default: adults)")


def run(args: argparse.Namespace) -> None:
    if (args.name == "prompts") != bool(args.lexicon):
        raise UserError(f"--lexicon is for prompts, which needs it; the corpus is {args.name}.")
    if args.languages and args.name != "prompts":
        raise UserError(f"--languages is for prompts; {args.name} is taken whole.")
    if args.speakers and args.name != "speechocean762":
        raise UserError(f"--speakers is for speechocean762; {args.name} is taken whole.")
    if (args.parts or args.lms) and args.name not in LIBRISPEECH:
        raise UserError(f"--parts and --lms are for librispeech; {args.name} is taken whole.")
    if (args.name in WITH_TABLE) != bool(args.table):
        raise UserError(f"--table is for {', '.join(WITH_TABLE)}, which need it; the corpus is {args.name}.")
    corpus = args.corpus or None
    if args.name == "prompts":
        languages = (args.languages or " ".join(prompts.LANGUAGES)).split()
        lines = prompts.prepare(corpus, args.data, args.fetch_dir, args.lexicon, languages)
    elif args.name == "timit":
        if corpus is None:
            raise UserError(f"--corpus is needed: the folder of {timit.NUMBER} ({timit.TITLE}), which cannot be fetched.")
        lines = timit.prepare(corpus, args.data, args.table)
    elif args.name == "tedlium":
        lines = tedlium.prepare(corpus, args.data, args.fetch_dir, args.table)
    elif args.name == "speechocean762":
        lines = speechocean762.prepare(corpus, args.data, args.fetch_dir, args.speakers or "adults")
    elif args.name in LIBRISPEECH:
        parts, lms = (args.parts or " ".join(LIBRISPEECH[args.name])).split(), (args.lms or "tgsmall tgmed tglarge").split()
        for option, given, known in (("parts", parts, LIBRISPEECH[args.name]), ("lms", lms, tuple(librispeech.MODELS))):
            if unknown := next((one for one in given if one not in known), None):
                raise UserError(f"--{option}: {args.name} has {', '.join(known)}, and no {unknown}.")
        lines = librispeech.prepare(corpus, args.data, args.fetch_dir, parts, lms)
    else:
        lines = {"an4": an4, "yesno": yesno}[args.name].prepare(corpus, args.data, args.fetch_dir)
    for line in lines:
        print(line)
