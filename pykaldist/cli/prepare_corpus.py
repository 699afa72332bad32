"""Turn a public corpus into data directories and a dictionary; see egs/<corpus>/s5/local/prepare_data.sh."""

from __future__ import annotations

import argparse

from pykaldist.errors import UserError
from pykaldist.io.corpora import an4, prompts, speechocean762, yesno


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=("an4", "prompts", "speechocean762", "yesno"), help="corpus")
    parser.add_argument("data", help="folder of data directories to write, such as data")
    parser.add_argument("--corpus", help="folder with the corpus (default: it is looked for, or fetched)")
    parser.add_argument("--fetch-dir", default="corpus", help="where a fetched corpus goes (default: corpus)")
    parser.add_argument("--lexicon", help="prompts: words and their phones")
    parser.add_argument("--languages", help="prompts: some of them, such as 'en fr' (default: all)")
    parser.add_argument("--speakers", choices=("adults", "all"), help="speechocean762: whose speech (default: adults)")


def run(args: argparse.Namespace) -> None:
    if (args.name == "prompts") != bool(args.lexicon):
        raise UserError(f"--lexicon is for prompts, which needs it; the corpus is {args.name}.")
    if args.languages and args.name != "prompts":
        raise UserError(f"--languages is for prompts; {args.name} is taken whole.")
    if args.speakers and args.name != "speechocean762":
        raise UserError(f"--speakers is for speechocean762; {args.name} is taken whole.")
    corpus = args.corpus or None
    if args.name == "prompts":
        languages = (args.languages or " ".join(prompts.LANGUAGES)).split()
        lines = prompts.prepare(corpus, args.data, args.fetch_dir, args.lexicon, languages)
    elif args.name == "speechocean762":
        lines = speechocean762.prepare(corpus, args.data, args.fetch_dir, args.speakers or "adults")
    else:
        lines = {"an4": an4, "yesno": yesno}[args.name].prepare(corpus, args.data, args.fetch_dir)
    for line in lines:
        print(line)
