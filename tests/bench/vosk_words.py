"""The words of the Vosk recogniser beside those of our decoder, from one exported chain model: same utterances, word error rates.

    tests/bench/run.sh vosk_words --python .../bin/python egs/an4/s5/data/test vosk-model [--beam 15]

`--python` is one that has the package vosk (pip install vosk==0.3.45), `vosk-model` what steps/export_vosk.sh has written, the data
directory's wav.scp names files. Our decoder takes the exported files; it multiplies the costs of the graph by 0.9, as Vosk does. Rows are
ours by the best path; by least expected word errors over the lattice, which is Vosk's way; and both with one spelling for words that sound
alike. Differing utterances are listed, those of the best path first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import kaldialign
import numpy as np
import torch

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice
from pykaldist.decode.mbr import mbr_decode
from pykaldist.decode.paths import best_path
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.run import Nnet3Forward

GRAPH_SCALE = 0.9  # by which Vosk multiplies the costs of the graph in its lattices
SUBSAMPLING = 3
Words = dict[str, list[str]]


def of_vosk(python: Path, model: Path, samples: dict[str, np.ndarray]) -> Words:
    """The words that Vosk finds."""
    script = Path(__file__).resolve().parents[1] / "decode/recognise_with_vosk.py"
    with tempfile.TemporaryDirectory() as folder:
        for utt, one in samples.items():
            one.astype(np.int16).tofile(Path(folder) / f"{utt}.raw")
        done = subprocess.run([python, script, model, folder], capture_output=True, text=True, check=True)
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def of_ours(model: Path, samples: dict[str, np.ndarray], options: DecoderOptions) -> tuple[Words, Words]:
    """The words of our decoder: of the best path, and of least expected errors."""
    system, words = Nnet3Model.read(model / "am/final.mdl"), SymbolTable.read(model / "graph/words.txt")
    decoder = LatticeDecoder(Fst.read(model / "graph/HCLG.fst"), system.transition_model.tid2pdf, options)
    extractor, forward = Extractor(read_conf(MfccOptions, model / "conf/mfcc.conf")), Nnet3Forward(system.nnet, subsampling=SUBSAMPLING)
    best, least = Words(), Words()
    for utt, one in samples.items():
        lattice = decoder.decode(forward(extractor.extract([(utt, one)])[0]))
        if lattice is None:
            raise SystemExit(f"{utt}: nothing was found")
        best[utt], least[utt] = both_ways(lattice, words, options.lattice_beam)
    return best, least


def both_ways(lattice: Lattice, words: SymbolTable, beam: float) -> tuple[list[str], list[str]]:
    """The words of a lattice's best path, and those of least expected errors."""
    first = best_path(lattice, 1.0, GRAPH_SCALE).words
    found = mbr_decode(determinize(lattice, 1.0, beam), 1.0, GRAPH_SCALE, words=first).words  # of ties what `first` has
    return [words.symbol(word) for word in first], [words.symbol(word) for word in found]


def spellings(lexicon: Path) -> dict[str, str]:
    """For each word of a lexiconp.txt the first of those that have its pronunciation."""
    first: defaultdict[tuple[str, ...], str] = defaultdict(str)
    return {line.split()[0]: first.setdefault(tuple(line.split()[2:]), line.split()[0]) for line in lexicon.read_text().splitlines()}


def compare(data: DataDir, utts: Iterable[str], vosk: Words, ways: dict[str, Words], lexicon: Path | None) -> None:
    """Print the word error rates of Vosk and of our `ways`, and in how many utterances a way has the words of Vosk."""
    utts, one = list(utts), spellings(lexicon) if lexicon else {}
    total = sum(len(data.text[utt]) for utt in utts)

    def errors(found: Words) -> int:
        return sum(kaldialign.edit_distance(list(data.text[utt]), found[utt])["total"] for utt in utts)

    def spelt(words: list[str]) -> list[str]:
        return [one.get(word, word) for word in words]

    print(f"Vosk: {errors(vosk)} errors, {100 * errors(vosk) / total:.2f} %")
    for name, ours in ways.items():
        same, alike = (sum(way(ours[utt]) == way(vosk[utt]) for utt in utts) for way in (list, spelt))
        print(f"ours, {name}: {errors(ours)} errors, {100 * errors(ours) / total:.2f} %; the words of Vosk in {same} of {len(utts)} "
              f"utterances, {100 * same / len(utts):.1f} %; words that sound alike taken for one, {alike}")
        for utt in utts:
            if ours[utt] != vosk[utt]:
                print(f"  {utt}: ours {' '.join(ours[utt])}; Vosk {' '.join(vosk[utt])}; said {' '.join(data.text[utt])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lexicon", type=Path, help="lexiconp.txt: the pronunciations, for words that sound alike")
    for name, default in (("beam", 15.0), ("lattice-beam", 8.0), ("max-active", 7000), ("min-active", 200)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = DataDir(args.data)
    samples = {utt: read_audio(data.wav_scp[utt])[0] for utt in data.utterances()}
    vosk = of_vosk(args.python, args.model, samples)
    best, least = of_ours(args.model, samples, DecoderOptions(args.beam, args.lattice_beam, args.max_active, args.min_active, 1.0))
    compare(data, samples, vosk, {"best path": best, "least expected errors": least}, args.lexicon)


if __name__ == "__main__":
    main()
