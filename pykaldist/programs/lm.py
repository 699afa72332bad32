"""Programs on ARPA language models: Kaldi's arpa-to-const-arpa, and IRSTLM's prune-lm as recipes call it."""

from __future__ import annotations

import os
import sys
import tempfile

from pykaldist.errors import UserError


def arpa_to_const_arpa(arpa: str, target: str, *, bos_symbol: int = -1, eos_symbol: int = -1, unk_symbol: int = -1) -> None:
    """Make Kaldi's ConstArpaLm of a language model in ARPA's format whose words are numbers.

    utils/build_const_arpa_lm.sh makes a language directory with one. N-grams that utils/map_arpa_lm.pl has left out need not be counted
    at the head.

    Usage: arpa-to-const-arpa [options] <arpa> <G.carpa>
    e.g.: gunzip -c lm.arpa.gz | utils/map_arpa_lm.pl words.txt | arpa-to-const-arpa --bos-symbol=1 --eos-symbol=2 - G.carpa

    Options:
      --bos-symbol: number of the beginning of a sentence; needed
      --eos-symbol: number of the end of a sentence; needed
      --unk-symbol: number of the word that stands for those the model lacks (default: -1, none)
    """
    from pykaldist.decode.const_arpa import build_const_arpa
    from pykaldist.io.xfilenames import open_rxfilename

    if bos_symbol < 1 or eos_symbol < 1:
        raise UserError("give --bos-symbol and --eos-symbol, the numbers of <s> and </s> in words.txt.")
    with open_rxfilename(arpa) as stream:
        lines = stream.read().decode("utf-8").splitlines()
    if "\\data\\" not in lines:
        raise UserError(f"{arpa} is no language model in ARPA's format: it has no \\data\\ section.")
    names = {str(bos_symbol): "<s>", str(eos_symbol): "</s>"}
    sections: list[list[str]] = []
    symbols: dict[str, int] = {}
    for line in lines[lines.index("\\data\\") + 1 :]:
        fields, order = line.split(), len(sections)
        if line.startswith("\\") and line.endswith("-grams:"):
            sections.append([])
        elif fields and order and not line.startswith("\\"):
            words = [names.get(word, word) for word in fields[1 : order + 1]]
            if order == 1:
                try:
                    symbols[words[0]] = int(fields[1])
                except (IndexError, ValueError) as error:
                    raise UserError(f"{arpa}: expected a number as word, found {line!r}; utils/map_arpa_lm.pl maps them.") from error
            sections[-1].append(" ".join([fields[0], *words, *fields[order + 1 :]]))
    head = ["\\data\\", *(f"ngram {n}={len(section)}" for n, section in enumerate(sections, 1))]
    body = [line for n, section in enumerate(sections, 1) for line in ("", f"\\{n}-grams:", *section)]
    with tempfile.TemporaryDirectory() as folder:
        whole = os.path.join(folder, "numbers.arpa")
        with open(whole, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in (*head, *body, "", "\\end\\"))
        build_const_arpa(whole, symbols, unk_symbol, target)


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
