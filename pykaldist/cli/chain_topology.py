"""Print the topology of chain (LF-MMI) models: one state a phone, whose self-loop has a pdf of its own."""

from __future__ import annotations

import argparse

from pykaldist.errors import UserError
from pykaldist.hmm.lang.topology import chain_topology_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nonsilence", help="numbers of the nonsilence phones, with colons between them (phones/nonsilence.csl)")
    parser.add_argument("silence", help="those of the silence phones (phones/silence.csl)")


def run(args: argparse.Namespace) -> None:
    phones = []
    for part in f"{args.silence}:{args.nonsilence}".split(":"):
        if not part.isdigit() or int(part) < 1:
            raise UserError(f"'{part}' is no phone number; expected numbers with colons between them, such as 4:5:6 "
                            "(phones/nonsilence.csl of the language directory).")
        phones.append(int(part))
    if len(set(phones)) < len(phones):
        twice = next(phone for phone in phones if phones.count(phone) > 1)
        raise UserError(f"phone {twice} is given twice; give nonsilence and silence phones, each once.")
    print(chain_topology_text(phones), end="")
