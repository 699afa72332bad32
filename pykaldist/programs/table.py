"""The table of programs: each program's file of this folder. src/bin, `pykaldist NAME`, the pages and the tests are made of it.

A program's function has its name, with `_` for `-` and `.`, in that file.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILES = {
    "copies": "copy-feats copy-int-vector feat-to-dim feat-to-len matrix-dim",
    "matrices": "copy-matrix copy-vector matrix-sum matrix-sum-rows vector-scale vector-sum",
    "features": "add-deltas apply-cmvn apply-cmvn-sliding compute-cmvn-stats modify-cmvn-stats paste-feats select-feats "
                "splice-feats subsample-feats transform-feats",
    "audio": "compute-fbank-feats compute-mfcc-feats compute-plp-feats extract-segments wav-copy wav-to-duration",
    "models": "am-info copy-transition-model copy-tree gmm-copy gmm-info hmm-info sgmm2-copy sgmm2-info tree-info",
    "chain": "chain-est-phone-lm chain-make-den-fst",
    "alignments": "ali-to-pdf ali-to-phones ali-to-post analyze-counts copy-post feat-to-post paste-post show-alignments",
    "decoding": "compile-graph gmm-decode-faster gmm-decode-simple gmm-latgen-faster latgen-faster-mapped",
    "lattices": "lattice-1best lattice-add-penalty lattice-best-path lattice-combine lattice-copy lattice-equivalent lattice-prune "
                "lattice-copy-backoff lattice-interp lattice-scale lattice-to-nbest",
    "word_lattices": "lattice-align-words lattice-align-words-lexicon lattice-mbr-decode lattice-to-ctm-conf nbest-to-ctm",
    "word_paths": "linear-to-nbest nbest-to-prons",
    "language_models": "arpa-to-const-arpa lattice-lmrescore lattice-lmrescore-const-arpa",
    "nnet1": "cmvn-to-nnet nnet-concat nnet-copy nnet-info nnet-initialize rbm-convert-to-nnet transf-to-nnet",
    "nnet3": "nnet3-am-copy nnet3-am-info nnet3-am-init nnet3-average nnet3-compute nnet3-copy nnet3-info nnet3-init",
    "nnet_forward": "nnet-forward",
    "vad": "compute-vad select-voiced-frames",
    "prons": "phones-to-prons prons-to-wordali",
    "nnet_train": "nnet-train-frmshuff rbm-train-cd1-frmshuff",
    "devices": "cuda-compiled",
    "scoring": "align-text compute-wer compute-wer-bootci",
    "score_details": "wer_ops_details.pl wer_per_spk_details.pl wer_per_utt_details.pl",
    "openfst": "fstarcsort fstcompile fstcompose fstconnect fstdeterminize fstinfo fstinvert fstminimize fstprint fstproject "
               "fstreverse fstrmepsilon fstshortestpath fstsymbols",
    "fstbin": "arpa2fst fstaddselfloops fstcopy fstdeterminizestar fstisstochastic fstminimizeencoded fstpushspecial fstrmepslocal "
              "fstrmsymbols fsttablecompose",
    "srilm": "change-lm-vocab compute-best-mix ngram ngram-count",
    "kenlm": "build_binary lmplz",
    "irstlm": "prune-lm",
    "kaldi_lm": "get_word_map.pl prune_lm.sh train_lm.sh",
    "g2p": "g2p.py phonetisaurus-align phonetisaurus-apply phonetisaurus-arpa2wfst",
    "pocolm": "format_arpa_lm.py get_data_prob.py prune_lm_dir.py train_lm.py",
}
PROGRAMS: dict[str, str] = {name: file for file, names in FILES.items() for name in names.split()}


def function_name(name: str) -> str:
    """The name of a program's function."""
    return name.replace("-", "_").replace(".", "_")


def load(name: str) -> Callable[..., Any]:
    """The function of a program, imported now."""
    from importlib import import_module

    return getattr(import_module(f"pykaldist.programs.{PROGRAMS[name]}"), function_name(name))
