"""Programs for chain (LF-MMI) models: the phone language model and the denominator graph."""

from __future__ import annotations

from pykaldist.errors import UserError


def chain_est_phone_lm(phones: str, target: str, *, ngram_order: int = 4, no_prune_ngram_order: int = 3,
                       num_extra_lm_states: int = 1000) -> None:
    """Estimate the phone language model of the denominator, an n-gram model without smoothing.

    Usage: chain-est-phone-lm [options] <phone-seqs-rspecifier> <phone-lm-fst>
    e.g.: ali-to-phones final.mdl "ark:gunzip -c ali.*.gz|" ark:- | chain-est-phone-lm --num-extra-lm-states=2000 ark:- phone_lm.fst

    Options:
      --ngram-order: order of the model (default: 4)
      --no-prune-ngram-order: the order whose n-grams are all kept (default: 3)
      --num-extra-lm-states: states above those of the order that is kept (default: 1000)
    """
    from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
    from pykaldist.io.table_streams import read_ints, read_table

    options = PhoneLmOptions(ngram_order, no_prune_ngram_order, num_extra_lm_states)
    _write(target, estimate_phone_lm((sequence.tolist() for _, sequence in read_table(phones, read_ints)), options).to_bytes())


def chain_make_den_fst(tree: str, model: str, phone_lm: str, den: str, normalization: str) -> None:
    """Make the denominator graph, and the normalisation FST that numerators are composed with.

    Usage: chain-make-den-fst [options] <tree> <transition-model> <phone-lm-fst> <den-fst> <normalization-fst>
    e.g.: chain-make-den-fst dir/tree dir/0.trans_mdl dir/phone_lm.fst dir/den.fst dir/normalization.fst
    """
    from pykaldist.hmm.chain.den_graph import denominator_graph, normalization_fst
    from pykaldist.hmm.tree.tree import ContextDependency
    from pykaldist.io.fst import Fst
    from pykaldist.io.xfilenames import open_rxfilename
    from pykaldist.programs.models import kaldi_reader, read_transition_model

    context, transitions = ContextDependency.read(kaldi_reader(tree)), read_transition_model(model)
    if context.num_pdfs != transitions.num_pdfs:
        raise UserError(f"{tree} has {context.num_pdfs} pdfs, {model} {transitions.num_pdfs}; take the tree that the model was made with.")
    with open_rxfilename(phone_lm) as stream:
        phones = Fst.parse(stream.read(), phone_lm)
    try:
        graph = denominator_graph(context, transitions, phones)
    except UserError as error:
        raise UserError(f"{phone_lm}: {error}") from error
    normalized = normalization_fst(graph)
    _write(den, graph.to_bytes())
    _write(normalization, normalized.to_bytes())


def _write(wxfilename: str, data: bytes) -> None:
    from pykaldist.io.xfilenames import open_wxfilename

    with open_wxfilename(wxfilename) as stream:
        stream.write(data)
