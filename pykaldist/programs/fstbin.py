"""Kaldi's own FST programs: language models to G, table composition, determinisation with epsilons, disambiguation symbols."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kaldifst

from pykaldist.errors import UserError
from pykaldist.io.openfst import Body, fst_bytes, parse_fst, read_fst, symbols_of, write_fst
from pykaldist.io.xfilenames import open_rxfilename

if TYPE_CHECKING:
    from pykaldist.io.fst import Fst


def _integers(name: str) -> list[int]:
    with open_rxfilename(name) as stream:
        words = stream.read().split()
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise UserError(f"{name}: expected integers, one a line ({error}).") from error


def arpa2fst(arpa: str, target: str = "", *, bos_symbol: str = "<s>", eos_symbol: str = "</s>", disambig_symbol: str = "",
             read_symbol_table: str = "", write_symbol_table: str = "", keep_symbols: bool = False, ilabel_sort: bool = True,
             max_arpa_warnings: int = 30) -> None:
    """Make an FST of a language model in ARPA's format.

    Without --disambig-symbol, back-off arcs take epsilon, and <s> and </s> stay words, as in Kaldi's older recipes. Without any table the
    FST has its symbols inside.

    Usage: arpa2fst [options] <arpa> [<fst>]
    e.g.: gunzip -c lm.arpa.gz | arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang/words.txt - G.fst

    Options:
      --bos-symbol: the beginning of a sentence (default: <s>)
      --eos-symbol: the end of a sentence (default: </s>)
      --disambig-symbol: symbol that back-off arcs take, such as #0; <s> and </s> are then epsilons
      --read-symbol-table: words.txt; n-grams with other words are left out
      --write-symbol-table: file to write the words of the model to
      --keep-symbols: write the symbols into the FST (default: false, but where there is no table)
      --ilabel-sort: sort arcs by input label (default: true)
      --max-arpa-warnings: so many warnings at most, 0 for none, -1 for all (default: 30)
    """
    with open_rxfilename(arpa) as stream:
        text = stream.read()
    if b"\\data\\" not in text:
        raise UserError(f"{arpa} is no language model in ARPA's format: it has no \\data\\ section; make one with utils/train_lm.sh.")
    table = b""
    if read_symbol_table:
        with open_rxfilename(read_symbol_table) as stream:
            table = stream.read()
        known = {line.split()[0] for line in table.splitlines() if line.strip()}
        if disambig_symbol and disambig_symbol.encode() not in known:
            raise UserError(f"{read_symbol_table} has no {disambig_symbol}; make the language directory with utils/prepare_lang.sh.")
    with contextlib.ExitStack() as files:
        source, words, made, said = (files.enter_context(open(os.memfd_create(name), "r+b")) for name in ("arpa", "words", "fst", "said"))
        for memory, data in ((source, text), (words, table)):
            memory.write(data)
            memory.flush()
        path = "/proc/self/fd/{}".format
        status = _in_a_child(said.fileno(), lambda kaldilm: kaldilm.arpa2fst(
            path(source.fileno()), path(made.fileno()), bos_symbol=bos_symbol, eos_symbol=eos_symbol, disambig_symbol=disambig_symbol,
            read_symbol_table=path(words.fileno()) if read_symbol_table else "", write_symbol_table=write_symbol_table, keep_symbols=True,
            ilabel_sort=ilabel_sort, max_arpa_warnings=max_arpa_warnings))
        said.seek(0)
        lines = [line for line in said.read().decode("utf-8", "replace").splitlines() if line.startswith(("[W]", "[E]", "[F]"))]
        for line in lines[:-1] if status else lines:
            print(line, file=sys.stderr)
        if status:
            reason = lines[-1][3:].strip().rstrip(".") if lines else "kaldilm, which reads it, ended without a word"
            raise UserError(f"{arpa} cannot be made an FST: {reason}.")
        fst = parse_fst(made.read(), arpa)
    symbols = symbols_of(fst)[0]
    if disambig_symbol:
        fst = _without_redundant_states(fst, symbols.find(disambig_symbol))
        if ilabel_sort:
            kaldifst.arcsort(fst, "ilabel")
    keep = keep_symbols or not (read_symbol_table or write_symbol_table)
    fst.input_symbols = fst.output_symbols = symbols if keep else None
    write_fst(fst, target)


def _in_a_child(said: int, work: Callable[[Any], object]) -> int:
    """Give kaldilm to `work` in a child process, since it ends the process at some errors; returns 0, or 1 where it did.

    What it writes to standard output, where an FST may go, and to the log goes to the descriptor `said`.
    """
    import kaldilm

    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return int(os.waitpid(process, 0)[1] != 0)
    status = 1
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        work(kaldilm)
        status = 0
    except RuntimeError as error:
        os.write(said, f"[E] {str(error).splitlines()[0]}\n".encode())
    finally:
        os._exit(status)


def _without_redundant_states(fst: Any, backoff: int) -> Any:
    """The FST without states from which one can only back off, which is what their one arc, made an epsilon arc, is removed for."""
    body = Body(fst)
    redundant = [arcs.start for arcs in body.states() if len(arcs) == 4 and body.words[arcs.start] == backoff
                 and math.isinf(fst_cost(body.words[arcs.start - 3]))]
    if not redundant:
        return fst
    for arc in redundant:
        body.words[arc] = 0
    from pykaldist.io.fstops import remove_eps_local

    trimmed = _by_arrays(body.fst(), remove_eps_local)
    kaldifst.connect(trimmed)
    return trimmed


def fst_cost(word: int) -> float:
    """The cost that a 32-bit word of an FST's body stands for."""
    import struct

    return float(struct.unpack("<f", struct.pack("<i", word))[0])


def _by_arrays(fst: Any, change: Callable[[Fst], Fst]) -> Any:
    """Change an FST by a function of the library, on flat arrays."""
    from pykaldist.io.fst import Fst

    fst.input_symbols = fst.output_symbols = None
    return parse_fst(change(Fst.parse(fst_bytes(fst))).to_bytes(), "the FST")


def fstaddselfloops(inputs: str, outputs: str, source: str = "", target: str = "") -> None:
    """Add self-loops by which disambiguation symbols pass, at final states and where an arc has an output symbol.

    Usage: fstaddselfloops <input-symbols> <output-symbols> [<fst> [<fst>]]
    e.g.: fstaddselfloops phone_disambig.list word_disambig.list < L.fst > L_disambig.fst
    """
    isyms, osyms = _integers(inputs), _integers(outputs)
    if len(isyms) != len(osyms):
        raise UserError(f"{inputs} has {len(isyms)} symbols and {outputs} {len(osyms)}; expected as many.")
    fst = read_fst(source)
    kaldifst.add_self_loops(fst, isyms, osyms)
    write_fst(fst, target)


def fstcopy(source: str = "", target: str = "") -> None:
    """Copy FSTs, from a table to a table or from a file to a file.

    Usage: fstcopy <rspecifier> <wspecifier> or fstcopy [<fst> [<fst>]]
    e.g.: fstcopy ark:1.fsts ark,t:-
    """
    from pykaldist.io.openfst import read_fst_value, write_fst_value
    from pykaldist.io.table_streams import TableWriter, is_table, read_table

    if not is_table(source):
        write_fst(read_fst(source), target)
        return
    with TableWriter(target, write_fst_value) as out:
        for key, fst in read_table(source, read_fst_value):
            out.write(key, fst)


def fstdeterminizestar(source: str = "", target: str = "", *, delta: float = 0.0009765625, max_states: int = -1,
                       use_log: bool = False) -> None:
    """Remove epsilons and determinise in one step.

    Usage: fstdeterminizestar [options] [<fst> [<fst>]]
    e.g.: fsttablecompose L_disambig.fst G.fst | fstdeterminizestar --use-log=true > LG.fst

    Options:
      --delta: costs are equal if so near to each other (default: 1/1024)
      --max-states: give up when the result has so many states (default: -1: never)
      --use-log: determinise in the log semiring (default: false)
    """
    fst = read_fst(source)
    kaldifst.determinize_star(fst, delta=delta, max_states=max_states, use_log=use_log)
    write_fst(fst, target)


def fstisstochastic(source: str = "", *, delta: float = 0.01, test_in_log: bool = True) -> int:
    """Print the largest and the least sum of costs out of a state; exit with status 1 where one is not 0.

    Usage: fstisstochastic [options] [<fst>]
    e.g.: fstisstochastic G.fst || echo "G is not stochastic"

    Options:
      --delta: what a sum may differ from 0 (default: 0.01)
      --test-in-log: sum in the log semiring, where a state's costs are probabilities; else take the least (default: true)
    """
    body = Body(read_fst(source))
    costs = memoryview(body.words).cast("B").cast("f")
    sums = []
    for arcs in body.states():
        of_state = [costs[arcs.start - 3], *costs[arcs.start + 2 : arcs.stop : 4].tolist()]
        least = min(of_state)
        sums.append(least - math.log(sum(math.exp(least - cost) for cost in of_state)) if test_in_log and least < math.inf else least)
    sums = sums or [0.0]
    print(f"{max(sums):g} {min(sums):g}")
    return 0 if all(abs(value) <= delta for value in sums) else 1


def fstminimizeencoded(source: str = "", target: str = "", *, delta: float = 0.0009765625) -> None:
    """Minimise an FST with labels and costs as they stand, without pushing costs.

    Usage: fstminimizeencoded [options] [<fst> [<fst>]]
    e.g.: fstdeterminizestar LG.fst | fstminimizeencoded > LG_min.fst

    Options:
      --delta: costs are rounded to multiples of it (default: 1/1024)
    """
    fst = read_fst(source)
    kaldifst.minimize_encoded(fst, delta=delta)
    write_fst(fst, target)


def fstpushspecial(source: str = "", target: str = "", *, delta: float = 0.0009765625) -> None:
    """Push costs so that the arcs of every state sum to the same.

    Usage: fstpushspecial [options] [<fst> [<fst>]]
    e.g.: fstminimizeencoded LG.fst | fstpushspecial > LG_pushed.fst

    Options:
      --delta: what sums may differ (default: 1/1024)
    """
    from pykaldist.io.fstops import push_special

    write_fst(_by_arrays(read_fst(source), lambda fst: push_special(fst, delta)), target)


def fstrmepslocal(source: str = "", target: str = "", *, use_log: bool = False, stochastic_in_log: bool = True) -> None:
    """Remove some epsilons, as far as the FST does not grow.

    Usage: fstrmepslocal [options] [<fst> [<fst>]]
    e.g.: fstrmepslocal HCLGa.fst > smaller.fst

    Options:
      --use-log: not here: equivalence is kept in the tropical semiring
      --stochastic-in-log: sums are kept in the log semiring; false is not here (default: true)
    """
    if use_log or not stochastic_in_log:
        raise UserError("--use-log=true and --stochastic-in-log=false are not here; leave them out.")
    from pykaldist.io.fstops import remove_eps_local

    fst = _by_arrays(read_fst(source), remove_eps_local)
    kaldifst.connect(fst)
    write_fst(fst, target)


def fstrmsymbols(symbols: str, source: str = "", target: str = "", *, apply_to_output: bool = False, remove_from_output: bool = False,
                 remove_arcs: bool = False, penalty: float = -math.inf) -> None:
    """Replace symbols by epsilon, or remove the arcs that have them, or make these arcs dearer.

    Usage: fstrmsymbols [options] <symbols> [<fst> [<fst>]]
    e.g.: fstrmsymbols data/lang/phones/disambig.int < HCLG.fst > out.fst

    Options:
      --apply-to-output: symbols of the output side, instead of the input side (default: false)
      --remove-from-output: the older name of --apply-to-output
      --remove-arcs: remove the arcs (default: false)
      --penalty: add so much to the arcs' costs, and leave the symbols
    """
    import struct

    if remove_arcs and penalty != -math.inf:
        raise UserError("--remove-arcs and --penalty exclude each other; choose one.")
    chosen = set(_integers(symbols))
    side = 1 if apply_to_output or remove_from_output else 0
    fst = read_fst(source)
    tables = symbols_of(fst)
    body = Body(fst)
    words = body.words
    if remove_arcs:
        kept = body.words[:0]
        for arcs in body.states():
            left = [arc for arc in arcs[::4] if words[arc + side] not in chosen]
            kept.extend((words[arcs.start - 3], len(left), 0))
            for arc in left:
                kept.extend(words[arc : arc + 4])
        body.words = kept
    else:
        for arcs in body.states():
            for arc in arcs[::4]:
                if words[arc + side] in chosen:
                    if penalty == -math.inf:
                        words[arc + side] = 0
                    else:
                        words[arc + 2] = struct.unpack("<i", struct.pack("<f", fst_cost(words[arc + 2]) + penalty))[0]
    fst = body.fst()
    if remove_arcs:
        kaldifst.connect(fst)
    fst.input_symbols, fst.output_symbols = tables
    write_fst(fst, target)


def fsttablecompose(first: str, second: str, target: str = "", *, connect: bool = True, match_side: str = "left",
                    compose_filter: str = "sequence") -> None:
    """Compose two FSTs, which are sorted first where they need it.

    Usage: fsttablecompose [options] <fst> <fst> [<fst>]
    e.g.: fsttablecompose L.fst G.fst | fstdeterminizestar > LG.fst

    Options:
      --connect: trim what comes out (default: true)
      --match-side: left or right; the result is the same (default: left)
      --compose-filter: sequence, alt_sequence, match or auto (default: sequence)
    """
    left, right = read_fst(first), read_fst(second)
    if match_side not in ("left", "right"):
        raise UserError(f"--match-side={match_side}: expected left or right.")
    if not left.is_olabel_sorted and not right.is_ilabel_sorted:
        kaldifst.arcsort(left, "olabel")
    write_fst(kaldifst.compose(left, right, match_side=match_side, compose_filter=compose_filter, connect=connect), target)
