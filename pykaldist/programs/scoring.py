"""Programs on texts and their references: word error rates, their confidence, and alignments of words."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError
from pykaldist.io.table_streams import TableWriter, read_table, read_token, write_token
from pykaldist.kernels import interpreted_where

Sentences = dict[str, list[str]]
LITTLE = 30_000  # comparisons of two words, which take no longer than numba takes to load


def _sentences(rspecifier: str) -> Sentences:
    return {key: text.split() for key, text in read_table(rspecifier, read_token)}


def compute_wer(ref: str, hyp: str, *, text: bool = False, mode: str = "strict") -> int:
    """Compute word error rates: print %WER, %SER and the number of sentences that were scored.

    Usage: compute-wer [options] <ref-rspecifier> <hyp-rspecifier>
    e.g.: compute-wer --text --mode=present ark:data/train/text ark:hyp_text

    Options:
      --text: the words are words, else numbers, which are compared alike (default: false)
      --mode: of references without hypotheses: present leaves them out, all counts them as deleted, strict is an error (default: strict)
    """
    from pykaldist.score.wer import compute_wer as compute

    _check(mode)
    refs, hyps = _sentences(ref), _sentences(hyp)
    with interpreted_where(_comparisons(refs, hyps) < LITTLE):
        print(compute(refs, hyps, mode), end="")
    return 0


def compute_wer_bootci(ref: str, hyp: str, other: str = "", *, mode: str = "strict", replications: int = 10000) -> int:
    """Compute the mean and the 95 % interval of word error rates by the bootstrap over sentences; of two systems, how surely one is better.

    Usage: compute-wer-bootci [options] <ref-rspecifier> <hyp-rspecifier> [<hyp2-rspecifier>]
    e.g.: compute-wer-bootci --mode=present ark:data/train/text ark:hyp_text ark:hyp_text2

    Options:
      --mode: of references without hypotheses: present leaves them out, all counts them as deleted, strict is an error (default: strict)
      --replications: how many test sets are drawn (default: 10000)
    """
    import numpy as np

    from pykaldist.score.bootstrap import bootstrap_lines, count_errors

    _check(mode)
    refs = _sentences(ref)
    hyps = [_sentences(one) for one in (hyp, other) if one]
    for utt in [utt for utt in refs if any(utt not in one for one in hyps)]:
        if mode == "strict":
            raise UserError(f"utterance {utt} has a reference and no hypothesis; --mode=present leaves such ones out.")
        if mode == "all":
            for one in hyps:
                one.setdefault(utt, [])
        else:
            del refs[utt]
    if not refs:
        raise UserError("no utterance has a reference and a hypothesis.")
    with interpreted_where(sum(_comparisons(refs, one) for one in hyps) < LITTLE):
        counts = [count_errors(refs, one) for one in hyps]
    print(bootstrap_lines(counts, np.random.default_rng(0), replications), end="")
    return 0


def align_text(first: str, second: str, target: str, *, special_symbol: str = "<eps>", separator: str = ";") -> int:
    """Align the words of two texts: pairs with a separator between, the special symbol where one has no word.

    Usage: align-text [options] <text1-rspecifier> <text2-rspecifier> <alignment-wspecifier>
    e.g.: align-text --special-symbol="'***'" ark:data/test/text ark:hyp_text ark,t:alignment

    Options:
      --special-symbol: what stands where a word has no partner (default: <eps>)
      --separator: what stands between pairs (default: ;)
    """
    from pykaldist.score.alignment import GAP, align

    texts, others, done, missing = _sentences(first), _sentences(second), 0, 0
    with TableWriter(target, write_token) as out, interpreted_where(_comparisons(texts, others) < LITTLE):
        for utt, words in texts.items():
            if utt not in others:
                missing += 1
                continue
            if special_symbol in words or special_symbol in others[utt]:
                raise UserError(f"utterance {utt} has the word {special_symbol}; give another --special-symbol.")
            pairs = [tuple(special_symbol if word == GAP else word for word in pair) for pair in align(words, others[utt])]
            out.write(utt, f" {separator} ".join(" ".join(pair) for pair in pairs))
            done += 1
    print(f"{done} utterances aligned, {missing} without a partner", file=sys.stderr)
    return 0 if done else 1


def _comparisons(refs: Sentences, hyps: Sentences) -> int:
    """How many pairs of words a Levenshtein distance of all sentences compares."""
    return sum(len(words) * len(hyps.get(utt, ())) for utt, words in refs.items())


def _check(mode: str) -> None:
    if mode not in ("strict", "all", "present"):
        raise UserError(f"--mode is strict, all or present, found {mode!r}.")
