"""The data of training and alignment: the features of all utterances in one matrix, and their transcripts as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.progress import Progress


@dataclass
class Corpus:
    """The features and the transcripts of a data directory, in memory.

    Utterance u has the rows `offsets[u]:offsets[u + 1]` of `feats` (frames, D) float32 and the words `words[u]`.

    `unknown` counts the words that the lexicon lacks; they stand in `words` as the language directory's OOV word.
    """

    utts: list[str]
    feats: np.ndarray
    offsets: np.ndarray
    words: list[list[int]]
    unknown: Counter[str]

    @classmethod
    def load(cls, data: DataDir, lang: LangDir, pipeline: FeaturePipeline) -> Corpus:
        """Read the features of `data` through `pipeline`, and its transcripts.

        Raises UserError for an utterance without features, with features that are not finite, or without a transcript.
        """
        data.validate(text=True, wav=False, feats=True)
        words, unknown = [], Counter[str]()
        utts = data.utterances()
        for utt in utts:
            ids, missing = lang.word_ids(data.text[utt])
            words.append(ids)
            unknown.update(missing)
        matrices = []
        with Progress("reading features", len(utts), "utt") as bar:
            for utt in utts:
                matrices.append(pipeline.apply(data, utt))
                bar.update()
        dims = {m.shape[1] for m in matrices}
        if len(dims) > 1:
            raise UserError(f"{data.path}/feats.scp: features of dimensions {sorted(dims)}; make all with the same options.")
        return cls(utts, np.concatenate(matrices), np.concatenate([[0], np.cumsum([len(m) for m in matrices])]), words, unknown)

    def __len__(self) -> int:
        return len(self.utts)

    def num_frames(self, number: int) -> int:
        return int(self.offsets[number + 1] - self.offsets[number])

    def utterance_feats(self, number: int) -> np.ndarray:
        return self.feats[self.offsets[number]:self.offsets[number + 1]]

    def unknown_words(self) -> str:
        """A sentence about words that the lexicon lacks, or the empty string."""
        if not self.unknown:
            return ""
        named = ", ".join(f"{word} ({count})" for word, count in self.unknown.most_common(10))
        more = f" and {len(self.unknown) - 10} more" if len(self.unknown) > 10 else ""
        return f"{self.unknown.total()} words of the transcripts are not in the lexicon and count as OOV: {named}{more}."


def name_some(names: Sequence[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
