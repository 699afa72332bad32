"""Dictionary directories with errors end in a sentence that names file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.dictdir import DictDir, Pronunciation, SilenceProbs

GOOD = {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "A0 A1\nB\n", "optional_silence": "SIL\n",
        "lexicon": "<UNK> SPN\nab A0 B\nb B\n"}

SILPROB = "<s> 0.9\n</s>_s 1.5\n</s>_n 0.5\noverall 0.3\n"


def make(path: Path, **files: str) -> Path:
    for name, text in {**GOOD, **files}.items():
        (path / f"{name}.txt").write_text(text)
    return path


def test_reads_groups_and_probabilities(tmp_path: Path) -> None:
    plain = DictDir.read(make(tmp_path))
    assert plain.nonsilence == [["A0", "A1"], ["B"]] and plain.optional_silence == "SIL" and plain.extra_questions == []
    assert plain.lexicon[1].phones == ("A0", "B") and plain.lexicon[1].probability == 1.0
    weighted = DictDir.read(make(tmp_path, lexiconp="<UNK> 1.0 SPN\nab 0.25\tA0 B\n", extra_questions="A0 B\n"))
    assert weighted.lexicon[1].probability == 0.25 and weighted.extra_questions == [["A0", "B"]] and weighted.silence_probs is None
    quiet = DictDir.read(make(tmp_path, lexiconp_silprob="b 0.5 0.25 1.5 2 B\n", silprob=SILPROB))
    assert quiet.lexicon == [Pronunciation("b", 0.5, ("B",), (0.25, 1.5, 2.0))] and quiet.silence_probs == SilenceProbs(0.9, 1.5, 0.5, 0.3)


@pytest.mark.parametrize(("files", "message"), [
    ({"lexicon": "ab A0 X\n"}, r"lexicon\.txt, line 1: ab has the phone X, which is neither"),
    ({"lexicon": "b B\nab\n"}, "line 2: ab has no phones"),
    ({"lexicon": "b B\nab A0\nb B\n"}, "line 3: b has this pronunciation in line 1 too"),
    ({"lexicon": "b B\n\n"}, "line 2: empty line"),
    ({"lexicon": ""}, r"lexicon\.txt is empty"),
    ({"lexicon": "<s> SIL\n"}, "<s> is reserved"),
    ({"lexiconp": "b 1.5 B\n"}, r"lexiconp\.txt, line 1: b has the probability 1\.5"),
    ({"lexiconp": "b 0 B\n"}, "probability 0"),
    ({"lexiconp": "b B\n"}, "expected `word probability phone"),
    ({"lexiconp": "b 0.5\n"}, "b has no phones"),
    ({"nonsilence_phones": "A0 A1\nB\nSIL\n"}, r"nonsilence_phones\.txt, line 3: phone SIL is listed in silence_phones\.txt too"),
    ({"silence_phones": "SIL\nSIL\n"}, "listed twice"),
    ({"silence_phones": ""}, r"silence_phones\.txt is empty"),
    ({"nonsilence_phones": "A_B\n"}, "reserved name"),
    ({"nonsilence_phones": "#1\n"}, "reserved name"),
    ({"optional_silence": "A0\n"}, r"optional_silence\.txt: expected one phone of silence_phones"),
    ({"optional_silence": "SIL\nSPN\n"}, "expected one phone"),
    ({"extra_questions": "A0 Z\n"}, r"extra_questions\.txt, line 1: phone Z is unknown"),
    ({"extra_questions": "A0 A0\n"}, "listed twice"),
    ({"lexiconp_silprob": "b 1 1 1 1 B\n", "silprob": SILPROB}, "silence behind b has the probability 1; it must be above 0 and at most 1"),
    ({"lexiconp_silprob": "b 1 0.5 1 B\n", "silprob": SILPROB}, "expected `word probability silence-behind"),
    ({"lexiconp_silprob": "b 1 0.5 0 1 B\n", "silprob": SILPROB}, "b behind silence has the factor 0"),
    ({"lexiconp_silprob": "b 1 0.5 1 1 B\n"}, r"silprob\.txt does not exist"),
    ({"lexiconp_silprob": "b 1 0.5 1 1 B\n", "silprob": SILPROB.replace("overall", "all")}, r"silprob\.txt: expected a number for each of"),
    ({"lexiconp_silprob": "b 1 0.5 1 1 B\n", "silprob": SILPROB.replace("0.9", "1")}, "begins with silence with the probability 1"),
])
def test_errors_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DictDir.read(make(tmp_path, **files))


@pytest.mark.parametrize("name", GOOD)
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    make(tmp_path)
    (tmp_path / f"{name}.txt").unlink()
    with pytest.raises(UserError, match=f"{name}.txt does not exist"):
        DictDir.read(tmp_path)
