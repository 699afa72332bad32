"""A toy language (phones SIL, SPN, A, B, C) and speech made for it, on which the hmm room is tested."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pykaldist.feats.make import speaker_cmvn
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.tree import PDF_CLASS, Constant, ContextDependency, EventMap, Split, root_map
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter

LEXICON = "<UNK> SPN\na A\nab A B\nba B A\nba B C\ncab C A B\n"


def write_dict(path: Path, lexicon: str = LEXICON, **files: str) -> Path:
    """A dictionary directory; keyword arguments replace whole files (`silence_phones="SIL\\n"`)."""
    path.mkdir(parents=True, exist_ok=True)
    texts = {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "A\nB\nC\n", "optional_silence": "SIL\n", "lexicon": lexicon}
    for name, text in {**texts, **files}.items():
        (path / f"{name}.txt").write_text(text)
    return path


@pytest.fixture(scope="session")
def toy_lang(tmp_path_factory: pytest.TempPathFactory) -> LangDir:
    base = tmp_path_factory.mktemp("toy")
    prepare_lang(write_dict(base / "dict"), "<UNK>", base / "tmp", base / "lang", LangOptions(num_sil_states=3))
    return LangDir(base / "lang")


def random_tree(lang: LangDir, width: int, central: int, seed: int = 0) -> ContextDependency:
    """A tree whose roots, one a phone set, are split three deep by random questions; silence is not asked for its context."""
    rng, numbers = np.random.default_rng(seed), itertools.count()
    topology = read_topology(lang.file("topo"))

    def grown(depth: int, keys: list[int]) -> EventMap:
        if depth == 0:
            return Constant(next(numbers))
        key = int(rng.choice(keys))
        values = [0, 1] if key == PDF_CLASS else topology.phones
        yes_set = frozenset(int(v) for v in values if rng.random() < 0.5)
        return Split(key, yes_set, grown(depth - 1, keys), grown(depth - 1, keys))

    sets = lang.phone_sets
    roots = (grown(3, [PDF_CLASS] if set(phones) & set(lang.silence_phones) else [PDF_CLASS, *range(width)]) for phones in sets)
    return ContextDependency(width, central, root_map(sets, central, [True] * len(sets), topology.num_pdf_classes, roots))


@pytest.fixture(scope="session")
def toy_speech(toy_lang: LangDir) -> tuple[Corpus, np.ndarray]:
    """60 utterances of 2 to 4 words, and the phone of every frame (`_` for silence, which stands at both ends only).

    Every phone has a direction of its own in 6 dimensions, every third of it another length.
    """
    rng = np.random.default_rng(1)
    pronunciations = {"a": "A", "ab": "AB", "ba": "BA", "cab": "CAB"}
    centre = {phone: rng.standard_normal(6) * 4 for phone in "ABC_"}
    words, matrices, truth = [], [], []
    for _ in range(60):
        chosen = rng.choice(list(pronunciations), size=rng.integers(2, 5)).tolist()
        words.append(toy_lang.word_ids(chosen)[0])
        rows = []
        for phone in "_" + "".join(pronunciations[word] for word in chosen) + "_":
            for third in range(3):
                frames = int(rng.integers(2, 6))
                rows += [centre[phone] * (1 + 0.3 * third)] * frames
                truth += [phone] * frames
        matrices.append((np.array(rows) + rng.standard_normal((len(rows), 6))).astype(np.float32))
    offsets = np.concatenate([[0], np.cumsum([len(m) for m in matrices])])
    corpus = Corpus([f"utt{n:02d}" for n in range(60)], np.concatenate(matrices), offsets, words, Counter())
    return corpus, np.array(truth)


@pytest.fixture(scope="session")
def toy_corpus(toy_speech: tuple[Corpus, np.ndarray]) -> Corpus:
    return toy_speech[0]


@pytest.fixture
def toy_data(tmp_path: Path, toy_corpus: Corpus, toy_lang: LangDir) -> DataDir:
    """The toy corpus as a data directory; two utterances a speaker."""
    text = {utt: " ".join(map(toy_lang.words.symbol, words)) for utt, words in zip(toy_corpus.utts, toy_corpus.words, strict=True)}
    data = write_datadir(tmp_path / "data", {u: "none" for u in text}, text, {u: f"{u[:4]}" for u in text})
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for number, utt in enumerate(toy_corpus.utts):
            writer.write(utt, toy_corpus.utterance_feats(number))
    speaker_cmvn(data, tmp_path)
    return data
