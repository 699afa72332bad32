"""OpenFst's programs, by the library itself (kaldifst): text to FST and back, sorting, composition, determinisation, facts.

Each reads standard input where no file is named, and writes standard output. They take `-option` for `--option`, as OpenFst's do.
"""

from __future__ import annotations

from typing import Any

import kaldifst

from pykaldist.errors import UserError
from pykaldist.io.openfst import Body, fst_bytes, read_fst, symbols_of, write_fst
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename

Fst = Any  # of kaldifst, which has no types


def _symbols(path: str) -> Any:
    """A symbol table as text or binary; None where no file is named."""
    if not path:
        return None
    with open_rxfilename(path) as stream:
        data = stream.read()
    table = kaldifst.SymbolTable.from_str(data.decode("utf-8"))
    if table is None:
        raise UserError(f"{path} is no symbol table; expected lines of `symbol number`.")
    return table


def _fst_type(fst: Fst, fst_type: str) -> bytes:
    if fst_type == "vector":
        return fst_bytes(fst)
    if fst_type != "const":
        raise UserError(f"--fst_type={fst_type}: vector and const FSTs are written here.")
    return fst_bytes(kaldifst.StdConstFst(fst))


def fstcompile(source: str = "", target: str = "", *, acceptor: bool = False, arc_type: str = "standard", fst_type: str = "vector",
               isymbols: str = "", osymbols: str = "", ssymbols: str = "", keep_isymbols: bool = False, keep_osymbols: bool = False,
               keep_state_numbering: bool = False, allow_negative_labels: bool = False) -> None:
    """Make a binary FST of text: lines of `from to input output [cost]`, and `state [cost]` for final states.

    Usage: fstcompile [options] [<text> [<fst>]]
    e.g.: fstcompile --isymbols=words.txt --osymbols=words.txt G.txt | fstarcsort > G.fst

    Options:
      --acceptor: lines have one label (default: false)
      --arc_type: standard, no other here
      --fst_type: vector or const (default: vector)
      --isymbols: symbol table of the input labels
      --osymbols: symbol table of the output labels
      --ssymbols: symbol table of the states
      --keep_isymbols: write the input symbols into the FST (default: false)
      --keep_osymbols: write the output symbols into the FST (default: false)
      --keep_state_numbering: do not renumber states (default: false)
      --allow_negative_labels: (default: false)
    """
    if arc_type != "standard":
        raise UserError(f"--arc_type={arc_type}: FSTs of standard arcs are made here, no others.")
    with open_rxfilename(source) as stream:
        text = stream.read().decode("utf-8")
    fst = kaldifst.compile(text, acceptor=acceptor, isymbols=_symbols(isymbols), osymbols=_symbols(osymbols), ssymbols=_symbols(ssymbols),
                           keep_isymbols=keep_isymbols, keep_osymbols=keep_osymbols, keep_state_numbering=keep_state_numbering,
                           allow_negative_labels=allow_negative_labels)
    data = _fst_type(fst, fst_type)
    with open_wxfilename(target) as out:
        out.write(data)


def fstprint(source: str = "", target: str = "", *, acceptor: bool = False, isymbols: str = "", osymbols: str = "",
             show_weight_one: bool = False, fst_field_separator: str = "\t", missing_symbol: str = "", numeric: bool = False) -> None:
    """Print an FST as text, with the symbols that it has inside, or those given.

    Usage: fstprint [options] [<fst> [<text>]]
    e.g.: fstprint --isymbols=phones.txt --osymbols=words.txt L.fst

    Options:
      --acceptor: one label a line, where input and output are the same (default: false)
      --isymbols: symbol table of the input labels
      --osymbols: symbol table of the output labels
      --show_weight_one: print costs of 0, too (default: false)
      --fst_field_separator: between columns (default: a tab)
      --missing_symbol: what to print for a label without a symbol (default: an error)
      --numeric: print numbers, though the FST has symbols (default: false)
    """
    fst = read_fst(source)
    for name, path in (("input_symbols", isymbols), ("output_symbols", osymbols)):
        if path or numeric:
            setattr(fst, name, None if numeric else _symbols(path))
    text = fst.to_str(is_acceptor=acceptor, show_weight_one=show_weight_one, fst_field_separator=fst_field_separator,
                      missing_symbol=missing_symbol)
    with open_wxfilename(target) as out:
        out.write(text.encode())


def fstarcsort(source: str = "", target: str = "", *, sort_type: str = "ilabel") -> None:
    """Sort the arcs of each state by input or output label.

    Usage: fstarcsort [options] [<fst> [<fst>]]
    e.g.: fstarcsort --sort_type=olabel < L.fst > L_sorted.fst

    Options:
      --sort_type: ilabel or olabel (default: ilabel)
    """
    if sort_type not in ("ilabel", "olabel"):
        raise UserError(f"--sort_type={sort_type}: expected ilabel or olabel.")
    fst = read_fst(source)
    kaldifst.arcsort(fst, sort_type)
    write_fst(fst, target)


def fstcompose(first: str, second: str = "-", target: str = "", *, connect: bool = True, compose_filter: str = "auto") -> None:
    """Compose two FSTs; the first is to be sorted by output labels, or the second by input labels.

    Usage: fstcompose [options] <fst> <fst> [<fst>]
    e.g.: fstcompose L.fst G.fst > LG.fst

    Options:
      --connect: trim what comes out (default: true)
      --compose_filter: auto, sequence, alt_sequence, match, null, trivial or no_match (default: auto)
    """
    if first == second == "-":
        raise UserError("only one of the two FSTs can come from standard input.")
    left, right = read_fst(first), read_fst(second)
    if not left.is_olabel_sorted and not right.is_ilabel_sorted:
        raise UserError(f"neither {first} is sorted by output labels nor {second} by input labels; sort one with fstarcsort "
                        "--sort_type=olabel or ilabel.")
    write_fst(kaldifst.compose(left, right, compose_filter=compose_filter, connect=connect), target)


def fstconnect(source: str = "", target: str = "") -> None:
    """Trim an FST: remove states and arcs that are on no path from the start to an end.

    Usage: fstconnect [<fst> [<fst>]]
    e.g.: fstconnect LG.fst | fstinfo
    """
    fst = read_fst(source)
    kaldifst.connect(fst)
    write_fst(fst, target)


def fstdeterminize(source: str = "", target: str = "", *, delta: float = 0.0009765625, det_type: str = "functional", nstate: int = -1,
                   subsequential_label: int = 0, weight: str = "", increment_subsequential_label: bool = False) -> None:
    """Determinise an FST.

    Usage: fstdeterminize [options] [<fst> [<fst>]]
    e.g.: fstdeterminize LG.fst det.fst

    Options:
      --delta: costs are equal if so near to each other (default: 1/1024)
      --det_type: functional, nonfunctional or disambiguate (default: functional)
      --nstate: most states kept (default: -1: all)
      --subsequential_label: input label of final strings (default: 0)
      --increment_subsequential_label: a label of its own for each (default: false)
      --weight: prune what costs so much more than the best path
    """
    fst = kaldifst.determinize(read_fst(source), delta=delta, det_type=det_type, nstate=nstate, subsequential_label=subsequential_label,
                               weight=weight, increment_subsequential_label=increment_subsequential_label)
    write_fst(fst, target)


def fstinfo(source: str = "", *, test_properties: bool = True, fst_verify: bool = True, arc_filter: str = "any",
            info_type: str = "auto") -> None:
    """Print facts about an FST: states, arcs, properties.

    Usage: fstinfo [options] [<fst>]
    e.g.: fstinfo G.fst | grep cyclic

    Options:
      --arc_filter: arcs that count for connections: any, epsilon, iepsilon or oepsilon (default: any)
      --info_type: auto, long or short (default: auto)
      --test_properties: find out properties that the file does not tell (default: true)
      --fst_verify: check the FST first (default: true)
    """
    kaldifst.info(read_fst(source), arc_filter=arc_filter, info_type=info_type, test_properties=test_properties, fst_verify=fst_verify)


def fstinvert(source: str = "", target: str = "") -> None:
    """Exchange input and output labels.

    Usage: fstinvert [<fst> [<fst>]]
    e.g.: fstinvert L.fst > L_inverted.fst
    """
    fst = read_fst(source)
    kaldifst.invert(fst)
    write_fst(fst, target)


def fstminimize(source: str = "", target: str = "", *, delta: float = 1e-6, allow_nondet: bool = False) -> None:
    """Minimise an FST that is deterministic.

    Usage: fstminimize [options] [<fst> [<fst>]]
    e.g.: fstdeterminize LG.fst | fstminimize > min.fst

    Options:
      --delta: costs are equal if so near to each other (default: 1e-6)
      --allow_nondet: take FSTs that are not deterministic, too (default: false)
    """
    fst = read_fst(source)
    kaldifst.minimize(fst, delta=delta, allow_nondet=allow_nondet)
    write_fst(fst, target)


def fstproject(source: str = "", target: str = "", *, project_output: bool = False, project_type: str = "input") -> None:
    """Make an acceptor of an FST's input labels, or of its output labels.

    Usage: fstproject [options] [<fst> [<fst>]]
    e.g.: fstproject --project_output=true LG.fst > words.fst

    Options:
      --project_output: keep the output labels, not the input labels (default: false)
      --project_type: input or output, the newer way to say so (default: input)
    """
    if project_type not in ("input", "output"):
        raise UserError(f"--project_type={project_type}: expected input or output.")
    fst = read_fst(source)
    if project_output or project_type == "output":
        kaldifst.invert(fst)
    symbols = symbols_of(fst)[0]
    body = Body(fst)
    for arcs in body.states():
        body.words[arcs.start + 1 : arcs.stop : 4] = body.words[arcs.start : arcs.stop : 4]
    acceptor = body.fst()
    acceptor.input_symbols = acceptor.output_symbols = symbols
    write_fst(acceptor, target)


def fstreverse(source: str = "", target: str = "", *, require_superinitial: bool = True) -> None:
    """Reverse an FST: its paths from their ends to their beginnings.

    Usage: fstreverse [options] [<fst> [<fst>]]
    e.g.: fstreverse A.fst > B.fst

    Options:
      --require_superinitial: always add a start state (default: true)
    """
    write_fst(kaldifst.reverse(read_fst(source), require_superinitial=require_superinitial), target)


def fstrmepsilon(source: str = "", target: str = "", *, connect: bool = True, delta: float = 1e-6, nstate: int = -1,
                 queue_type: str = "auto", weight: str = "") -> None:
    """Remove the arcs that have an epsilon on both sides.

    Usage: fstrmepsilon [options] [<fst> [<fst>]]
    e.g.: fstcompile G.txt | fstrmepsilon | fstarcsort > G.fst

    Options:
      --connect: trim what comes out (default: true)
      --delta: costs are equal if so near to each other (default: 1e-6)
      --nstate: most states kept (default: -1: all)
      --queue_type: auto, fifo, lifo, shortest, state or top (default: auto)
      --weight: prune what costs so much more than the best path
    """
    fst = read_fst(source)
    kaldifst.rmepsilon(fst, connect=connect, delta=delta, nstate=nstate, queue_type=queue_type, weight=weight)
    write_fst(fst, target)


def fstshortestpath(source: str = "", target: str = "", *, nshortest: int = 1) -> None:
    """Keep the paths that cost least.

    Usage: fstshortestpath [options] [<fst> [<fst>]]
    e.g.: fstshortestpath G.fst | fstprint

    Options:
      --nshortest: how many paths (default: 1)
    """
    write_fst(kaldifst.shortest_path(read_fst(source), nshortest), target)


def fstsymbols(source: str = "", target: str = "", *, isymbols: str = "", osymbols: str = "", clear_isymbols: bool = False,
               clear_osymbols: bool = False, save_isymbols: str = "", save_osymbols: str = "") -> None:
    """Put symbol tables into an FST, take them out, or save them.

    Usage: fstsymbols [options] [<fst> [<fst>]]
    e.g.: fstsymbols --save_osymbols=words.txt G.fst > /dev/null

    Options:
      --isymbols: symbol table to put in for the input labels
      --osymbols: symbol table to put in for the output labels
      --clear_isymbols: take the input symbols out (default: false)
      --clear_osymbols: take the output symbols out (default: false)
      --save_isymbols: file to write the input symbols to
      --save_osymbols: file to write the output symbols to
    """
    fst = read_fst(source)
    for table, path in ((fst.input_symbols, save_isymbols), (fst.output_symbols, save_osymbols)):
        if path:
            if table is None:
                raise UserError(f"{source or 'standard input'} has no symbols to save.")
            table.write_text(path)
    if isymbols or clear_isymbols:
        fst.input_symbols = _symbols(isymbols)
    if osymbols or clear_osymbols:
        fst.output_symbols = _symbols(osymbols)
    write_fst(fst, target)
