"""Damaged files of every format through the reader of the house: an object or a sentence, in bounded time and memory.

Each sample is a sound file. It is cut, given another magic number, huge or negative lengths, the wrong byte order, random bits and bytes,
and read with a limit on time and address space. Whatever is raised must be a UserError that names the file.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import resource
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np
import pytest
import soundfile
import torch

from pykaldist.cli import main
from pykaldist.decode.arpa import grammar
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.decode.prons import read_prons
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import SpeakerTransforms, read_matrix, write_speaker_transforms
from pykaldist.frames.lattice_store import LatticeStore, pack_lattices
from pykaldist.frames.store import FrameStore, pack
from pykaldist.hmm.alignments.alignment_dir import read_archives
from pykaldist.hmm.alignments.graphs import Lexicon
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.model_files import read_model, read_tree, write_model, write_tree
from pykaldist.hmm.import_ali.sources import open_source
from pykaldist.hmm.import_ali.sources.base import SourceOptions
from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.audio import read_audio
from pykaldist.io.corpora.table.formats import read_transcripts
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.dictdir import DictDir
from pykaldist.io.fst import Fst
from pykaldist.io.fst import pack as pack_fst
from pykaldist.io.lang import LangDir, SymbolTable
from pykaldist.io.posteriors import Posterior, read_posteriors, write_posteriors
from pykaldist.io.tables import MatrixWriter, read_archive, read_int_vectors, write_int_vectors, write_matrix
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import Nnet1, Nnet1Component
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import parse_node
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.priors import read_counts, write_counts
from pykaldist.score.cleanup import edits_of_jobs

SECONDS, BYTES = 5, 1 << 30
DAMAGES = 16  # of each sample


@dataclass
class Sample:
    """A file, and what reads it (with files beside it, where they belong together)."""

    path: Path
    read: Callable[[], object]


def small_lattice() -> Lattice:
    rng = np.random.default_rng(0)
    return Lattice.from_arcs(np.array([0, 2, 4, 5, 5]), np.array([3, 4, 5, 6, 7], np.int32), np.array([1, 2, 0, 3, 1], np.int32),
                             rng.random(5).astype(np.float32), rng.random(5).astype(np.float32), np.array([1, 2, 2, 3, 3], np.int32),
                             np.array([np.inf, np.inf, np.inf, 1], np.float32))


def state_level_bytes(lattice: Lattice) -> bytes:
    return pack_fst("lattice4", 0, np.stack([lattice.final, lattice.final_acoustic], 1), lattice.offset,
                    np.stack([lattice.transition_ids, lattice.word], 1), np.stack([lattice.graph, lattice.acoustic], 1), lattice.target)


def affine(out: int, into: int) -> Nnet1Component:
    rng = np.random.default_rng(out)
    return Nnet1Component("AffineTransform", out, into, {"LearnRateCoef": 1.0, "BiasLearnRateCoef": 1.0, "MaxNorm": 0.0},
                          {"linearity": rng.random((out, into), np.float32), "bias": rng.random(out, np.float32)})


def everything(read: Callable[[Path], Iterator[object]], path: Path) -> Callable[[], object]:
    return lambda: list(read(path))


def language(base: Path) -> dict[str, Sample]:
    """A dictionary, its language directory, a model and a graph of it."""
    (base / "dict").mkdir()
    for name, text in {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "A\nB\nC\n", "optional_silence": "SIL\n",
                       "lexicon": "<UNK> SPN\na A\nab A B\nba B A\ncab C A B\n"}.items():
        (base / f"dict/{name}.txt").write_text(text)
    prepare_lang(base / "dict", "<UNK>", base / "tmp", base / "lang", LangOptions())
    lang = LangDir(base / "lang")
    topology = read_topology(base / "lang/topo")
    tree = monophone_tree(lang.phone_sets, topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    gmm = AmDiagGmm.flat_start(model.num_pdfs, np.zeros(3), np.ones(3))
    for name, binary in (("", True), (".txt", False)):
        write_model(base / f"final.mdl{name}", model, gmm, binary)
        write_tree(base / f"tree{name}", tree, binary)
    kaldifst.StdConstFst(kaldifst.StdVectorFst.read(str(base / "lang/L.fst"))).write(str(base / "HCLG.fst"))
    (base / "lm.arpa").write_text("\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1 <s> -0.3\n-0.7 a -0.2\n-0.9 ab\n-1 </s>\n\n"
                                  "\\2-grams:\n-0.3 <s> a\n-0.4 a </s>\n\n\\end\\\n")

    def whole_lang() -> object:
        found = LangDir(base / "lang")
        return (found.words, found.phones, found.oov, found.silence_phones, found.nonsilence_phones, found.optional_silence,
                found.phone_sets, found.word_disambig, found.word_boundary, found.align_lexicon)

    samples = {f"final.mdl {kind}": Sample(base / name, lambda name=name: read_model(base / name))
               for kind, name in (("binary", "final.mdl"), ("text", "final.mdl.txt"))}
    for name, binary in (("", True), (".txt", False)):
        Fmpe.initial(AmDiagGmm.flat_start(1, np.zeros(3), np.ones(3))).write(base / f"final.fmpe{name}", binary)
    samples |= {f"final.fmpe {kind}": Sample(base / name, lambda name=name: Fmpe.read(base / name))
                for kind, name in (("binary", "final.fmpe"), ("text", "final.fmpe.txt"))}
    samples |= {f"tree {kind}": Sample(base / name, lambda name=name: read_tree(base / name))
                for kind, name in (("binary", "tree"), ("text", "tree.txt"))}
    samples |= {f"lang/{name}": Sample(base / "lang" / name, whole_lang) for name in (
        "words.txt", "phones.txt", "phones/sets.int", "phones/align_lexicon.int", "phones/word_boundary.int", "oov.txt")}
    samples |= {f"dict/{name}": Sample(base / "dict" / name, lambda: DictDir.read(base / "dict")) for name in (
        "lexicon.txt", "silence_phones.txt")}
    with_silence = base / "dict_silprob"
    shutil.copytree(base / "dict", with_silence)
    (with_silence / "lexiconp_silprob.txt").write_text("<UNK> 1 0.1 1 1 SPN\na 1 0.2 0.9 1.1 A\nab 0.5 0.3 1 1 A B\n")
    (with_silence / "silprob.txt").write_text("<s> 0.9\n</s>_s 1.5\n</s>_n 0.5\noverall 0.3\n")
    samples |= {f"dict_silprob/{name}": Sample(with_silence / name, lambda: DictDir.read(with_silence)) for name in (
        "lexiconp_silprob.txt", "silprob.txt")}
    (base / "ctm_edits.1").write_text("u 1 0.00 0.20 <eps> 1.0 <eps> sil\nu 1 0.20 0.30 a 1.0 ab sub\nu 1 0.50 0.10 <UNK> 1.0 x cor unk\n")
    (base / "prons.1.gz").write_bytes(gzip.compress(b"u 0 20 0 1\nu 20 30 1 3\nv 0 9 2 3 4\n"))
    samples |= {"ctm_edits": Sample(base / "ctm_edits.1", lambda: edits_of_jobs(base, 0.01)),
                "prons": Sample(base / "prons.1.gz", lambda: list(read_prons(base)))}
    return samples | {
        "HCLG const": Sample(base / "HCLG.fst", lambda: Fst.read(base / "HCLG.fst")),
        "L.fst vector": Sample(base / "lang/L.fst", lambda: (Lexicon(base / "lang/L.fst"), Fst.read(base / "lang/L.fst"))[1]),
        "topo": Sample(base / "lang/topo", lambda: read_topology(base / "lang/topo")),
        "words.txt": Sample(base / "lang/words.txt", lambda: list(SymbolTable.read(base / "lang/words.txt").items())),
        "ARPA": Sample(base / "lm.arpa", lambda: grammar(base / "lm.arpa", base / "lang/words.txt")),
    }


def archives(base: Path) -> dict[str, Sample]:
    rng = np.random.default_rng(1)
    write_int_vectors(base / "ali.1.gz", [(f"u{n}", rng.integers(1, 9, 20)) for n in range(3)])
    write_int_vectors(base / "ali.txt", [(f"u{n}", rng.integers(1, 9, 20)) for n in range(3)], binary=False)
    write_posteriors(base / "post.ark", [("u", Posterior.from_alignment(rng.integers(1, 9, 20)))])
    write_lattices(base / "lat.1.gz", [("u1", small_lattice()), ("u2", small_lattice())])
    (base / "lat.ark").write_bytes(b"u1 " + state_level_bytes(small_lattice()))
    samples = {}
    for method in (0, 1, 2, 3, 5):
        ark = base / f"feats{method}.ark"
        with MatrixWriter(ark, base / f"feats{method}.scp", method) as writer:
            for n in range(2):
                writer.write(f"u{n}", rng.random((9, 4)).astype(np.float32))
        samples[f"matrices, compression {method}"] = Sample(ark, everything(read_archive, ark))
    (base / "feats.txt").write_text("u1  [\n  1 2.5 3\n  4 5 6 ]\nu2  [\n  1 2 3 ]\n")
    write_speaker_transforms(base / "trans.1", [(f"s{n}", rng.random((4, 5))) for n in range(2)])
    with open(base / "final.mat", "wb") as stream:
        write_matrix(stream, rng.random((4, 9)).astype(np.float32))
    write_counts(base / "counts", np.arange(1, 9))
    return samples | {
        "ali gz": Sample(base / "ali.1.gz", lambda: list(read_archives(base, "ali", 1, 8))),
        "ali text": Sample(base / "ali.txt", everything(read_int_vectors, base / "ali.txt")),
        "posteriors": Sample(base / "post.ark", everything(read_posteriors, base / "post.ark")),
        "lattices compact": Sample(base / "lat.1.gz", everything(read_lattices, base / "lat.1.gz")),
        "lattices state-level": Sample(base / "lat.ark", everything(read_lattices, base / "lat.ark")),
        "matrices text": Sample(base / "feats.txt", everything(read_archive, base / "feats.txt")),
        "fMLLR": Sample(base / "trans.1", lambda: SpeakerTransforms.read(base)),
        "final.mat": Sample(base / "final.mat", lambda: read_matrix(base / "final.mat")),
        "counts": Sample(base / "counts", lambda: read_counts(base / "counts", 8, "the model")),
    }


def sources(base: Path) -> dict[str, Sample]:
    """Alignments as other systems write them."""
    (base / "words.ctm").write_text("u1 1 0.00 0.30 a\nu1 1 0.30 0.20 ab\nu2 1 0.10 0.30 ba\n")
    (base / "u1.TextGrid").write_text(
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 1\ntiers? <exists>\nsize = 1\nitem []:\n    item [1]:\n'
        '        class = "IntervalTier"\n        name = "phones"\n        xmin = 0\n        xmax = 1\n        intervals: size = 2\n'
        '        intervals [1]:\n            xmin = 0\n            xmax = 0.4\n            text = "A"\n'
        '        intervals [2]:\n            xmin = 0.4\n            xmax = 1\n            text = "B"\n')
    np.savez(base / "labels.npz", u1=np.arange(9, dtype=np.int32), u2=np.ones(7, np.int32))
    return {name: Sample(base / name, lambda name=name: list(open_source(base / name, SourceOptions()).utterances()))
            for name in ("words.ctm", "u1.TextGrid", "labels.npz")}


DENLATS = ("manifest.json", "entry.bin", "arcs.npy", "tid2pdf.npy")


def small_nnet3() -> Nnet3:
    """A TDNN of one layer with batch normalisation."""
    rng, options = np.random.default_rng(3), {"LearningRate": 0.1, "OrthonormalConstraint": 0.0, "UseNaturalGradient": True}
    tdnn = {**options, "TimeOffsets": [-1, 0, 1], "LinearParams": rng.random((3, 6), np.float32), "BiasParams": rng.random(3, np.float32),
            "NumSamplesHistory": 2000.0, "AlphaInOut": [4.0, 4.0], "RankInOut": [2, 2]}
    norm = {"Dim": 3, "BlockDim": 3, "Epsilon": 0.001, "TargetRms": 1.0, "TestMode": False, "Count": 9.0,
            "StatsMean": rng.random(3, np.float32), "StatsVar": rng.random(3, np.float32)}
    lines = ("input-node name=input dim=2", "component-node name=a component=a input=Sum(Scale(0.5, input), Offset(input, -2))",
             "component-node name=b component=b input=a", "output-node name=output input=b objective=linear")
    return Nnet3({node.name: node for node in map(parse_node, lines)},
                 {"a": Nnet3Component("a", "TdnnComponent", tdnn), "b": Nnet3Component("b", "BatchNormComponent", norm)})


def networks(base: Path) -> dict[str, Sample]:
    nnet = Nnet1([affine(6, 4), Nnet1Component("Sigmoid", 6, 6), affine(3, 6), Nnet1Component("Softmax", 3, 3)])
    nnet.write(base / "final.nnet")
    nnet.write(base / "final.nnet.txt", binary=False)
    nnet3 = small_nnet3()
    nnet3.write(base / "final.raw")
    nnet3.write(base / "final.raw.txt", binary=False)
    options = DnnOptions(hid_layers=1, hid_dim=4)
    transform = FeatureTransform([-1, 0, 1], torch.zeros(6), torch.ones(6))
    Network(options, make_dnn(options, 6, 3), transform, torch.ones(3)).save(base / "final.pt")
    rng = np.random.default_rng(2)
    feats = {f"u{n}": rng.random((9, 2)).astype(np.float32) for n in range(3)}
    pack(feats, feats.__getitem__, lambda utt: np.zeros(9, np.int64), 2, base / "store")

    def store() -> object:
        found = FrameStore(base / "store")
        found.verify()
        return found, found.counts()

    one = as_arrays(Lattice.from_arcs(np.array([0, 2, 3, 3]), np.array([1, 2, 1], np.int32), np.zeros(3, np.int32), np.zeros(3, np.float32),
                                      np.zeros(3, np.float32), np.array([1, 1, 2], np.int32), np.array([np.inf, np.inf, 0.0])))
    ids = np.arange(3, dtype=np.int32)
    pack_lattices([(f"u{n}", one, np.ones(2, np.int32)) for n in range(3)], ids, ids, [1], {}, base / "denlats")

    def denlats() -> object:
        found = LatticeStore(base / "denlats")
        found.verify()
        return found.lattices(range(len(found)))

    return {
        **{f"denlats/{name}": Sample(base / "denlats" / name, denlats) for name in DENLATS},
        "nnet1 binary": Sample(base / "final.nnet", lambda: Nnet1.read(base / "final.nnet")),
        "nnet1 text": Sample(base / "final.nnet.txt", lambda: Nnet1.read(base / "final.nnet.txt")),
        "nnet3 binary": Sample(base / "final.raw", lambda: Nnet3.read(base / "final.raw")),
        "nnet3 text": Sample(base / "final.raw.txt", lambda: Nnet3.read(base / "final.raw.txt")),
        "final.pt": Sample(base / "final.pt", lambda: Network.load(base / "final.pt")),
        **{f"store/{name}": Sample(base / "store" / name, store) for name in ("manifest.json", "feats.bin", "offsets.npy", "utts")},
    }


def speech(base: Path) -> dict[str, Sample]:
    """Audio, and a data directory with features."""
    samples = {}
    for kind, suffix in (("WAV", "wav"), ("FLAC", "flac"), ("NIST", "sph")):
        path = base / f"a.{suffix}"
        soundfile.write(path, np.random.default_rng(3).integers(-9000, 9000, 400).astype(np.int16), 8000, format=kind, subtype="PCM_16")
        samples[suffix] = Sample(path, lambda path=path: read_audio(str(path)))
    data = write_datadir(base / "data", {"r1": str(base / "a.wav"), "r2": str(base / "a.wav")}, {"u1": "a ab", "u2": "ba"},
                         {"u1": "s1", "u2": "s2"})
    (base / "data/segments").write_text("u1 r1 0.0 0.02\nu2 r2 0.01 0.04\n")
    for name, keys, matrix in (("feats", ("u1", "u2"), np.ones((2, 5), np.float32)), ("cmvn", ("s1", "s2"), np.ones((2, 6)))):
        with MatrixWriter(base / f"{name}.ark", data.path / f"{name}.scp") as writer:
            for key in keys:
                writer.write(key, matrix)

    def whole() -> object:
        found = DataDir(base / "data")
        found.validate(feats=True)
        return [FeaturePipeline.from_options("--norm-vars=true").apply(found, utt) for utt in found.utterances()]

    transcripts = {"table.csv": "file,text,speaker,start,end\nr1,a ab,s1,0,0.02\nr2,ba,s2,0.01,0.04\n",
                   "nemo.jsonl": '{"audio_filepath": "r1.wav", "text": "a ab", "offset": 0.5, "duration": 1.5}\n' * 2,
                   "supervisions.jsonl": '{"id": "u1", "recording_id": "r1", "start": 0.5, "duration": 1.5, "channel": 0, "text": "a"}\n'}
    for name, text in transcripts.items():
        (base / name).write_text(text)
        samples[name] = Sample(base / name, lambda name=name: read_transcripts(base / name, {}))

    samples |= {f"data/{name}": Sample(base / "data" / name, whole) for name in (
        "wav.scp", "text", "utt2spk", "segments", "feats.scp", "cmvn.scp")}
    return samples | {f"{name} through its scp": Sample(base / f"{name}.ark", whole) for name in ("feats", "cmvn")}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    made = [make(tmp_path_factory.mktemp(make.__name__)) for make in (language, archives, sources, networks, speech)]
    return {name: sample for group in made for name, sample in group.items()}


NAMES = [
    "final.mdl binary", "final.mdl text", "final.fmpe binary", "final.fmpe text", "tree binary", "tree text", "topo", "HCLG const",
    "L.fst vector", "words.txt", "ARPA",
    "lang/words.txt", "lang/phones.txt", "lang/phones/sets.int", "lang/phones/align_lexicon.int", "lang/phones/word_boundary.int",
    "lang/oov.txt", "dict/lexicon.txt", "dict/silence_phones.txt", *(f"matrices, compression {m}" for m in (0, 1, 2, 3, 5)),
    "dict_silprob/lexiconp_silprob.txt", "dict_silprob/silprob.txt", "ctm_edits", "prons",
    "matrices text", "fMLLR", "final.mat", "counts", "ali gz", "ali text", "posteriors", "lattices compact", "lattices state-level",
    "words.ctm", "u1.TextGrid", "labels.npz", "nnet1 binary", "nnet1 text", "nnet3 binary", "nnet3 text",
    "final.pt", "store/manifest.json", "store/feats.bin",
    "store/offsets.npy", "store/utts", *(f"denlats/{name}" for name in DENLATS), "wav", "flac", "sph", "data/wav.scp", "data/text",
    "data/utt2spk", "data/segments",
    "data/feats.scp", "data/cmvn.scp", "feats through its scp", "cmvn through its scp",
    "table.csv", "nemo.jsonl", "supervisions.jsonl",
]


def number_replaced(content: bytes, rng: np.random.Generator, by: bytes) -> bytes:
    """A text's number, or four bytes of a binary file, most often near its head, replaced."""
    numbers = list(re.finditer(rb"(?<![\w.])-?\d[\d.e+-]*", content)) if b"\0" not in content else []
    if numbers:
        found = numbers[rng.integers(len(numbers))]
        return content[: found.start()] + by + content[found.end() :]
    value = {b"99999999999": b"\xff\xff\xff\x7f", b"-7": b"\xf9\xff\xff\xff"}.get(by, b"\0\0\xc0\x7f")
    at = int(rng.integers(min(len(content), 120 if rng.random() < 0.7 else len(content))))
    return content[:at] + value + content[at + 4 :]


def bits_flipped(content: bytes, rng: np.random.Generator, count: int) -> bytes:
    damaged = bytearray(content)
    for at in rng.integers(len(content), size=count):
        damaged[at] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def damaged(content: bytes, rng: np.random.Generator, kind: int) -> bytes:
    at = int(rng.integers(len(content)))
    return (
        lambda: content[:at],
        lambda: rng.bytes(4) + content[4:],
        lambda: number_replaced(content, rng, b"99999999999"),
        lambda: number_replaced(content, rng, b"-7"),
        lambda: content[: at % 64] + b"".join(content[i : i + 4][::-1] for i in range(at % 64, len(content), 4)),
        lambda: bits_flipped(content, rng, 1),
        lambda: bits_flipped(content, rng, 8),
        lambda: number_replaced(content, rng, b"nan"),
        lambda: content[:at] + rng.bytes(16) + content[at + 16 :],
        lambda: b"",
        lambda: rng.bytes(len(content)),
        lambda: content[: len(content) // 2] + content[len(content) // 2 + 1 :],
    )[kind % 12]()


def damages(content: bytes, seed: int, count: int = DAMAGES) -> Iterator[bytes]:
    """So many of them; those of a gzipped file inside and outside by turns."""
    rng = np.random.default_rng(seed)
    for kind in range(count):
        if content[:2] == b"\x1f\x8b" and kind % 4 != 3:
            yield gzip.compress(damaged(gzip.decompress(content), rng, kind), mtime=0)
        else:
            yield damaged(content, rng, kind)


class TooSlowError(BaseException):
    """Not an Exception, so that no reader mistakes it for damage."""


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """SECONDS, and BYTES of address space on top of what the process has."""

    def alarm(signum: int, frame: object) -> None:
        raise TooSlowError

    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, alarm)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, before[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_there_are_500() -> None:
    assert len(NAMES) * DAMAGES >= 500


def test_every_sample_is_named(samples: dict[str, Sample]) -> None:
    assert sorted(samples) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_damage_ends_in_an_object_or_a_sentence(samples: dict[str, Sample], name: str) -> None:
    sample = samples[name]
    sound = sample.path.read_bytes()
    sample.read()  # sound, and compiled
    refused = 0
    try:
        for content in damages(sound, zlib.crc32(name.encode())):
            sample.path.write_bytes(content)
            try:
                with limits():
                    sample.read()
            except UserError as error:
                refused += 1
                message = str(error)
                assert sample.path.name in message or str(sample.path.parent) in message, message
                assert "\n" not in message and len(message) < 700, message
    finally:
        sample.path.write_bytes(sound)
    assert refused > 0


@pytest.mark.parametrize(("name", "verb"), [
    ("lattices compact", ["lattice-best-path", "{}"]),
    ("lattices state-level", ["lattice-to-nbest", "{}", "{}.out"]),
    ("nnet1 binary", ["nnet-info", "{}"]),
    ("nnet1 text", ["nnet-info", "{}"]),
    ("ali gz", ["copy-int-vector", "{}", "{}.out"]),
    ("final.mdl binary", ["ali-to-pdf", "{}", "{}", "{}.out"]),
    ("data/segments", ["validate-data-dir", "{}/.."]),
])
def test_the_command_line_says_what_is_wrong(samples: dict[str, Sample], capfd: pytest.CaptureFixture[str], name: str,
                                             verb: list[str]) -> None:
    sample = samples[name]
    sound = sample.path.read_bytes()
    try:
        for content in damages(sound, 1):
            sample.path.write_bytes(content)
            status = main([part.format(sample.path) for part in verb])
            said = capfd.readouterr().err
            assert status in (0, 1) and "Traceback" not in said
            assert status == 0 or f"{verb[0]}: ERROR: " in said
    finally:
        sample.path.write_bytes(sound)


def without_last_line(content: bytes) -> bytes:
    return content[: content[:-1].rindex(b"\n") + 1]


@pytest.mark.parametrize(("name", "damage", "said"), [
    ("store/utts", lambda content: content.replace(b"u1", b"u9"), "does not match its checksum"),
    ("store/manifest.json", lambda content: content.replace(b'"trimmed": 0', b'"trimmed": 3'), "does not match the checksum in it"),
    ("denlats/manifest.json", lambda content: content.replace(b'"tid2phone.npy"', b'"tid2phone.npx"'), "expected those of"),
    ("lang/phones/sets.int", without_last_line, "does not have each phone of phones.txt once"),
    ("lang/phones/word_boundary.int", without_last_line, "does not have each phone of phones.txt once"),
    ("lang/phones/align_lexicon.int", without_last_line, "lacks word"),
    ("lang/phones/align_lexicon.int", lambda content: content.replace(b"3 3 11 16", b"3 3 1116"), "expected a word"),
    ("lang/words.txt", lambda content: content[:-1], "the last line has no end"),
    ("final.mat", lambda content: content.replace(b"\4\4\0\0\0", b"\4\3\0\0\0", 1), "expected the end of the file"),
    ("counts", lambda content: content.replace(b"4 5", b"45"), "has 7 counts, the model 8 outputs"),
    ("fMLLR", lambda content: content.replace(b"s1 ", b"s0 "), "a second transform of this speaker"),
    ("L.fst vector", lambda content: content + b"\0\0\0\0", "has 4 bytes behind its last state"),
    ("ali text", lambda content: content[:-3], "its last line has no end"),
    ("matrices text", lambda content: content[:-1], "the end of that line"),
    ("u1.TextGrid", lambda content: content.replace(b"size = 2", b"size = nan"), "intervals: size = nan"),
    ("nemo.jsonl", lambda content: b"#" + content, "nemo.jsonl, line 1"),
    ("sph", lambda content: content.replace(b"sample_count -i 400", b"sample_count -i 300"), "has more than its header says"),
    ("sph", lambda content: content.replace(b"sample_n_bytes -i 2", b"sample_n_bytes -i 1"), "has more than its header says"),
    ("ali gz", lambda content: gzip.compress(b"u0 \0B\4\0\0\0\0", mtime=0), "a label for each frame, found none"),
    ("posteriors", lambda content: b"u \0B\4\0\0\0\0", "expected frames, found none"),
    ("fMLLR", lambda content: content.replace(b"FM \4\4\0\0\0\4\5\0\0\0", b"FV \4\x15\0\0\0", 1), "expected a transform"),
    ("fMLLR", lambda content: content.replace(b"FM \4\4\0\0\0\4\5\0\0\0", b"FM \4\5\0\0\0\4\4\0\0\0", 1), "expected a transform"),
    ("final.mat", lambda content: b"\0BFM \4\0\0\0\0\4\x09\0\0\0", "found 0 x 9"),
    ("matrices, compression 0", lambda content: content[: content.index(b"u1 ")], "there were 2"),
    ("matrices, compression 5", lambda content: content[:20] + b"?" + content[21:], "its checksum is not that of"),
    ("wav", lambda content: content.replace(b"data \x03", b"data\0\x03"), "fewer samples than there are"),
    ("HCLG const", lambda content: content.replace(b"const", b"con\nt", 1), "is truncated or damaged"),
    ("u1.TextGrid", lambda content: content.replace(b"xmin = 0.4", b"xmix = 0.4"), "xmix ="),
    ("u1.TextGrid", lambda content: content.replace(b'"phones"\n', b'"phones\n"'), "expected a tier's name"),
])
def test_what_still_parses_is_found_too(samples: dict[str, Sample], name: str, damage: Callable[[bytes], bytes], said: str) -> None:
    """Damage that leaves something of the right form: by checksums, or because files belong together."""
    sample = samples[name]
    sound = sample.path.read_bytes()
    assert damage(sound) != sound
    try:
        sample.path.write_bytes(damage(sound))
        with pytest.raises(UserError, match=re.escape(said)):
            sample.read()
    finally:
        sample.path.write_bytes(sound)


@pytest.mark.parametrize("value", [
    b"FM \4\0\0\0\0\4\4\0\0\0", b"CM " + bytes(8) + b"\x09\0\0\0\0\0\0\0", b"CM2 " + bytes(12) + b"\4\0\0\0"])
def test_a_matrix_has_rows_and_columns_or_none(tmp_path: Path, value: bytes) -> None:
    (tmp_path / "a.ark").write_bytes(b"u0 \0B" + value + b"u1 \0BFM \4\0\0\0\0\4\0\0\0\0")
    with pytest.raises(UserError, match=r"a.ark is no readable archive: entry 1 \(u0\) .*(9 x 0|0 x 4|\[0, 4\])"):
        list(read_archive(tmp_path / "a.ark"))
    (tmp_path / "a.ark").write_bytes(b"u1 \0BFM \4\0\0\0\0\4\0\0\0\0")
    assert [matrix.shape for _, matrix in read_archive(tmp_path / "a.ark")] == [(0, 0)]
