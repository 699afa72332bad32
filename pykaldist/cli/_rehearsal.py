"""A tiny corpus and the verbs that take it through every stage, so that every kernel is compiled for the array types in use."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pykaldist import cli
from pykaldist.errors import UserError
from pykaldist.io.datadir import write_datadir
from pykaldist.io.tables import MatrixWriter

_WORDS = {"a": "AB", "ab": "ABC", "ba": "BA", "cab": "CAB"}
_SPEAKERS, _UTTERANCES, _DIM = 2, 12, 6
_SHORT = ["--num-iters", "3", "--max-iter-inc", "2", "--realign-iters", "1"]


def _verb(line: str, *more: str) -> None:
    """Run a verb; its output is shown only if it fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = cli.main([*line.split(), *more])
    if status != 0:
        lines = said.getvalue().splitlines() or [""]
        raise UserError(f"pykaldist {line} failed on a tiny corpus of its own: {lines[-1]}")


def _corpus(folder: Path) -> None:
    """Write the tiny corpus: speech whose phones lie in directions of their own, its dictionary, and its features in data/."""
    rng = np.random.default_rng(0)
    (folder / "dict").mkdir()
    for name, text in {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "A\nB\nC\n", "optional_silence": "SIL\n",
                       "lexicon": "<UNK> SPN\n" + "".join(f"{word} {' '.join(phones)}\n" for word, phones in _WORDS.items())}.items():
        (folder / "dict" / f"{name}.txt").write_text(text, encoding="utf-8")
    centre = {phone: rng.standard_normal(_DIM) * 4 for phone in "ABC_"}
    transcripts: dict[str, str] = {}
    feats: dict[str, np.ndarray] = {}
    for n in range(_UTTERANCES):
        words = rng.choice(list(_WORDS), size=4).tolist()
        rows = [centre[phone] * (1 + 0.3 * third) for phone in f"_{''.join(_WORDS[w] for w in words)}_" for third in range(3)
                for _ in range(int(rng.integers(2, 6)))]
        utt = f"spk{n % _SPEAKERS}-{n:02d}"
        transcripts[utt] = " ".join(words)
        feats[utt] = np.array(rows, np.float32) + rng.standard_normal((len(rows), _DIM)).astype(np.float32)
    data = write_datadir(folder / "data", {u: "none" for u in transcripts}, transcripts, {u: u[:4] for u in transcripts})
    with MatrixWriter(folder / "feats.ark", data.path / "feats.scp") as writer:
        for utt in sorted(feats):
            writer.write(utt, feats[utt])


def _language() -> None:
    _verb("prepare-lang dict <UNK> lang_tmp lang")
    _verb("train-lm --order 2 data/text lang/words.txt lm.arpa.gz")
    _verb("format-lm lang lm.arpa.gz dict/lexicon.txt lang_test")
    _verb("make-cmvn data cmvn")


def _mono() -> None:
    _verb("train-mono --totgauss 30 data lang mono", *_SHORT)
    _verb("align-si data lang mono mono_ali")


def _decode() -> None:
    _verb("mkgraph lang_test mono mono/graph")
    _verb("decode mono/graph data mono/decode")
    _verb("decode --old-lm lang_test/G.fst --new-lm lang_test/G.fst mono/graph data mono/decode_biglm")
    _verb("mkgraph-lookahead --compose-graph true lang_test mono mono/lgraph")
    _verb("decode --lookahead true mono/lgraph data mono/decode_lookahead")
    _verb("score data mono/graph mono/decode")
    _best_path_so_far()


def _best_path_so_far() -> None:
    from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
    from pykaldist.hmm.gmm.model_files import read_transition_model
    from pykaldist.io.fst import Fst

    tid2pdf = read_transition_model(Path("mono/final.mdl")).tid2pdf
    decoding = LatticeDecoder(Fst.read("mono/graph/HCLG.fst"), tid2pdf, DecoderOptions()).begin()
    decoding.advance(np.zeros((3, int(tid2pdf.max()) + 1), np.float32))
    decoding.best_path()


def _triphones() -> None:
    _verb("train-deltas 15 40 data lang mono_ali tri1", *_SHORT)
    _verb("align-si data lang tri1 tri1_ali")
    _verb("train-lda-mllt --mllt-iters 2 --dim 9 15 40 data lang tri1_ali tri2", *_SHORT)
    _verb("align-si data lang tri2 tri2_ali")


def _adapted() -> None:
    _verb("train-sat --fmllr-iters 2 --fmllr-min-count 50 15 40 data lang tri2_ali tri3", *_SHORT)
    _verb("align-fmllr --fmllr-min-count 50 data lang tri3 tri3_ali")
    _verb("mkgraph lang_test tri3 tri3/graph")
    _verb("decode --determinize-lattice false tri3/graph data tri3/states")
    _verb("est-fmllr --fmllr-min-count 50 tri3/graph data tri3 tri3/states tri3/decode")
    _verb("est-fmllr --fmllr-min-count 50 --determinize-beam 4 tri3/graph data tri3 tri3/states tri3/decode")
    _verb("rescore-lattices --transform-dir tri3/decode data tri3 tri3/states tri3/decode")


def _subspace() -> None:
    _verb("train-ubm 4 data lang mono_ali ubm")
    _verb("train-sgmm2 --num-iters 3 --num-iters-alimdl 1 --realign-iters 1 --spkvec-iters 1 8 12 data lang mono_ali ubm/final.ubm sgmm")
    _verb("mkgraph lang_test sgmm sgmm/graph")
    _verb("decode --determinize-lattice false --model sgmm/final.alimdl sgmm/graph data sgmm/states")
    _verb("est-spkvecs --aligner sgmm/final.alimdl --use-fmllr true sgmm/graph data sgmm sgmm/states sgmm/decode")


def _lattices() -> None:
    lattices, words = "ark:mono/decode/lat.*.gz", "--word-symbol-table mono/graph/words.txt"
    _verb("get-ctm data mono/graph mono/decode")
    _verb(f"lattice-best-path {words} {lattices} ark,t:words.txt ark,t:ali.txt")
    _verb(f"lattice-oracle {words} {lattices} data/text")
    _verb("lattice-to-nbest --n 3 mono/decode/lat.1.gz nbest.gz")
    _verb(f"lattice-prune --beam 4 {lattices} ark:pruned.gz")
    _verb(f"lattice-combine {lattices} {lattices} ark:combined.gz")
    _verb(f"lattice-mbr-decode {lattices} ark:mbr")


def _network() -> None:
    _verb("pack --cv-percent 20 data mono_ali store")
    _verb("pack --store-dtype uint8 data mono_ali bytes")
    for name, options in (("dnn", "--hid-layers 2 --hid-dim 64 --optimizer ngsgd --minibatch-size 32"),
                          ("blstm", "--nnet blstm --hid-layers 1 --hid-dim 8"), ("lstm", "--nnet lstm --hid-layers 1 --hid-dim 8")):
        _verb(f"train --device cpu --num-epochs 1 {options} store {name}")
    _verb("pretrain-dbn --device cpu --hid-layers 1 --hid-dim 8 --rbm-iter 1 store dbn")
    _sums_of_bf16()
    _verb("nnet-forward lstm/final.nnet data/feats.scp forward.ark")
    _of_lattices()


def _of_lattices() -> None:
    """Sequence training: lattices of the training data, and objectives of them."""
    _verb("align-nnet data lang dnn dnn_ali")
    _verb("mkgraph lang_test dnn dnn/graph")
    _verb("decode --srcdir dnn --beam 13 --lattice-beam 5 dnn/graph data denlats")
    for stage, options in (("train_mpe", "--num-iters 1"), ("train_mmi", "--num-iters 1 --boost 0.1 --minibatch-utts 3")):
        _verb(f"kaldi-form {stage} {options} --cv-percent 20 data lang dnn dnn_ali denlats {stage}")
        _verb(f"train --device cpu {' '.join(Path(stage, 'options').read_text(encoding='utf-8').split())} {stage}/store {stage}")
    from pykaldist.frames.lattice_store import LatticeStore
    from pykaldist.nnet.forward_backward_torch import levels

    levels(LatticeStore("train_mpe/denlats").lattices([0])[0])  # as on a GPU


def _chain() -> None:
    """The chain objective: its graphs, numerators of an alignment and of a lattice, and a minibatch of one sequence."""
    import torch

    from pykaldist.hmm.chain.den_graph import denominator_graph, normalization_fst
    from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
    from pykaldist.hmm.chain.supervision import (
        Normalizer,
        PhoneLattice,
        SupervisionOptions,
        frame_range,
        phone_supervision,
        supervision_of_lattice,
    )
    from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
    from pykaldist.hmm.tree.subsample import subsampled_lengths
    from pykaldist.io.fst import Fst
    from pykaldist.nnet.chain_denominator import Denominator
    from pykaldist.nnet.chain_objective import ChainOptions, chain_objective, numerator

    tree, model = read_tree("mono/tree"), read_transition_model("mono/final.mdl")
    phones = model.topology.phones[:2]
    den = denominator_graph(tree, model, estimate_phone_lm([phones], PhoneLmOptions()))
    whole = phone_supervision(phones, [30, 30], tree, model, SupervisionOptions())
    assert whole is not None
    chunk = Normalizer(normalization_fst(den)).chunk(frame_range(whole, 1, 18))
    assert chunk is not None
    labels, costs = np.array(phones, np.int32), np.zeros(3, np.float32)
    acceptor = Fst(0, np.array([np.inf, np.inf, 0.0], np.float32), np.array([0, 1, 2, 2]), labels, labels, costs[:2],
                   np.array([1, 2], np.int32))
    supervision_of_lattice(PhoneLattice(acceptor, np.array([0, 30, 60])), tree, model, SupervisionOptions())
    subsampled_lengths(np.array([30, 30]), np.array([1, 1]), 3, 0)
    pdfs = model.num_pdfs
    chain_objective(torch.zeros(18, pdfs), [numerator(chunk, pdfs)], Denominator(den, pdfs, 0.1), ChainOptions())


def _sums_of_bf16() -> None:
    """What a training step in bfloat16 sums up; --dtype bf16 itself is refused on a CPU that multiplies no such numbers."""
    import torch

    from pykaldist.frames.packed import Sequences
    from pykaldist.nnet import gemm, widening
    from pykaldist.nnet.kinds import make_nnet
    from pykaldist.nnet.lstm import LstmOptions

    x, sums = torch.ones(4, 4, dtype=torch.bfloat16), torch.zeros(4, 4)
    gemm.accumulate(sums, x, x, 1.0)
    gemm.accumulate_affine(sums[:, :3].contiguous(), sums[0], x, x, 1.0, 1.0, 1.0)
    gemm.accumulate_sums(sums[0], x, 1.0)
    gemm.affine(x, x, x[0], sums.clone())
    gemm.row_norms(x, sums.dtype)
    gemm.subtract_product(x, x, x, sums.dtype)
    widening.draw(x, sums, torch.Generator())
    model = make_nnet(LstmOptions(hid_layers=1, hid_dim=8), 4, 3, 1, "cpu", sums.dtype, x.dtype)
    model.forward(sums, sequences=Sequences([2, 2], 4))


def _pitch() -> None:
    from pykaldist.feats.pitch import PitchExtractor

    PitchExtractor().extract("noise", np.random.default_rng(0).standard_normal(16000))


def _ivectors() -> None:
    _verb("train-ivector-pca --dim 4 --subsample 1 data pca")
    _verb("train-ivector-ubm --online-cmvn-config pca/online_cmvn.conf data 3 pca ubm")
    _verb("train-ivector-full-ubm --num-iters 1 --subsample 1 --num-gselect 2 data ubm full_ubm")
    _verb("train-ivector-extractor --ivector-dim 3 --num-iters 1 --subsample 1 --posterior-scale 1 data ubm extractor")
    _verb("extract-ivectors data extractor ivectors")


#: What is done, in the order of a recipe, so that a recipe that starts meanwhile finds what it needs first.
STEPS = {"language": _language, "monophones": _mono, "decoding": _decode, "network": _network, "triphones": _triphones,
         "adaptation": _adapted, "subspace models": _subspace, "lattices": _lattices, "pitch": _pitch, "chain": _chain,
         "i-vectors": _ivectors}


@contextlib.contextmanager
def corpus(folder: Path) -> Iterator[None]:
    """Make the tiny corpus in `folder`, the working directory for the block, in which nothing draws bars."""
    before, bars = Path.cwd(), os.environ.pop("PYKALDIST_PROGRESS_FD", None)
    os.chdir(folder)
    try:
        _corpus(folder)
        yield
    finally:
        os.chdir(before)
        if bars is not None:
            os.environ["PYKALDIST_PROGRESS_FD"] = bars
