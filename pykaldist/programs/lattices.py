"""Programs on lattices: copies, scales and penalties, best paths, pruning, combination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.lattice_tables import LIGHT, SMALL, read_lattice_table, write_state_level
from pykaldist.decode.lattice_tables import write_compact as _compact
from pykaldist.errors import UserError
from pykaldist.io.lang import SymbolTable
from pykaldist.io.table_streams import TableWriter, write_value
from pykaldist.io.xfilenames import open_rxfilename
from pykaldist.programs.command import say
from pykaldist.programs.number_lists import real_numbers


def scale_of(acoustic_scale: float, inv_acoustic_scale: float) -> float:
    """The acoustic scale of the two options that give it; raises UserError where both do."""
    if acoustic_scale != 1 and inv_acoustic_scale != 1:
        raise UserError("--acoustic-scale and --inv-acoustic-scale exclude each other; give one.")
    return acoustic_scale if inv_acoustic_scale == 1 else 1 / inv_acoustic_scale


def changed(source: str, target: str, change: Callable[[Lattice], Lattice | None], what: str, compact: bool = True,
            little: int = SMALL) -> int:
    """Write each lattice as `change` makes it; one for which it raises ValueError, or gives None, is named and left out.

    `little`: the bytes of which `read_lattice_table` makes little.
    """
    left_out = 0
    with TableWriter(target, _compact if compact else write_state_level) as out:
        for utt, lattice in read_lattice_table(source, little):
            try:
                made = change(lattice)
            except (UserError, ValueError) as error:
                say(f"WARNING: {utt}: {error}")
                made = None
            if made is None:
                left_out += 1
            else:
                out.write(utt, made)
    say(f"{out.count} lattices {what}, {left_out} left out")
    return 0 if out.count else 1


def lattice_scale(source: str, target: str, *, acoustic_scale: float = 1.0, inv_acoustic_scale: float = 1.0, lm_scale: float = 1.0,
                  acoustic2lm_scale: float = 0.0, lm2acoustic_scale: float = 0.0, write_compact: bool = True) -> int:
    """Multiply the costs of lattices.

    Usage: lattice-scale [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-scale --inv-acoustic-scale=10 "ark:gunzip -c lat.1.gz|" ark:-

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --inv-acoustic-scale: one over that factor
      --lm-scale: factor of the graph costs (default: 1)
      --acoustic2lm-scale: so much of the acoustic costs is added to the graph costs (default: 0)
      --lm2acoustic-scale: so much of the graph costs is added to the acoustic costs (default: 0)
      --write-compact: write compact lattices, else state-level ones (default: true)
    """
    acoustic = scale_of(acoustic_scale, inv_acoustic_scale)

    def mixed(first: np.ndarray, factor: float, second: np.ndarray, share: float, ends: np.ndarray | None = None) -> np.ndarray:
        there = np.isfinite(first) if ends is None else ends
        result = np.full(len(first), np.inf, np.float32)
        result[there] = factor * first[there] + share * second[there]
        return result

    def scaled(lattice: Lattice) -> Lattice:
        return replace(lattice, graph=mixed(lattice.graph, lm_scale, lattice.acoustic, acoustic2lm_scale),
                       acoustic=mixed(lattice.acoustic, acoustic, lattice.graph, lm2acoustic_scale),
                       final=mixed(lattice.final, lm_scale, lattice.final_acoustic, acoustic2lm_scale),
                       final_acoustic=mixed(lattice.final_acoustic, acoustic, lattice.final, lm2acoustic_scale))

    return changed(source, target, scaled, "scaled", write_compact, LIGHT)


def lattice_add_penalty(source: str, target: str, *, word_ins_penalty: float = 0.0) -> int:
    """Add a penalty to the graph cost of every word.

    Usage: lattice-add-penalty [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-add-penalty --word-ins-penalty=0.5 ark:- ark:-

    Options:
      --word-ins-penalty: the penalty (default: 0)
    """
    return changed(source, target, lambda lattice: lattice.penalise_words(word_ins_penalty), "given a penalty", little=LIGHT)


def lattice_copy(source: str, target: str, *, write_compact: bool = True, include: str = "", exclude: str = "",
                 ignore_missing: bool = False) -> int:
    """Copy lattices, to text, binary, compact or state-level form.

    Usage: lattice-copy [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-copy --write-compact=false "ark:gunzip -c lat.1.gz|" ark,t:-

    Options:
      --write-compact: write compact lattices, else state-level ones (default: true)
      --include: file whose lines begin with the utterances to copy
      --exclude: file whose lines begin with the utterances not to copy
      --ignore-missing: exit with status 0 where no lattice is copied, too (default: false)
    """
    if include and exclude:
        raise UserError("--include and --exclude exclude each other; give one.")
    write_lattice = _compact if write_compact else write_state_level
    listed = _first_words(include or exclude)
    left_out = 0
    with TableWriter(target, write_lattice) as out:
        for utt, lattice in read_lattice_table(source, LIGHT):
            if (not include and not exclude) or (utt in listed) == bool(include):
                out.write(utt, lattice)
            else:
                left_out += 1
    say(f"{out.count} lattices copied, {left_out} left out")
    return 0 if out.count or ignore_missing else 1


def _first_words(name: str) -> set[str]:
    if not name:
        return set()
    with open_rxfilename(name) as stream:
        return {line.split()[0] for line in stream.read().decode("utf-8").splitlines() if line.strip()}


def lattice_prune(source: str, target: str, *, acoustic_scale: float = 1.0, inv_acoustic_scale: float = 1.0, beam: float = 10.0,
                  write_compact: bool = True, minimize: bool = False) -> int:
    """Remove the paths of lattices that are worse than the best one by more than a beam.

    Usage: lattice-prune [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-prune --acoustic-scale=0.1 --beam=4.0 ark:1.lats ark:pruned.lats

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --inv-acoustic-scale: one over that factor
      --beam: the beam (default: 10)
      --write-compact: write compact lattices, else state-level ones (default: true)
      --minimize: has no effect
    """
    from pykaldist.decode.paths import pruned

    scale = scale_of(acoustic_scale, inv_acoustic_scale)
    return changed(source, target, lambda lattice: pruned(lattice, beam, scale), "pruned", write_compact)


def lattice_1best(source: str, target: str, *, acoustic_scale: float = 1.0, lm_scale: float = 1.0, word_ins_penalty: float = 0.0) -> int:
    """Keep the best path of each lattice, as a lattice.

    Usage: lattice-1best [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-1best --acoustic-scale=0.1 ark:1.lats ark:1best.lats

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --lm-scale: factor of the graph costs (default: 1)
      --word-ins-penalty: added for each word (default: 0)
    """
    from pykaldist.decode.paths import best_path_lattice

    return changed(source, target, lambda lattice: best_path_lattice(lattice, acoustic_scale, lm_scale, word_ins_penalty),
                   "cut down to their best paths", little=LIGHT)


def lattice_best_path(source: str, words: str = "", alignments: str = "", *, acoustic_scale: float = 1.0, lm_scale: float = 1.0,
                      word_symbol_table: str = "") -> int:
    """Write the words, and the transition-ids, of each lattice's best path.

    Words are numbers; with --word-symbol-table, the log has them as words too.

    Usage: lattice-best-path [options] <lattice-rspecifier> [<words-wspecifier> [<alignments-wspecifier>]]
    e.g.: lattice-best-path --acoustic-scale=0.1 "ark:gunzip -c lat.1.gz|" "ark,t:|utils/int2sym.pl -f 2- words.txt" ark:1.ali

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --lm-scale: factor of the graph costs (default: 1)
      --word-symbol-table: words.txt, for the log
    """
    from pykaldist.decode.paths import best_path

    symbols = SymbolTable.read(word_symbol_table) if word_symbol_table else None
    done = 0
    with TableWriter(words or "ark:/dev/null", write_value) as text, TableWriter(alignments or "ark:/dev/null", write_value) as ids:
        for utt, lattice in read_lattice_table(source, LIGHT):
            path = best_path(lattice, acoustic_scale, lm_scale)
            text.write(utt, np.array(path.words, np.int32))
            ids.write(utt, path.transition_ids.astype(np.int32))
            done += 1
            if symbols is not None:
                say(" ".join([utt, *map(symbols.symbol, path.words)]))
    say(f"{done} best paths written")
    return 0 if done else 1


def lattice_to_nbest(source: str, target: str, *, acoustic_scale: float = 1.0, lm_scale: float = 1.0, n: int = 1, random: bool = False,
                     srand: int = 0) -> int:
    """Write the n best paths of each lattice as lattices of their own, <utterance>-1 to <utterance>-n.

    Usage: lattice-to-nbest [options] <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-to-nbest --acoustic-scale=0.1 --n=10 ark:1.lats ark:nbest.lats

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --lm-scale: factor of the graph costs (default: 1)
      --n: most paths of a lattice (default: 1)
      --random: random paths, which are not here
      --srand: has no effect
    """
    from pykaldist.decode.paths import nbest

    if random:
        raise UserError("--random=true: random paths are not made here; leave it out.")
    with TableWriter(target, _compact) as out:
        for utt, lattice in read_lattice_table(source):
            for k, path in enumerate(nbest(lattice, n, acoustic_scale, lm_scale), 1):
                out.write(f"{utt}-{k}", path.lattice())
    say(f"{out.count} paths written")
    return 0 if out.count else 1


def lattice_combine(first: str, second: str, *others: str, acoustic_scale: float = 1.0, inv_acoustic_scale: float = 1.0,
                    lm_scale: float = 1.0, lat_weights: str = "") -> int:
    """Join lattices of several systems, each with a share of the probability; the scales stay in the costs.

    Usage: lattice-combine [options] <lattice-rspecifier> <lattice-rspecifier> ... <lattice-wspecifier>
    e.g.: lattice-combine --inv-acoustic-scale=12 ark:1.lats ark:2.lats ark:- | lattice-mbr-decode ark:- ark,t:-

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --inv-acoustic-scale: one over that factor
      --lm-scale: factor of the graph costs (default: 1)
      --lat-weights: the systems' shares, such as 0.2:0.8 (default: equal ones)
    """
    from pykaldist.decode.combine import combined

    names = [first, second, *others]
    sources, target = names[:-1], names[-1]
    if len(sources) < 2:
        raise UserError("expected two sources or more, and a target.")
    shares = real_numbers("--lat-weights", lat_weights) if lat_weights else [1 / len(sources)] * len(sources)
    if len(shares) != len(sources) or not abs(sum(shares) - 1) < 1e-3 or min(shares) <= 0:
        raise UserError(f"--lat-weights={lat_weights}: expected {len(sources)} shares above 0 that sum to 1.")
    scale = scale_of(acoustic_scale, inv_acoustic_scale)
    rest = [dict(read_lattice_table(source)) for source in sources[1:]]
    with TableWriter(target, _compact) as out:
        for utt, lattice in read_lattice_table(sources[0]):
            there = [(lattice, shares[0]), *((table[utt], share) for table, share in zip(rest, shares[1:], strict=True) if utt in table)]
            if len(there) < len(sources):
                say(f"WARNING: {utt} is in {len(there)} of {len(sources)} tables")
            out.write(utt, combined(there, scale, lm_scale))
    say(f"{out.count} lattices combined")
    return 0 if out.count else 1


def lattice_interp(first: str, second: str, target: str, *, alpha: float = 0.5) -> None:
    """Join two systems' lattices to the paths whose words both have, at the weighted sums of their costs.

    Alignments are those of the first. An utterance whose lattices share no path is named and left out; see lattice-copy-backoff.

    Usage: lattice-interp [options] <lattice-rspecifier> <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-interp --alpha=0.4 "ark:gunzip -c tri/decode/lat.1.gz|" "ark:gunzip -c dnn/decode/lat.1.gz|" ark:-

    Options:
      --alpha: weight of the first lattice; the second has the rest of 1 (default: 0.5)
    """
    from pykaldist.decode.combine import interpolated

    if not 0 < alpha < 1:
        raise UserError(f"--alpha={alpha:g}: expected a weight between 0 and 1.")
    others = dict(read_lattice_table(second))
    with TableWriter(target, _compact) as out:
        for utt, lattice in read_lattice_table(first):
            made = interpolated(lattice, others[utt], alpha) if utt in others else None
            if made is None:
                say(f"WARNING: {utt}: {'the lattices share no path' if utt in others else f'{second} has no lattice of it'}")
            else:
                out.write(utt, made)
    say(f"{out.count} lattices interpolated")


def lattice_copy_backoff(first: str, second: str, target: str) -> int:
    """Copy the lattices of the first table, with those of the second in their places where it has them.

    Usage: lattice-copy-backoff <lattice-rspecifier> <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-interp ark:1.lats ark:2.lats ark:- | lattice-copy-backoff ark:1.lats ark:- ark:combined.lats
    """
    preferred = dict(read_lattice_table(second, empty=True))  # as lattice-interp leaves it where no two lattices share a path
    with TableWriter(target, _compact) as out:
        for utt, lattice in read_lattice_table(first):
            out.write(utt, preferred.get(utt, lattice))
    say(f"{out.count} lattices copied, {out.count - len(preferred)} of them from {first}")
    return 0 if out.count else 1


def lattice_equivalent(first: str, second: str, *, delta: float = 0.1, num_paths: int = 20, max_error_proportion: float = 0.0) -> int:
    """Exit with status 0 where two tables have lattices with the same best paths, else with status 1.

    Usage: lattice-equivalent [options] <lattice-rspecifier> <lattice-rspecifier>
    e.g.: lattice-equivalent ark:1.lats ark:2.lats

    Options:
      --delta: what the costs of a path may differ (default: 0.1)
      --num-paths: best paths of each lattice that are compared (default: 20)
      --max-error-proportion: share of lattices that may differ or be missing (default: 0)
    """
    from pykaldist.decode.paths import nbest

    def paths(lattice: Lattice) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for path in nbest(lattice, num_paths, 1.0):
            found.setdefault(tuple(path.words), path.graph + path.acoustic)
        return found

    others = dict(read_lattice_table(second))
    total = different = 0
    for utt, lattice in read_lattice_table(first):
        total += 1
        mine, theirs = paths(lattice), paths(others[utt]) if utt in others else {}
        dearest = min(max(mine.values(), default=0.0), max(theirs.values(), default=0.0)) - delta
        same = all(abs(theirs.get(words, np.inf) - cost) <= delta for words, cost in mine.items() if cost < dearest or not theirs) and \
            all(abs(mine.get(words, np.inf) - cost) <= delta for words, cost in theirs.items() if cost < dearest)
        if not same:
            different += 1
            say(f"{utt}: the lattices differ" if theirs else f"{utt}: {second} has no lattice of it")
    say(f"{total} lattices compared, {different} differ or are missing")
    return 0 if total and different <= max_error_proportion * total else 1
