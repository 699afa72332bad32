"""Programs that put language models to work on lattices: Kaldi's ConstArpaLm, and the replacement of language model costs."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pykaldist.errors import UserError
from pykaldist.io.xfilenames import is_pipe, open_rxfilename, open_wxfilename
from pykaldist.programs.lattices import changed

if TYPE_CHECKING:
    from pykaldist.decode.lattice import Lattice
    from pykaldist.decode.lm_rescore import LanguageModel


def arpa_to_const_arpa(arpa: str, target: str, *, bos_symbol: int = -1, eos_symbol: int = -1, unk_symbol: int = -1,
                       max_arpa_warnings: int = 30) -> int:
    """Make a ConstArpaLm of a language model in ARPA's format whose words are numbers.

    Usage: arpa-to-const-arpa --bos-symbol=<n> --eos-symbol=<n> [options] <arpa> <const-arpa>
    e.g.: gunzip -c lm.arpa.gz | utils/map_arpa_lm.pl words.txt | arpa-to-const-arpa --bos-symbol=9 --eos-symbol=10 - G.carpa

    Options:
      --bos-symbol: the number of <s>
      --eos-symbol: the number of </s>
      --unk-symbol: the number of the word for unknown words, if there is one
      --max-arpa-warnings: has no effect: the first error ends the program
    """
    from pykaldist.decode.const_arpa import build_const_arpa

    if bos_symbol < 1 or eos_symbol < 1:
        raise UserError(f"--bos-symbol and --eos-symbol are needed, and numbers above 0; found {bos_symbol} and {eos_symbol}.")
    with open_rxfilename(arpa) as stream:
        lines = stream.read().decode("utf-8").splitlines()
    symbols = _with_names(lines, arpa, bos_symbol, eos_symbol)
    with tempfile.TemporaryDirectory() as folder:
        renamed, made = Path(folder) / "arpa", Path(folder) / "carpa"
        renamed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            build_const_arpa(renamed, symbols, unk_symbol, made)
        except UserError as error:
            raise UserError(str(error).replace(str(renamed), arpa)) from error
        with open_wxfilename(target) as stream:
            stream.write(made.read_bytes())
    return 0


def _with_names(lines: list[str], arpa: str, bos_symbol: int, eos_symbol: int) -> dict[str, int]:
    """Give <s> and </s> their names in an ARPA file of numbers, line by line in place; returns the number of each word.

    Where fewer n-grams are there than its head says, `map_arpa_lm.pl` has left the others out, and the head is made true.
    """
    named, symbols = {str(bos_symbol): "<s>", str(eos_symbol): "</s>"}, {"<s>": bos_symbol, "</s>": eos_symbol}
    begin = next((number for number, line in enumerate(lines) if line.strip() == "\\data\\"), len(lines))  # any text may stand before
    order, count = 0, dict[int, int]()
    for number, line in enumerate(lines[begin:], begin):
        if line.startswith("\\"):
            text = line.strip()[1:].partition("-grams:")
            order = int(text[0]) if text[1] and text[0].isdecimal() else 0
        elif order and line.strip():
            fields = line.split()
            wrong = next((word for word in fields[1:order + 1] if not word.isdecimal()), None)
            if wrong is not None:
                raise UserError(f"{arpa}, line {number + 1}: expected numbers of words, found {wrong!r}; pipe the file through "
                                "utils/map_arpa_lm.pl words.txt.")
            words = [named.get(word, word) for word in fields[1:order + 1]]
            symbols.update({word: int(word) for word in words if order == 1 and word not in symbols})
            lines[number] = "\t".join([fields[0], " ".join(words), *fields[order + 1:]])
            count[order] = count.get(order, 0) + 1
    for number, line in enumerate(lines[begin:], begin):
        if line.endswith("-grams:"):
            break
        if (head := re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)\s*", line)) and count.get(int(head[1]), 0) < int(head[2]):
            lines[number] = f"ngram {head[1]}={count.get(int(head[1]), 0)}"
    return symbols


def lattice_lmrescore(source: str, grammar: str, target: str, *, lm_scale: float = 1.0, num_states_cache: int = 0) -> int:
    """Add the costs of a language model, times a scale, to the graph costs of lattices.

    With --lm-scale=-1 it takes off those of the model that the lattices were decoded with.

    Usage: lattice-lmrescore [options] <lattice-rspecifier> <G.fst> <lattice-wspecifier>
    e.g.: lattice-lmrescore --lm-scale=-1.0 ark:1.lats "fstproject --project_output=true data/lang_old/G.fst |" ark:- |
      lattice-lmrescore ark:- "fstproject --project_output=true data/lang_new/G.fst |" ark:2.lats

    Options:
      --lm-scale: factor on the costs (default: 1)
      --num-states-cache: has no effect
    """
    from pykaldist.decode.lm_rescore import Grammar
    from pykaldist.io.fstops import from_kaldifst
    from pykaldist.io.openfst import read_fst

    return _rescored(source, target, Grammar(from_kaldifst(read_fst(grammar)), grammar), lm_scale)


def lattice_lmrescore_const_arpa(source: str, model: str, target: str, *, lm_scale: float = 1.0) -> int:
    """Add the costs of a ConstArpaLm, times a scale, to the graph costs of lattices.

    Usage: lattice-lmrescore-const-arpa [options] <lattice-rspecifier> <G.carpa> <lattice-wspecifier>
    e.g.: lattice-lmrescore-const-arpa --lm-scale=1.0 ark:1.lats data/lang_test_fg/G.carpa ark:2.lats

    Options:
      --lm-scale: factor on the costs (default: 1)
    """
    from pykaldist.decode.const_arpa import ConstArpaLm

    if is_pipe(model) or not os.path.isfile(model):
        raise UserError(f"{model} is no file; a ConstArpaLm is read where it lies (utils/build_const_arpa_lm.sh makes one).")
    return _rescored(source, target, ConstArpaLm(model), lm_scale)


def _rescored(source: str, target: str, model: LanguageModel, scale: float) -> int:
    from pykaldist.decode.lm_rescore import lm_rescored

    def rescored(lattice: Lattice) -> Lattice:
        return lm_rescored(lattice, [(model, scale)], source)

    return changed(source, target, rescored, "rescored")
