"""Programs on lattices of one path: made of alignments and transcripts, and the pronunciations of their words."""

from __future__ import annotations

import numpy as np

from pykaldist.decode.lattice_tables import read_lattice_table
from pykaldist.decode.lattice_tables import write_compact as _compact
from pykaldist.errors import UserError
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_ints, read_table, read_token
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.programs.command import say
from pykaldist.programs.models import read_transition_model


def linear_to_nbest(alignments: str, transcripts: str, lm_costs: str, acoustic_costs: str, target: str) -> int:
    """Make lattices of one path of alignments and transcripts.

    Usage: linear-to-nbest <alignments-rspecifier> <transcripts-rspecifier> <lm-costs-rspecifier|""> <acoustic-costs-rspecifier|"">
      <lattice-wspecifier>
    e.g.: linear-to-nbest "ark:gunzip -c ali.1.gz|" "ark:utils/sym2int.pl -f 2- words.txt < text|" "" "" ark:- |
      lattice-align-words word_boundary.int final.mdl ark:- ark:aligned.lats
    """
    from pykaldist.decode.paths import LatticePath

    words = RandomAccess(transcripts, read_ints)
    costs = [RandomAccess(name, read_token) if name else None for name in (lm_costs, acoustic_costs)]
    missing = 0
    with TableWriter(target, _compact) as out:
        for utt, tids in read_table(alignments, read_ints):
            text = words.get(utt)
            found = [0.0 if table is None else table.get(utt) for table in costs]
            if text is None or None in found:
                say(f"WARNING: {utt} has no {'transcript' if text is None else 'cost'}")
                missing += 1
                continue
            out.write(utt, LatticePath(text.tolist(), tids.astype(np.int32), *(float(cost or 0.0) for cost in found)).lattice())
    say(f"{out.count} paths written, {missing} left out")
    return 0 if out.count else 1


def nbest_to_prons(model: str, source: str, target: str) -> int:
    """Write the pronunciations of words of lattices of one path that are aligned on words.

    Lines are `utterance first-frame frames word phone ...`, in numbers; silences are the word 0.

    Usage: nbest-to-prons <model> <lattice-rspecifier> <prons>
    e.g.: lattice-1best --lm-scale=10 ark:1.lats ark:- | lattice-align-words word_boundary.int final.mdl ark:- ark:- |
      nbest-to-prons final.mdl ark:- "|gzip -c > prons.1.gz"
    """
    transitions = read_transition_model(model)
    count = 0
    with open_wxfilename(target) as stream:
        for utt, lattice in read_lattice_table(source):
            if (np.diff(lattice.offset) > 1).any() or (lattice.target != np.arange(1, lattice.num_arcs + 1)).any():
                raise UserError(f"{source}, {utt}: expected a lattice of one path; give the output of lattice-1best.")
            begin = 0
            for arc, word in enumerate(lattice.word.tolist()):
                tids = lattice.ids(arc)
                phones = " ".join(map(str, phone_segments(tids, transitions)[0].tolist()))
                if len(tids) or word:
                    stream.write(f"{utt} {begin} {len(tids)} {word} {phones}".rstrip().encode() + b"\n")
                begin += len(tids)
            count += 1
    say(f"{count} paths done")
    return 0 if count else 1
