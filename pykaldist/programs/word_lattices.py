"""Programs on lattices that ask when, and how surely, each word was said: minimum Bayes risk, alignment on words, CTM files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.lattice_tables import read_lattice_table
from pykaldist.errors import UserError
from pykaldist.io.lang import SymbolTable
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_ints, write_token, write_value
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename
from pykaldist.programs.command import say
from pykaldist.programs.lattices import changed, scale_of


def lattice_mbr_decode(source: str, words: str = "", risks: str = "", sausages: str = "", times: str = "", *, acoustic_scale: float = 1.0,
                       lm_scale: float = 1.0, word_symbol_table: str = "", one_best_times: bool = False) -> int:
    """Find the words with the least expected number of errors.

    Usage: lattice-mbr-decode [options] <lattice-rspecifier> <words-wspecifier> [<risk-wspecifier> [<sausage-wspecifier> [<times>]]]
    e.g.: lattice-mbr-decode --acoustic-scale=0.1 ark:1.lats "ark,t:|utils/int2sym.pl -f 2- words.txt" ark:/dev/null ark:1.sau

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --lm-scale: factor of the graph costs (default: 1)
      --word-symbol-table: words.txt, for the log
      --one-best-times: times of the words, not of all places (default: false)
    """
    from pykaldist.decode.mbr import mbr_decode
    from pykaldist.io.posteriors import Posterior
    from pykaldist.programs.alignments import write_posterior

    symbols = SymbolTable.read(word_symbol_table) if word_symbol_table else None
    count, total = 0, 0.0
    nowhere = "ark:/dev/null"
    with TableWriter(words or nowhere, write_value) as text, TableWriter(risks or nowhere, write_token) as risk, \
            TableWriter(sausages or nowhere, write_posterior) as sausage, TableWriter(times or nowhere, write_token) as spans:
        for utt, lattice in read_lattice_table(source):
            found = mbr_decode(lattice, acoustic_scale, lm_scale)
            text.write(utt, np.array(found.words, np.int32))
            risk.write(utt, f"{found.risk:.7g}")
            pairs = [pair for place in found.places for pair in place]
            sausage.write(utt, Posterior(np.concatenate([[0], np.cumsum([len(place) for place in found.places])]),
                                         np.array([word for word, _ in pairs], np.int32), np.array([p for _, p in pairs], np.float32)))
            spans.write(utt, "; ".join(f"{b:.7g} {e:.7g} " for b, e in (found.times if one_best_times else found.place_times)))
            count, total = count + 1, total + found.risk
            if symbols is not None:
                say(" ".join([utt, *map(symbols.symbol, found.words)]))
    say(f"{count} lattices decoded; the expected number of errors of a sentence is {total / max(count, 1):g}")
    return 0 if count else 1


def lattice_to_ctm_conf(source: str, second: str, third: str = "", *, acoustic_scale: float = 1.0, inv_acoustic_scale: float = 1.0,
                        lm_scale: float = 1.0, frame_shift: float = 0.01, confidence_digits: int = 2, decode_mbr: bool = True,
                        print_silence: bool = False) -> int:
    """Write a CTM with the times and confidences of words, of lattices that are aligned on words.

    Usage: lattice-to-ctm-conf [options] <lattice-rspecifier> [<words-rspecifier>] <ctm>
    e.g.: lattice-align-words word_boundary.int final.mdl ark:1.lats ark:- | lattice-to-ctm-conf --inv-acoustic-scale=10 ark:- 1.ctm

    Options:
      --acoustic-scale: factor of the acoustic costs (default: 1)
      --inv-acoustic-scale: one over that factor
      --lm-scale: factor of the graph costs (default: 1)
      --frame-shift: seconds from frame to frame (default: 0.01)
      --confidence-digits: digits behind the point (default: 2)
      --decode-mbr: words with the least expected number of errors, instead of those of the best path (default: true)
      --print-silence: lines of silence, too (default: false)
    """
    from pykaldist.decode.mbr import mbr_decode

    scale = scale_of(acoustic_scale, inv_acoustic_scale)
    target = third or second
    given = RandomAccess(second, read_ints) if third else None
    count = 0
    with open_wxfilename(target) as stream:
        for utt, lattice in read_lattice_table(source):
            start = given.get(utt) if given else None
            if given and start is None:
                say(f"WARNING: {second} has no words of {utt}")
                continue
            found = mbr_decode(lattice, scale, lm_scale, decode_mbr, None if start is None else start.tolist(), print_silence)
            for word, sure, (begin, end) in zip(found.words, found.confidences, found.times, strict=True):
                seconds, length, share = (f"{x:.{confidence_digits}f}" for x in (frame_shift * begin, frame_shift * (end - begin), sure))
                stream.write(f"{utt} 1 {seconds} {length} {word} {share}\n".encode())
            count += 1
    say(f"{count} lattices done")
    return 0 if count else 1


def nbest_to_ctm(source: str, ctm: str, *, frame_shift: float = 0.01, precision: int = 2, print_silence: bool = False) -> int:
    """Write a CTM of lattices of one path each that are aligned on words.

    Usage: nbest-to-ctm [options] <lattice-rspecifier> <ctm>
    e.g.: lattice-1best ark:1.lats ark:- | lattice-align-words word_boundary.int final.mdl ark:- ark:- | nbest-to-ctm ark:- 1.ctm

    Options:
      --frame-shift: seconds from frame to frame (default: 0.01)
      --precision: digits behind the point; more where the frame shift asks for them (default: 2)
      --print-silence: lines of silence, too (default: false)
    """
    digits = max(precision, 3 if frame_shift < 0.01 else 0, 4 if frame_shift < 0.001 else 0)
    count = 0
    with open_wxfilename(ctm) as stream:
        for utt, lattice in read_lattice_table(source):
            if (np.diff(lattice.offset) > 1).any() or (lattice.target != np.arange(1, lattice.num_arcs + 1)).any():
                raise UserError(f"{source}, {utt}: expected a lattice of one path; give the output of lattice-1best.")
            frames = np.diff(lattice.string)[: lattice.num_arcs].tolist()
            begin = 0
            for word, length in zip(lattice.word.tolist(), frames, strict=True):
                if word or print_silence:
                    stream.write(f"{utt} 1 {frame_shift * begin:.{digits}f} {frame_shift * length:.{digits}f} {word}\n".encode())
                begin += length
            count += 1
    say(f"{count} lattices done")
    return 0 if count else 1


def lattice_align_words(boundary: str, model: str, source: str, target: str, *, output_error_lats: bool = True, test: bool = False,
                        max_expand: float = 0.0, silence_label: int = 0, partial_word_label: int = 0, reorder: bool = True) -> int:
    """Make lattices whose arcs are whole words in time, by phones that say where words begin and end.

    Usage: lattice-align-words [options] <word_boundary.int> <model> <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-align-words data/lang/phones/word_boundary.int exp/tri3/final.mdl ark:1.lats ark:aligned.lats

    Options:
      --output-error-lats: has no effect: lattices that cannot be aligned are named and left out
      --test: has no effect
      --max-expand: leave a lattice out that grows by more than this factor (default: 0: any)
      --silence-label: the word of silences (default: 0)
      --partial-word-label: the word of a word that is cut off (default: 0)
      --reorder: whether the graph was made with self-loops behind transitions, as is usual (default: true)
    """
    from pykaldist.decode.word_align import WordAligner
    from pykaldist.programs.models import read_transition_model

    rows = _rows(boundary)
    aligner = WordAligner({int(phone): position for phone, position in rows}, read_transition_model(model), reorder, silence_label,
                          partial_word_label)

    def aligned(lattice: Lattice) -> Lattice:
        return aligner.align(lattice, int(1000 + max_expand * lattice.num_states) if max_expand else 0)

    return changed(source, target, aligned, "aligned on words")


def lattice_align_words_lexicon(lexicon: str, model: str, source: str, target: str, *, output_error_lats: bool = True,
                                output_if_empty: bool = False, test: bool = False, allow_duplicate_paths: bool = False,
                                max_expand: float = 0.0, partial_word_label: int = 0, reorder: bool = True) -> int:
    """Make lattices whose arcs are whole words in time, by a lexicon that says which phones words have.

    Usage: lattice-align-words-lexicon [options] <align_lexicon.int> <model> <lattice-rspecifier> <lattice-wspecifier>
    e.g.: lattice-align-words-lexicon data/lang/phones/align_lexicon.int exp/tri3/final.mdl ark:1.lats ark:aligned.lats

    Options:
      --output-error-lats: has no effect: lattices that cannot be aligned are named and left out
      --output-if-empty: has no effect: likewise
      --test: has no effect
      --allow-duplicate-paths: has no effect: each way to divide a path is there once
      --max-expand: leave a lattice out that grows by more than this factor (default: 0: any)
      --partial-word-label: has no effect: paths that end in the midst of a word are left out
      --reorder: whether the graph was made with self-loops behind transitions, as is usual (default: true)
    """
    from pykaldist.decode.word_align import LexiconAligner
    from pykaldist.programs.models import read_transition_model

    aligner = LexiconAligner(_lexicon(lexicon), read_transition_model(model), reorder)

    def aligned(lattice: Lattice) -> Lattice:
        return aligner.align(lattice, int(1000 + max_expand * lattice.num_states) if max_expand > 0 else 0)

    return changed(source, target, aligned, "aligned on words")


def _lexicon(name: str) -> Iterator[tuple[int, int, list[int]]]:
    with open_rxfilename(name) as stream:
        for number, line in enumerate(stream.read().decode("utf-8").splitlines(), 1):
            fields = line.split()
            if len(fields) < 2 or not all(field.isdecimal() for field in fields):
                raise UserError(f"{name}, line {number}: expected numbers of a word, of the word to write and of phones, found {line!r}.")
            word, label, *phones = map(int, fields)
            yield word, label, phones


def _rows(name: str) -> Iterator[tuple[str, str]]:
    with open_rxfilename(name) as stream:
        for number, line in enumerate(stream.read().decode("utf-8").splitlines(), 1):
            fields = line.split()
            if len(fields) != 2 or fields[1] not in ("nonword", "begin", "end", "internal", "singleton") or not fields[0].isdecimal():
                raise UserError(f"{name}, line {number}: expected a phone's number and nonword, begin, end, internal or singleton, "
                                f"found {line!r}.")
            yield fields[0], fields[1]
