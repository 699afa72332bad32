"""Flat start of chain (LF-MMI) training: a tree and graphs of transcripts, made of the language directory and the transcripts alone.

The tree is not grown. A monophone one has pdfs for each set of phones; a biphone one for each set of phones behind each other set, or
behind none (the beginning, or a phone without context). Where biphones are tied, one that is rare takes the pdfs of its phone, and where
the phone is rare too, those that all such phones share. H. Hadian et al., "End-to-end speech recognition using lattice-free MMI",
Interspeech 2018; the numbers of pdfs are those of Kaldi's gmm-init-mono and gmm-init-biphone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst

from pykaldist.hmm.alignments.graphs import Lexicon
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree, write_model, write_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.h_transducer import add_self_loops, h_transducer
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import PDF_CLASS, Constant, ContextDependency, EventMap, Table, monophone_tree
from pykaldist.io import provenance
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, to_kaldifst
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.text_tools.phones import NOTHING, Pairs, Singles, TranscriptPhones, count_biphones
from pykaldist.options import option
from pykaldist.progress import Progress

LEFT, CENTRAL = 0, 1


@dataclass
class TyingOptions:
    """When the pdfs of a biphone are those of its phone, and those of a phone are shared by all rare ones."""

    min_biphone_count: int = option(100, "fewest occurrences of a biphone with pdfs of its own")
    min_monophone_count: int = option(20, "occurrences above which a phone has pdfs for its rare biphones")


def biphone_tree(phone_sets: Sequence[Sequence[int]], num_pdf_classes: Callable[[int], int], context_independent: Sequence[int] = (),
                 counts: tuple[Pairs, Singles] | None = None,
                 tying: TyingOptions | None = None) -> ContextDependency:
    """Make the tree with pdfs for each phone set behind each other one; with `counts`, rare biphones are tied.

    Phones of `context_independent` have pdfs for themselves, whatever stands before them, and count as nothing before others.
    """
    tying = tying or TyingOptions()
    sets = [tuple(phone for phone in phones if phone not in context_independent) for phones in phone_sets]
    sets = [phones for phones in sets if phones]
    classes = num_pdf_classes(max(itertools.chain(*phone_sets)))
    numbers = itertools.count()

    def pdfs() -> Table:
        return Table(PDF_CLASS, tuple(Constant(next(numbers)) for _ in range(classes)))

    by_phone: dict[int, EventMap] = {phone: pdfs() for phone in context_independent}
    of_rare: EventMap | None = None
    for right in sets:
        behind: dict[int, EventMap] = dict.fromkeys([NOTHING, *context_independent], pdfs())
        of_phone: EventMap | None = None
        for left in sets:
            if counts is None or counts[0].get((left[0], right[0]), 0) >= tying.min_biphone_count:
                leaf: EventMap = pdfs()
            elif counts[1].get(right[0], 0) > tying.min_monophone_count:
                leaf = of_phone = of_phone or pdfs()
            else:
                leaf = of_rare = of_rare or pdfs()
            behind.update(dict.fromkeys(left, leaf))
        by_phone.update(dict.fromkeys(right, _table(LEFT, behind)))
    return ContextDependency(2, CENTRAL, _table(CENTRAL, by_phone))


def _table(key: int, rows: dict[int, EventMap]) -> Table:
    return Table(key, tuple(rows.get(value) for value in range(max(rows) + 1)))


class TranscriptGraphs:
    """Makes the graphs of transcripts down to transition-ids, from which `supervision.py` makes numerators of flat start."""

    def __init__(self, lexicon: Lexicon, tree: ContextDependency, model: TransitionModel, transition_scale: float = 0.0,
                 self_loop_scale: float = 0.0) -> None:
        self.lexicon, self.tree, self.model, self.scales = lexicon, tree, model, (transition_scale, self_loop_scale)

    def compile(self, words: Sequence[int]) -> Fst:
        """Make the graph of a transcript (numbers of words), determinised and minimised as Kaldi's compile-train-graphs does.

        Raises UserError for a word without a pronunciation.
        """
        transition_scale, self_loop_scale = self.scales
        phones = to_kaldifst(self.lexicon.transducer(words))
        in_context, windows = kaldifst.compose_context([], self.tree.width, self.tree.central, phones)
        kaldifst.arcsort(in_context, "ilabel")
        h, _ = h_transducer(windows, self.tree, self.model, transition_scale)
        graph = kaldifst.compose(to_kaldifst(h), in_context)
        kaldifst.determinize_star(graph, use_log=True)
        kaldifst.minimize_encoded(graph)
        return add_self_loops(from_kaldifst(graph), self.model, self_loop_scale)


@dataclass
class FlatStartOptions(TyingOptions):
    """Options of `prepare_flat_start`."""

    type: str = option("mono", "tree: of phones alone, or of phones behind each other phone", ("mono", "biphone"))
    shared_phones: bool = option(True, "phones of a set (phones/sets.int) have the same pdfs")
    ci_silence: bool = option(False, "phones of phones/context_indep.csl have the same pdfs wherever they stand")
    tie: bool = option(False, "tie rare biphones")
    transition_scale: float = option(0.0, "scale of transition probabilities in the graphs")
    self_loop_scale: float = option(0.0, "scale of self-loop probabilities in the graphs")


def prepare_flat_start(data: DataDir, lang: LangDir, out: Path, options: FlatStartOptions, nj: int = 1, tree_dir: Path | None = None,
                       ) -> str:
    """Write the tree, the transition model and the graphs of transcripts of a flat start to `out`; returns a line that says what came out.

    The tree and the model of `tree_dir` can be taken instead.
    """
    provenance.check(lang.path)
    if tree_dir is not None:
        check_phones(lang, tree_dir)
        tree, model = read_tree(tree_dir / "tree"), read_transition_model(tree_dir / "final.mdl")
    else:
        topology = read_topology(lang.file("topo"))
        sets = lang.phone_sets if options.shared_phones else [[phone] for phones in lang.phone_sets for phone in phones]
        alone = [phone for phones in lang.int_lists("phones/context_indep.int") for phone in phones] if options.ci_silence else []
        if options.type == "mono":
            tree = monophone_tree(sets, topology.num_pdf_classes)
        else:
            phones = TranscriptPhones(str(lang.path), 0.0, 0.0)
            number = {symbol.encode(): value for symbol, value in lang.phones.items()}
            counts = count_biphones(([number[phone] for phone in phones([word.encode() for word in data.text[utt]])]
                                     for utt in data.utterances()), sets) if options.tie else None
            tree = biphone_tree(sets, topology.num_pdf_classes, alone, counts, options)
        model = TransitionModel.from_tree(tree, topology)
    out.mkdir(parents=True, exist_ok=True)
    for old in (out / "final.mdl", *out.glob("fst.*.ark"), *out.glob("fst.*.scp")):
        old.unlink(missing_ok=True)
    write_tree(out / "tree", tree)
    write_model(out / "0.trans_mdl", model)
    copy_file(lang.file("phones.txt"), out / "phones.txt")
    graphs = TranscriptGraphs(Lexicon(lang.file("L.fst"), lang.disambig_phones), tree, model, options.transition_scale,
                              options.self_loop_scale)
    with Progress("compiling graphs", len(data.utterances()), "utt") as bar:
        for job in range(1, nj + 1):
            compiled = ((utt, graphs.compile(lang.word_ids(data.text[utt])[0])) for utt in data.part(job, nj))
            _write_graphs(out / f"fst.{job}.ark", compiled, bar)
    write_text(out / "num_jobs", f"{nj}\n")
    write_text(out / "scale_opts", f"--transition-scale={options.transition_scale} --self-loop-scale={options.self_loop_scale}\n")
    for name in ("0.mdl", "final.mdl"):
        write_model(out / name, model)
    return f"{tree.num_pdfs} pdfs, graphs of {len(data.utterances())} transcripts"


def _write_graphs(path: Path, graphs: Iterable[tuple[str, Fst]], bar: Progress) -> None:
    """Write a Kaldi archive of graphs, and its table of contents beside it."""
    lines, place = [], 0
    with atomic_open(path, "wb") as stream:
        for utt, graph in graphs:
            key, body = f"{utt} ".encode(), graph.to_bytes()
            stream.write(key + body)
            lines.append(f"{utt} {path}:{place + len(key)}\n")
            place += len(key) + len(body)
            bar.update()
    write_text(path.with_suffix(".scp"), "".join(lines))
