"""Wall Street Journal, WSJ0 (LDC93S6B) and WSJ1 (LDC94S13B), disc by disc, with CMU's dictionary beside; of AN4.

Discs hold sphere files (.wv1), here not compressed; transcripts stand in .dot files, a file for a speaker's session.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from layouts.speech import Utterance, an4, an4_lexicon, arpa, lines, some, with_stress, words_of, write

INDEX0, INDEX1 = "wsj0/11-13.1/wsj0/doc/indices", "wsj1/13-34.1/wsj1/doc/indices"
# A set's disc, its folder there, the index that names its files, speakers and utterances of each, the first letter of its speakers.
SETS = {
    "si84": ("wsj0/11-1.1", "wsj0/si_tr_s", f"{INDEX0}/train/tr_s_wv1.ndx", 6, 8, "01"),
    "si284": ("wsj1/13-1.1", "wsj1/si_tr_s", f"{INDEX1}/si_tr_s.ndx", 6, 8, "46"),
    "eval92": ("wsj0/11-14.1", "wsj0/si_et_20", f"{INDEX0}/test/nvp/si_et_20.ndx", 2, 3, "44"),
    "eval92_5k": ("wsj0/11-14.1", "wsj0/si_et_05", f"{INDEX0}/test/nvp/si_et_05.ndx", 1, 2, "45"),
    "eval93": ("wsj1/13-33.1", "wsj1/si_et_h1/wsj64k", "wsj1/13-32.1/wsj1/doc/indices/wsj1/eval/h1_p0.ndx", 1, 2, "4o"),
    "eval93_5k": ("wsj1/13-33.1", "wsj1/si_et_h2/wsj5k", "wsj1/13-32.1/wsj1/doc/indices/wsj1/eval/h2_p0.ndx", 1, 2, "4p"),
    "dev93": ("wsj1/13-16.1", "wsj1/si_dt_20", f"{INDEX1}/h1_p0.ndx", 2, 3, "4k"),
    "dev93_5k": ("wsj1/13-16.1", "wsj1/si_dt_05", f"{INDEX1}/h2_p0.ndx", 1, 2, "4n"),
}


def lay_out(shared: Path, folder: Path, sizes: Mapping[str, tuple[int, int]] | None = None) -> None:
    """`folder`/{wsj0,wsj1}, and what the recipe fetches beside in `folder`/fetched: CMU's dictionary and the speakers of WSJ0.

    `sizes`: speakers, at most 36, and utterances of each, of sets that are to have others than those of `SETS`.
    """
    everything, begun, said, genders = an4(shared), 0, [], {}
    for part, (disc, place, index, speakers, each, letter) in SETS.items():
        speakers, each = (sizes or {}).get(part, (speakers, each))
        chosen = some(everything, speakers, each, begun)
        numbered = {speaker: f"{letter}{np.base_repr(i, 36).lower()}" for i, speaker in enumerate(dict.fromkeys(u.speaker for u in chosen))}
        named = disc.split("/")[1].replace("-", "_").replace(".", "_")
        listed = []
        for speaker, short in numbered.items():
            own = [utterance for utterance in chosen if utterance.speaker == speaker]
            genders[short] = own[0].gender
            session = f"{short}c02"
            for i, utterance in enumerate(own, 1):
                write(folder / disc / place / short / f"{session}{i:02x}.wv1", utterance.samples(), 16000, "NIST")
                # indices of Nov'92 give no suffix, and those of Nov'93 the number of another disc
                listed.append(f"{named.replace('13_33_1', '13_32_1')}:{place}/{short}/{session}{i:02x}{'' if 'nvp' in index else '.wv1'}")
            lines(folder / disc / place.replace("wsj", "transcrp/wsj", 1) / short / f"{session}00.dot",
                  (f"{marked(utterance, i)} ({session}{i:02x})" for i, utterance in enumerate(own, 1)))
        lines(folder / index, ["; a comment", *listed])
        begun += speakers
        said += chosen
    (folder / "wsj0/11-2.1").mkdir()
    lexicon = [(word, phones) for word, phones in with_stress(an4_lexicon(shared)) if word in words_of(said)]
    write_models(folder / "wsj1/13-32.1/wsj1/doc/lng_modl", said)
    write_dictionary(folder / "fetched/cmudict", lexicon)
    speakers = [f"{short.upper()} {gender.upper()} 30 -- {short}" for short, gender in genders.items()]
    for path in ("wsj0/11-13.1/wsj0/doc", "wsj1/13-32.1/wsj1/doc/evl_spok", f"{INDEX1}/../dev_spok", f"{INDEX1}/../train"):
        lines(folder / path / "spkrinfo.txt", ["; speakers", *speakers])
    lines(folder / "fetched/wsj0-train-spkrinfo.txt", [speakers[0].replace("--", "30") for _ in range(134)])


def marked(utterance: Utterance, i: int) -> str:
    """The words with some of the marks that transcripts have: noises, a pause, a truncation, a word deleted."""
    first, *rest = utterance.words
    return " ".join([f"<{first}>" if i == 2 else first, *(["."] if i == 3 else []), *(["[<door_slam]"] if i == 4 else []), *rest])


def write_models(folder: Path, said: Sequence[Utterance]) -> None:
    """Language models with and without trigrams, of large and small vocabulary, and text to make others of."""
    sentences, words = [utterance.words for utterance in said], words_of(said)
    for name, order, packed in (("bcb20onp", 2, True), ("tcb20onp", 3, False), ("bcb05onp", 2, True), ("tcb05cnp", 3, True)):
        path = folder / f"base_lm/{name}.z"
        arpa(path, sentences, words, order)  # not compressed, for the name does not end in .gz
        if packed:
            path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    lines(folder / "vocab/wfl_64.lst", sorted(words))
    for i, year in enumerate((87, 88, 89)):
        path = folder / f"lm_train/np_data/{year}/w7_001.z"
        lines(path, ["<art>", *(" ".join(sentence).lower() for sentence in sentences[i::3]), "</art>"])
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def write_dictionary(folder: Path, lexicon: Sequence[tuple[str, list[str]]]) -> None:
    """CMU's dictionary, with variants numbered, and its phones."""
    seen: dict[str, int] = {}
    entries = [";;; a comment"]
    for word, phones in lexicon:
        variant = f"({seen[word]})" if word in seen else ""
        seen[word] = seen.get(word, 0) + 1
        entries.append(f"{word}{variant}  {' '.join(phones)}")
    lines(folder / "cmudict.0.7a", entries)
    lines(folder / "cmudict.0.7a.symbols", sorted({phone for _, phones in lexicon for phone in phones}))
