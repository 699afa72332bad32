"""IRSTLM's prune-lm, as wsj's recipe calls it."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError


def prune_lm(arpa: str, target: str, *, threshold: str = "0", abs: str = "") -> int:
    """Take n-grams out of a language model that change its perplexity little.

    IRSTLM weighs the loss of an n-gram in its own way; here it is the relative change of the perplexity, as in SRILM.

    Usage: prune-lm [options] <arpa> <pruned-arpa>
    e.g.: prune-lm --threshold=1e-7 lm_tg.arpa.gz lm_tgpr.arpa

    Options:
      --threshold: change below which an n-gram goes, from 2 words on; of several, for 2 words, 3, ..., the least counts (default: 0)
      --abs: taken, and without effect
    """
    from pykaldist.lm.arpa import read_arpa, write_arpa
    from pykaldist.lm.prune import prune

    try:
        least = min(float(value) for value in threshold.split(","))
    except ValueError as error:
        raise UserError(f"--threshold: expected numbers, found {threshold!r}.") from error
    model = read_arpa(arpa)
    pruned = prune(model, least)
    write_arpa(pruned, target)
    before, after = (" + ".join(str(len(order)) for order in of.orders) for of in (model, pruned))
    print(f"prune-lm: {before} n-grams pruned to {after} in {target}", file=sys.stderr)
    return 0
