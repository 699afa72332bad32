"""Preparation of chain training: everything that it reads, made in one folder from data, a tree directory and an alignment.

    <exp>/phone_lm.fst, den.fst, normalization.fst, tree, 0.trans_mdl, phones.txt   as Kaldi's steps/nnet3/chain/train.py leaves them
    <exp>/store/train, dev                    features, packed (`frames/store.py`)
    <exp>/store/train_chunks, dev_chunks      their chunks with numerators (`frames/chunk_store.py`)
    <exp>/final.ie.id                         which extractor the i-vectors are of, where the network takes some
    <exp>/online_cmvn, global_cmvn.stats      where the network takes features with online CMVN
    <exp>/configs/lda.mat                     where <exp>/configs/init.config asks for it (`input_transform.py`)
    <exp>/0.raw                               the network before training, made of <exp>/configs/final.config
    <exp>/store/prepared.json                 of which inputs and with which options; written last

The phone language model is made of the phones in the tree directory's alignment. The numerators are made of lattices or of an alignment at
the input frame rate, or, where there are none, of the alignment of the tree directory, whose frames are output frames. Flat start, where
both are made of transcripts alone, is in `flat_start.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pykaldist.errors import MADE, UserError
from pykaldist.feats.deltas import DeltaOptions
from pykaldist.feats.ivector_dir import EXTRACTOR_ID, IvectorDir
from pykaldist.feats.pipeline import GLOBAL_STATS, ONLINE_CMVN, FeaturePipeline, OnlineCmvn, named_conf, stats_of_all
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.holdout import HELD_OUT, HELD_OUT_PERCENT, held_out_percent, hold_out, versions
from pykaldist.frames.store import FrameStore, Unlabelled, pack
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, archives
from pykaldist.hmm.chain.den_graph import denominator_graph, normalization_fst
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
from pykaldist.hmm.chain.supervision import Normalizer, PhoneLattice
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree, write_model
from pykaldist.io import provenance
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lang import check_same_phones
from pykaldist.io.scratch import StoredValues
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.options import option
from pykaldist.progress import progress
from pykaldist.train.chain_data import (
    AlignedChunks,
    AlignedPhones,
    AlignedSupervisions,
    ChunkMaker,
    ChunkOptions,
    LatticeSupervisions,
    Supervisions,
    System,
)
from pykaldist.train.chain_experiment import DEN, TRANSITIONS
from pykaldist.train.input_transform import LDA, PRIOR_SCALE, LabelledUtterance, asks_for_transform, write_input_transform

PREPARED = "prepared.json"
NO_DELTAS = "--delta-order=0"


@dataclass
class PreparationOptions(ChunkOptions):
    """How the data of chain training is made."""

    cmvn_opts: str = option("--norm-means=false --norm-vars=false", "CMVN as a string of options")
    online_cmvn: bool = option(False, "CMVN by what was heard of the speaker until each frame")
    alignment_subsampling_factor: int = option(3, "frames of the alignment to an output frame, where it is not the tree directory's")
    cv_utts: int = option(0, f"utterances held out, about; 0: {HELD_OUT_PERCENT} %, at most {HELD_OUT}")
    online_ivector_dir: str = option("", "directory of online i-vectors (none)")
    srand: int = option(0, "seed of the network's initial weights")
    store_dtype: str = option("float32", "stored features", ("float32", "float16"))


class Preparation:
    """Makes what chain training in `exp` reads.

    `ali` is an alignment directory, that of the tree where there is no other; or, where `read_lattices` is given, which reads it, one of
    lattices.
    """

    def __init__(self, data: Path, tree_dir: Path, ali: Path, exp: Path, options: PreparationOptions, phone_lm: PhoneLmOptions,
                 read_lattices: Callable[[Path], Iterable[tuple[str, PhoneLattice]]] | None = None) -> None:
        for folder, name in ((data, "feats.scp"), (tree_dir, "tree"), (tree_dir, "final.mdl"), (exp, "configs/final.config")):
            if not (folder / name).is_file():
                raise UserError(f"{folder / name} does not exist; {MADE}.")
        check_same_phones(tree_dir, ali, "make the tree of an alignment with the same language directory (steps/nnet3/chain/build_tree.sh)")
        self.data, self.tree_dir, self.ali_dir, self.exp = DataDir(data), tree_dir, ali, exp
        self.options, self.lm_options, self.read_lattices = options, phone_lm, read_lattices
        self.store = exp / "store"
        self.ivectors = IvectorDir(options.online_ivector_dir) if options.online_ivector_dir else None

    def run(self) -> bool:
        """Make everything, unless it is there; returns whether something was made."""
        inputs = self._inputs()
        path = self.store / PREPARED
        if path.is_file() and path.read_text(encoding="utf-8") == inputs:
            return False
        path.unlink(missing_ok=True)
        self.store.mkdir(parents=True, exist_ok=True)
        self._make()
        write_text(path, inputs)
        return True

    def _inputs(self) -> str:
        """Everything that the result depends on, as JSON."""
        tables = [*self.data.feats.archives(), *(self.data.cmvn.archives() if self.data.has("cmvn.scp") else [])]
        made = {LDA, PRIOR_SCALE} if asks_for_transform(self.exp / "configs") else {PRIOR_SCALE}
        configs = sorted(path for path in (self.exp / "configs").iterdir() if path.is_file() and path.name not in made)
        files = [*provenance.of_archives(tables), self.data.path / "feats.scp", self.tree_dir / "tree", self.tree_dir / "final.mdl",
                 *self._sources(), *configs]
        if self.options.online_cmvn and (conf := named_conf(self.options.cmvn_opts)):
            files.append(Path(conf))
        if self.ivectors is not None:
            files += [self.ivectors.path / "ivector_online.scp", *provenance.of_archives(self.ivectors.archives())]
        return json.dumps({"options": dataclasses.asdict(self.options), "phone_lm": dataclasses.asdict(self.lm_options),
                           "inputs": {self._name(path): provenance.checksum(path) for path in files}}, indent=1) + "\n"

    def _name(self, path: Path) -> str:
        """A file's path; of one in the experiment's folder counted from there, so that a copy of the folder has what it needs."""
        return str(path.relative_to(self.exp)) if path.is_relative_to(self.exp) else str(path)

    def _sources(self) -> list[Path]:
        """The files that the phone language model and the numerators are made of."""
        numerators = archives(self.ali_dir, "lat" if self.read_lattices else "ali")
        return [*archives(self.tree_dir, "ali"), *numerators, self.ali_dir / "final.mdl"]

    def _make(self) -> None:
        tree, model = read_tree(self.tree_dir / "tree"), read_transition_model(self.tree_dir / "final.mdl")
        system = System(tree, model, self.options)
        den, normalization = self._graphs(system)
        self._describe_cmvn()
        for folder in (self.exp, self.store):
            copy_file(self.tree_dir / "tree", folder / "tree")
            write_model(folder / TRANSITIONS, model)
            den.write(folder / DEN)
            if (self.tree_dir / "phones.txt").is_file():
                copy_file(self.tree_dir / "phones.txt", folder / "phones.txt")
        (self.exp / EXTRACTOR_ID).unlink(missing_ok=True)
        if self.ivectors is not None and (self.ivectors.path / EXTRACTOR_ID).is_file():
            copy_file(self.ivectors.path / EXTRACTOR_ID, self.exp / EXTRACTOR_ID)
        maker = self._maker(system, Normalizer(normalization, 1.0 - self.options.lm_scale))
        for name, utts in self._parts().items():
            store = self._pack(name, utts, model.num_pdfs)
            manifest = maker(store).pack(self.store / f"{name}_chunks")
            print(f"{self.store / name}: {store.manifest.num_utts} utterances, {len(store)} frames of {store.manifest.dim}; "
                  f"{manifest.num_chunks} chunks")
            if manifest.skipped:
                first = next(iter(manifest.skipped))
                print(f"WARNING: {len(manifest.skipped)} utterances or chunks of {name} are left out, such as {first}: "
                      f"{manifest.skipped[first]}; {self.store / f'{name}_chunks/manifest.json'} lists them")
        self._network(model.num_pdfs)

    def _describe_cmvn(self) -> None:
        """Write the files by which decoding and `_pack` know the network's CMVN; statistics of all data fill up those of a speaker."""
        for folder in (self.exp, self.store):
            write_text(folder / "cmvn_opts", f"{self.options.cmvn_opts}\n")
            if not self.options.online_cmvn:
                (folder / ONLINE_CMVN).unlink(missing_ok=True)
                continue
            with atomic_open(folder / GLOBAL_STATS, "wb") as stream:
                KaldiWriter(stream, binary=False).matrix(stats_of_all(self.data))
            write_text(folder / ONLINE_CMVN, "")

    def _maker(self, system: System, normalizer: Normalizer) -> Callable[[FrameStore], ChunkMaker]:
        """What makes the chunks of a store."""
        supervisions = self._supervisions(system)
        return lambda store: AlignedChunks(store, supervisions, system, normalizer, self.ivectors)

    def _phones(self) -> AlignedPhones:
        """The phones of the tree directory's alignment."""
        return AlignedPhones(AlignmentDir(self.tree_dir, self.store), self.options.frame_subsampling_factor)

    def _phone_lm(self) -> Fst:
        """Make the phone language model."""
        return estimate_phone_lm(self._phones().sequences(), self.lm_options)

    def _supervisions(self, system: System) -> Supervisions:
        """The numerators of lattices, of an alignment, or of the tree directory's."""
        if self.read_lattices is not None:
            lattices = StoredValues(PhoneLattice.parse, lambda stream, lattice: lattice.write(stream), self.store)
            for utt, lattice in self.read_lattices(self.ali_dir):
                lattices.add(utt, lattice)
            return LatticeSupervisions(lattices, self.ali_dir, system)
        if self.ali_dir == self.tree_dir:
            return AlignedSupervisions(self._phones(), system)
        step = self.options.frame_subsampling_factor // self.options.alignment_subsampling_factor
        return AlignedSupervisions(AlignedPhones(AlignmentDir(self.ali_dir, self.store), step), system)

    def _graphs(self, system: System) -> tuple[Fst, Fst]:
        """Make phone language model, denominator graph and normalisation FST."""
        phone_lm = self._phone_lm()
        den = denominator_graph(system.tree, system.model, phone_lm)
        normalization = normalization_fst(den)
        phone_lm.write(self.exp / "phone_lm.fst")
        normalization.write(self.exp / "normalization.fst")
        print(f"{self.exp / DEN}: {den.num_states} states, {den.num_arcs} arcs; {system.model.num_pdfs} pdfs")
        return den, normalization

    def _parts(self) -> dict[str, list[str]]:
        """The utterances to train on, and those held out; perturbed copies of the latter are in neither."""
        utts = self.data.utterances()
        held = hold_out(self.data, held_out_percent(self.data, self.options.cv_utts), self.options.seed)
        kept_out = versions(self.data, held)
        return {"train": [utt for utt in utts if not kept_out(utt)], "dev": [utt for utt in utts if utt in held]}

    def _pack(self, name: str, utts: list[str], num_pdfs: int) -> FrameStore:
        """Pack the features of utterances."""
        if self.options.online_cmvn:
            pipeline = FeaturePipeline(deltas=DeltaOptions(0), online=OnlineCmvn.from_dir(self.exp))
        else:
            pipeline = FeaturePipeline.from_options(self.options.cmvn_opts, NO_DELTAS)
        source = Unlabelled(lambda utt: pipeline.apply(self.data, utt), None, num_pdfs)
        pack(progress(utts, f"packing {name}", unit="utt"), source.features, source.pdfs, num_pdfs, self.store / name,
             self.options.store_dtype, {"data": str(self.data.path), "cmvn_opts": self.options.cmvn_opts})
        return FrameStore(self.store / name)

    def _labelled(self) -> Iterator[LabelledUtterance]:
        """The utterances to train on with the pdfs of their numerators: in each output frame, all in equal parts."""
        store = FrameStore(self.store / "train")
        chunks, factor = ChunkStore(self.store / "train_chunks", store), self.options.frame_subsampling_factor
        for utt in np.unique(chunks.utt):
            begin, end = store.offsets[utt], store.offsets[utt + 1]
            own, ivector = np.flatnonzero(chunks.utt == utt), chunks.ivectors(np.flatnonzero(chunks.utt == utt)[:1])
            outputs, pdfs, weights = [], [], []
            for chunk, numerator in zip(own, chunks.numerators(own), strict=True):
                place = chunks.first[chunk] // factor + numerator.frame
                there = place < -(-(end - begin) // factor)
                outputs.append(place[there])
                pdfs.append(numerator.transition_id[there])
                weights.append((1.0 / np.bincount(numerator.frame)[numerator.frame])[there])
            yield LabelledUtterance(np.array(store.feats[begin:end], np.float32), None if ivector is None else ivector[0],
                                    np.concatenate(outputs), np.concatenate(pdfs), np.concatenate(weights))

    def _network(self, num_pdfs: int) -> None:
        """Make the network before training."""
        configs = self.exp / "configs"
        if asks_for_transform(configs):
            frames = write_input_transform(configs, self._labelled(), num_pdfs, self.options.frame_subsampling_factor)
            print(f"{configs / LDA}: made of {frames} output frames")
        generator = torch.Generator().manual_seed(self.options.srand)
        text = (configs / "final.config").read_text(encoding="utf-8")
        nnet = initialised(text.splitlines(), generator, ".", str(configs / "final.config"))
        nnet.write(self.exp / "0.raw")
