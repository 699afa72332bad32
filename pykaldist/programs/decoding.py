"""Programs that decode features with GMM systems, or log-likelihoods of a network, on a decoding graph."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice_tables import write_compact, write_state_level
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.archive import read_value
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.table_streams import TableWriter, read_table, write_value
from pykaldist.io.xfilenames import open_rxfilename
from pykaldist.programs.command import say
from pykaldist.programs.models import read_model, read_transition_model

NO_LIMIT = 2147483647  # Kaldi's default of --max-active
NOWHERE = "ark:/dev/null"


def _graph(name: str) -> Fst:
    with open_rxfilename(name) as stream:
        return Fst.parse(stream.read(), name)


def _gmm_scores(model: str) -> tuple[TransitionModel, Callable[[np.ndarray], np.ndarray]]:
    transitions, gmm = read_model(model)

    def scores(feats: np.ndarray, gmm: AmDiagGmm = gmm) -> np.ndarray:
        if feats.ndim != 2 or feats.shape[1] != gmm.dim:
            raise UserError(f"features of shape {feats.shape}, where {model} takes {gmm.dim} dimensions")
        return gmm.loglikes(feats)

    return transitions, scores


def _decode(transitions: TransitionModel, graph: str, scores: Callable[[np.ndarray], np.ndarray], feats: str, lattices: str, words: str,
            alignments: str, options: DecoderOptions, allow_partial: bool, word_symbol_table: str, best_only: bool = False) -> int:
    """Decode a table of features; lattices, words and alignments go to their wspecifiers, the log has words and likelihoods."""
    decoder = LatticeDecoder(_graph(graph), transitions.tid2pdf, options)
    symbols = SymbolTable.read(word_symbol_table) if word_symbol_table else None
    done = failed = frames = 0
    total, begin = 0.0, time.perf_counter()
    compact = options.determinize_lattice or best_only
    with TableWriter(lattices or NOWHERE, write_compact if compact else write_state_level) as out, \
            TableWriter(words or NOWHERE, write_value) as text, TableWriter(alignments or NOWHERE, write_value) as ids:
        for utt, x in read_table(feats, read_value):
            try:
                lattice = decoder.decode(scores(x))
            except UserError as error:
                raise UserError(f"{feats}, {utt}: {error}") from error
            if lattice is None or not (lattice.reached_final or allow_partial):
                failed += 1
                say(f"WARNING: {utt} is left out: " + ("no path survived the beam" if lattice is None else
                                                       "no final state was reached; --allow-partial=true takes what there is"))
                continue
            if not lattice.reached_final:
                say(f"WARNING: {utt}: no final state was reached; the output is partial")
            path = best_path(lattice, options.acwt)
            done, frames = done + 1, frames + len(x)
            score = -(path.graph + options.acwt * path.acoustic)
            total += score
            say(" ".join([utt, *(symbols.symbol(w) if symbols else str(w) for w in path.words)]))
            say(f"Log-like per frame for utterance {utt} is {score / max(len(x), 1):.6g} over {len(x)} frames.")
            text.write(utt, np.array(path.words, np.int32))
            ids.write(utt, path.transition_ids.astype(np.int32))
            if best_only:
                out.write(utt, path.lattice())
            else:
                out.write(utt, determinize(lattice, options.acwt, options.lattice_beam) if compact else lattice)
    seconds = time.perf_counter() - begin
    say(f"Done {done} utterances, failed for {failed}; real-time factor assuming 100 frames/sec is {100 * seconds / max(frames, 1):.4f}; "
        f"overall log-likelihood per frame is {total / max(frames, 1):.5f} over {frames} frames.")
    return 0 if done else 1


def compile_graph(tree: str, model: str, lexicon: str, grammar: str, graph: str, *, transition_scale: float = 1.0,
                  self_loop_scale: float = 1.0, read_disambig_syms: str = "", nonterm_phones_offset: int = -1) -> None:
    """Make a decoding graph HCLG of a lexicon and a grammar, as utils/mkgraph.sh does.

    Usage: compile-graph [options] <tree> <model> <L_disambig.fst> <G.fst> <HCLG.fst>
    e.g.: compile-graph --read-disambig-syms=data/lang/phones/disambig.int tree final.mdl L_disambig.fst G.fst HCLG.fst

    Options:
      --transition-scale: scale of transition probabilities other than self-loops' (default: 1)
      --self-loop-scale: scale of the self-loops' (default: 1; utils/mkgraph.sh takes 0.1)
      --read-disambig-syms: file of the disambiguation symbols' numbers, phones/disambig.int
      --nonterm-phones-offset: for grammars of several parts, which are not here
    """
    from pykaldist.decode.hclg import GraphOptions, decoding_graph
    from pykaldist.hmm.tree.tree import ContextDependency
    from pykaldist.io.xfilenames import open_wxfilename
    from pykaldist.programs.models import kaldi_reader

    if nonterm_phones_offset >= 0:
        raise UserError("--nonterm-phones-offset: graphs of grammars of several parts are not made here.")
    symbols: list[int] = []
    if read_disambig_syms:
        with open_rxfilename(read_disambig_syms) as stream:
            symbols = [int(word) for word in stream.read().split()]
    hclg, _ = decoding_graph(_graph(lexicon), _graph(grammar), symbols, ContextDependency.read(kaldi_reader(tree)),
                             read_transition_model(model), GraphOptions(self_loop_scale, transition_scale))
    with open_wxfilename(graph) as out:
        out.write(hclg.to_bytes())
    say(f"{hclg.num_states} states, {hclg.num_arcs} arcs in {graph}")


def gmm_latgen_faster(model: str, graph: str, feats: str, lattices: str, words: str = "", alignments: str = "", *,
                      acoustic_scale: float = 0.1, allow_partial: bool = False, beam: float = 16.0, lattice_beam: float = 10.0,
                      max_active: int = NO_LIMIT, min_active: int = 200, prune_interval: int = 25, beam_delta: float = 0.5,
                      determinize_lattice: bool = True, max_mem: int = 0, minimize: bool = False, phone_determinize: bool = True,
                      word_determinize: bool = True, word_symbol_table: str = "") -> int:
    """Decode features with a GMM system, to lattices.

    Usage: gmm-latgen-faster [options] <model> <graph> <feats-rspecifier> <lattice-wspecifier> [<words-wspecifier> [<alignments>]]
    e.g.: gmm-latgen-faster --beam=13 final.mdl HCLG.fst "ark,s,cs:apply-cmvn ... |" "ark:|gzip -c > lat.1.gz"

    Options:
      --acoustic-scale: scale of log-likelihoods (default: 0.1)
      --allow-partial: take what there is where no final state was reached (default: false)
      --beam: beam of the search (default: 16)
      --lattice-beam: paths worse than the best by more are left out (default: 10)
      --max-active: most states active in a frame (default: any number)
      --min-active: least states active in a frame (default: 200)
      --prune-interval: frames between prunings (default: 25)
      --beam-delta: added to the beam where --max-active rules (default: 0.5)
      --determinize-lattice: write lattices determinised on words, else of states (default: true)
      --max-mem: has no effect
      --minimize: has no effect
      --phone-determinize: has no effect
      --word-determinize: has no effect
      --word-symbol-table: words.txt, for the log
    """
    options = DecoderOptions(beam, lattice_beam, max_active, min_active, acoustic_scale, prune_interval, determinize_lattice, beam_delta)
    transitions, scores = _gmm_scores(model)
    return _decode(transitions, graph, scores, feats, lattices, words, alignments, options, allow_partial, word_symbol_table)


def latgen_faster_mapped(model: str, graph: str, loglikes: str, lattices: str, words: str = "", alignments: str = "", *,
                         acoustic_scale: float = 0.1, allow_partial: bool = False, beam: float = 16.0, lattice_beam: float = 10.0,
                         max_active: int = NO_LIMIT, min_active: int = 200, prune_interval: int = 25, beam_delta: float = 0.5,
                         determinize_lattice: bool = True, max_mem: int = 0, minimize: bool = False, phone_determinize: bool = True,
                         word_determinize: bool = True, word_symbol_table: str = "") -> int:
    """Decode log-likelihoods of pdfs, such as a network's, to lattices.

    Usage: latgen-faster-mapped [options] <model> <graph> <loglikes-rspecifier> <lattice-wspecifier> [<words-wspecifier> [<alignments>]]
    e.g.: nnet-forward ... ark:- | latgen-faster-mapped final.mdl HCLG.fst ark:- "ark:|gzip -c > lat.1.gz"

    Options:
      --acoustic-scale: scale of log-likelihoods (default: 0.1)
      --allow-partial: take what there is where no final state was reached (default: false)
      --beam: beam of the search (default: 16)
      --lattice-beam: paths worse than the best by more are left out (default: 10)
      --max-active: most states active in a frame (default: any number)
      --min-active: least states active in a frame (default: 200)
      --prune-interval: frames between prunings (default: 25)
      --beam-delta: added to the beam where --max-active rules (default: 0.5)
      --determinize-lattice: write lattices determinised on words, else of states (default: true)
      --max-mem: has no effect
      --minimize: has no effect
      --phone-determinize: has no effect
      --word-determinize: has no effect
      --word-symbol-table: words.txt, for the log
    """
    options = DecoderOptions(beam, lattice_beam, max_active, min_active, acoustic_scale, prune_interval, determinize_lattice, beam_delta)
    return _decode(read_transition_model(model), graph, lambda x: x, loglikes, lattices, words, alignments, options, allow_partial,
                   word_symbol_table)


def gmm_decode_faster(model: str, graph: str, feats: str, words: str, alignments: str = "", lattices: str = "", *,
                      acoustic_scale: float = 0.1, allow_partial: bool = True, beam: float = 16.0, max_active: int = NO_LIMIT,
                      min_active: int = 20, beam_delta: float = 0.5, hash_ratio: float = 2.0, word_symbol_table: str = "") -> int:
    """Decode features with a GMM system, to words.

    Usage: gmm-decode-faster [options] <model> <graph> <feats-rspecifier> <words-wspecifier> [<alignments> [<lattice-wspecifier>]]
    e.g.: gmm-decode-faster --beam=13 final.mdl HCLG.fst ark:feats.ark ark,t:1.tra ark:1.ali

    Options:
      --acoustic-scale: scale of log-likelihoods (default: 0.1)
      --allow-partial: take what there is where no final state was reached (default: true)
      --beam: beam of the search (default: 16)
      --max-active: most states active in a frame (default: any number)
      --min-active: least states active in a frame (default: 20)
      --beam-delta: added to the beam where --max-active rules (default: 0.5)
      --hash-ratio: has no effect
      --word-symbol-table: words.txt, for the log
    """
    options = DecoderOptions(beam, min(beam, 1.0), max_active, min_active, acoustic_scale, beam_delta=beam_delta)
    transitions, scores = _gmm_scores(model)
    return _decode(transitions, graph, scores, feats, lattices, words, alignments, options, allow_partial, word_symbol_table, True)


def gmm_decode_simple(model: str, graph: str, feats: str, words: str, alignments: str = "", lattices: str = "", *,
                      acoustic_scale: float = 0.1, allow_partial: bool = True, beam: float = 16.0, word_symbol_table: str = "") -> int:
    """Decode features with a GMM system, to words, by a beam alone.

    Usage: gmm-decode-simple [options] <model> <graph> <feats-rspecifier> <words-wspecifier> [<alignments> [<lattice-wspecifier>]]
    e.g.: gmm-decode-simple --beam=20 final.mdl HCLG.fst ark:feats.ark ark,t:1.tra

    Options:
      --acoustic-scale: scale of log-likelihoods (default: 0.1)
      --allow-partial: take what there is where no final state was reached (default: true)
      --beam: beam of the search (default: 16)
      --word-symbol-table: words.txt, for the log
    """
    return gmm_decode_faster(model, graph, feats, words, alignments, lattices, acoustic_scale=acoustic_scale, allow_partial=allow_partial,
                             beam=beam, min_active=0, word_symbol_table=word_symbol_table)
