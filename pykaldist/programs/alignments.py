"""Programs on alignments and posteriors: from transition-ids to pdfs, phones, posteriors, counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel, check_range
from pykaldist.io.archive import read_value
from pykaldist.io.lang import SymbolTable
from pykaldist.io.posteriors import Posterior, posterior_bytes, read_posterior
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_ints, read_table, write_value
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.programs.command import say
from pykaldist.programs.models import read_transition_model
from pykaldist.programs.number_lists import integers, read_integer, read_number

HALF_FRAME = 0.5


def read_alignments(rspecifier: str, model: TransitionModel) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (utterance, transition_ids) of a table; raises UserError for ids that the model lacks."""
    for utt, tids in read_table(rspecifier, read_ints):
        check_range(tids, 1, model.num_transition_ids, f"{rspecifier}, {utt}")
        yield utt, tids


def write_posterior(stream: IO[bytes], value: Posterior, binary: bool) -> None:
    """Write the posteriors of an utterance."""
    stream.write(posterior_bytes(value, binary))


def ali_to_pdf(model: str, alignments: str, pdfs: str) -> int:
    """Turn alignments (transition-ids) into pdfs, one a frame.

    Usage: ali-to-pdf <model> <alignments-rspecifier> <pdfs-wspecifier>
    e.g.: ali-to-pdf exp/tri1/final.mdl "ark:gunzip -c exp/tri1/ali.*.gz|" ark,t:-
    """
    transitions = read_transition_model(model)
    with TableWriter(pdfs, write_value) as out:
        for utt, tids in read_alignments(alignments, transitions):
            out.write(utt, transitions.tid2pdf[tids])
    say(f"{out.count} alignments turned into pdfs")
    return 0 if out.count else 1


def ali_to_phones(model: str, alignments: str, phones: str, *, per_frame: bool = False, write_lengths: bool = False,
                  ctm_output: bool = False, frame_shift: float = 0.01) -> int:
    """Turn alignments (transition-ids) into phones: a sequence, one a frame, with lengths, or a CTM.

    Usage: ali-to-phones [options] <model> <alignments-rspecifier> (<phones-wspecifier>|<ctm>)
    e.g.: ali-to-phones --per-frame=true exp/tri1/final.mdl "ark:gunzip -c exp/tri1/ali.1.gz|" ark,t:-

    Options:
      --per-frame: a phone a frame (default: false)
      --write-lengths: pairs of phone and frames, 1 12 ; 48 9 ; ... (default: false)
      --ctm-output: write a CTM to a file: utterance 1 start duration phone (default: false)
      --frame-shift: seconds a frame, for the CTM (default: 0.01)
    """
    if per_frame + write_lengths + ctm_output > 1:
        raise UserError("--per-frame, --write-lengths and --ctm-output exclude each other; choose one.")
    transitions = read_transition_model(model)
    utterances = read_alignments(alignments, transitions)
    count = 0
    if ctm_output:
        digits = 3 if frame_shift < 0.01 else 2
        with open_wxfilename(phones.removeprefix("ark,t:")) as stream:
            for utt, tids in utterances:
                count += 1
                for phone, start, length in zip(*(column.tolist() for column in phone_segments(tids, transitions)), strict=True):
                    stream.write(f"{utt} 1 {start * frame_shift:.{digits}f} {length * frame_shift:.{digits}f} {phone}\n".encode())
    elif write_lengths:
        with TableWriter(phones, write_pairs) as pairs:
            for utt, tids in utterances:
                found, _, lengths = phone_segments(tids, transitions)
                pairs.write(utt, list(zip(found.tolist(), lengths.tolist(), strict=True)))
        count = pairs.count
    else:
        with TableWriter(phones, write_value) as out:
            for utt, tids in utterances:
                out.write(utt, transitions.tid2phone[tids] if per_frame else phone_segments(tids, transitions)[0].astype(np.int32))
        count = out.count
    say(f"{count} alignments turned into phones")
    return 0 if count else 1


def write_pairs(stream: IO[bytes], pairs: list[tuple[int, int]], binary: bool) -> None:
    """Write pairs of integers."""
    if binary:
        stream.write(b"\0B" + b"\4" + np.int32(len(pairs)).tobytes())
        stream.write(b"".join(b"\4" + np.int32(value).tobytes() for pair in pairs for value in pair))
    else:
        stream.write(("; ".join(f"{phone} {length} " for phone, length in pairs) + "\n").encode())


def ali_to_post(alignments: str, posteriors: str) -> int:
    """Turn alignments (transition-ids or pdfs) into posteriors with one label of weight 1 a frame.

    Usage: ali-to-post <alignments-rspecifier> <posteriors-wspecifier>
    e.g.: ali-to-pdf final.mdl "ark:gunzip -c ali.1.gz|" ark:- | ali-to-post ark:- ark:pdf.post
    """
    with TableWriter(posteriors, write_posterior) as out:
        for utt, labels in read_table(alignments, read_ints):
            out.write(utt, Posterior.from_alignment(labels))
    say(f"{out.count} alignments turned into posteriors")
    return 0 if out.count else 1


def feat_to_post(feats: str, posteriors: str) -> int:
    """Turn features into posteriors: in each frame, the dimensions as labels with their values as weights.

    So features can be the targets of a network that is trained with the mean square error.

    Usage: feat-to-post <feats-rspecifier> <posteriors-wspecifier>
    e.g.: feat-to-post scp:data/train/feats.scp ark:feats.post
    """
    with TableWriter(posteriors, write_posterior) as out:
        for utt, x in read_table(feats, read_value):
            frames, dims = x.shape
            labels = np.tile(np.arange(dims, dtype=np.int32), frames)
            out.write(utt, Posterior(np.arange(frames + 1) * dims, labels, x.astype(np.float32).ravel()))
    say(f"{out.count} matrices turned into posteriors")
    return 0 if out.count else 1


def copy_post(source: str, target: str) -> int:
    """Copy posteriors.

    Usage: copy-post <rspecifier> <wspecifier>
    e.g.: copy-post ark:1.post ark,t:- | less
    """
    with TableWriter(target, write_posterior) as out:
        for utt, posterior in read_table(source, read_posterior):
            out.write(utt, posterior)
    say(f"{out.count} posteriors copied")
    return 0 if out.count else 1


def paste_post(lengths: str, dims: str, *tables: str, allow_partial: bool = False) -> int:
    """Join posteriors of several sets of labels to one: the labels of each table follow those of the table before.

    Usage: paste-post [options] <lengths-rspecifier> <dim>:<dim>... <posteriors-rspecifier>... <posteriors-wspecifier>
    e.g.: paste-post "ark:feat-to-len scp:feats.scp ark,t:- |" 1024:48 ark:post1.ark ark:post2.ark ark:pasted.ark

    Options:
      --allow-partial: write utterances that are not in every table, too (default: false)
    """
    *sources, target = tables or ("",)
    sizes = integers("dimensions", dims.replace(",", ":"))
    if len(sizes) != len(sources):
        raise UserError(f"{dims!r} has {len(sizes)} dimensions for {len(sources)} tables of posteriors; expected as many.")
    readers = [RandomAccess(source, read_posterior) for source in sources]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    left_out = 0
    with TableWriter(target, write_posterior) as out:
        for utt, frames in read_table(lengths, read_integer):
            parts = [reader.get(utt) for reader in readers]
            wrong = [part for part in parts if part is not None and len(part) != frames]
            if wrong or not any(parts) or (None in parts and not allow_partial):
                say(f"WARNING: {utt} of {frames} frames is left out: "
                    + (f"it has posteriors of {len(wrong[0])} frames" if wrong else "tables have no posteriors of it"))
                left_out += 1
                continue
            for part, size in zip(parts, sizes, strict=True):
                if part is not None and len(part.ids) and not 0 <= part.ids.min() <= part.ids.max() < size:
                    raise UserError(f"{utt}: found the label {part.ids.max()} where {size} labels are; check the dimensions {dims}.")
            frame = [np.repeat(np.arange(frames), np.diff(part.offsets)) for part in parts if part is not None]
            ids = [part.ids + offset for part, offset in zip(parts, offsets, strict=False) if part is not None]
            order = np.argsort(np.concatenate(frame), kind="stable")
            bounds = np.concatenate([[0], np.cumsum(np.bincount(np.concatenate(frame), minlength=frames))])
            weights = np.concatenate([part.weights for part in parts if part is not None])
            out.write(utt, Posterior(bounds, np.concatenate(ids).astype(np.int32)[order], weights[order]))
    say(f"{out.count} posteriors pasted, {left_out} left out")
    return 0 if out.count else 1


def show_alignments(phones: str, model: str, alignments: str) -> int:
    """Show alignments for people: the transition-ids of each phone in brackets, the phone's name below.

    Usage: show-alignments <phones.txt> <model> <alignments-rspecifier>
    e.g.: show-alignments data/lang/phones.txt exp/mono/final.mdl "ark:gunzip -c exp/mono/ali.1.gz|" | less -S
    """
    symbols, transitions = SymbolTable.read(phones), read_transition_model(model)
    count = 0
    for utt, tids in read_alignments(alignments, transitions):
        count += 1
        ids, names = "", ""
        for phone, start, length in zip(*(column.tolist() for column in phone_segments(tids, transitions)), strict=True):
            shown = f"[ {' '.join(map(str, tids[start:start + length].tolist()))} ] "
            name = symbols.symbol(phone) + " "
            width = max(len(shown), len(name))
            ids, names = ids + shown.ljust(width), names + name.ljust(width)
        print(f"{utt}  {ids}\n{utt}  {names}\n")
    return 0 if count else 1


def analyze_counts(labels: str, counts: str, *, binary: bool = False, counts_dim: int = 0, frame_weights: str = "", utt_weights: str = "",
                   symbol_table: str = "") -> int:
    """Count how often each label occurs, with half a frame added to each: ali_train_pdf.counts, of which priors are made.

    Usage: analyze-counts [options] <labels-rspecifier> <counts>
    e.g.: ali-to-pdf final.mdl "ark:gunzip -c ali.*.gz|" ark:- | analyze-counts --counts-dim=712 ark:- ali_train_pdf.counts

    Options:
      --binary: write binary (default: false)
      --counts-dim: length of the vector (default: 0: up to the highest label)
      --frame-weights: rspecifier of each frame's weight
      --utt-weights: rspecifier of each utterance's weight
      --symbol-table: names of the labels; the counts are printed to the log with them
    """
    total = np.zeros(counts_dim)
    of_frames = RandomAccess(frame_weights, read_value) if frame_weights else None
    of_utts = RandomAccess(utt_weights, read_number) if utt_weights else None
    skipped = 0
    for utt, found in read_table(labels, read_ints):
        if len(found) and (found.min() < 0 or (counts_dim and found.max() >= counts_dim)):
            raise UserError(f"{labels}, {utt}: found the label {found.min() if found.min() < 0 else found.max()}, expected 0 to "
                            f"{counts_dim - 1 if counts_dim else '...'}; give pdfs, and the model's number of them.")
        weights = of_frames.get(utt) if of_frames else np.ones(len(found))
        scale = of_utts.get(utt) if of_utts else 1.0
        if weights is None or len(weights) != len(found) or scale is None:
            say(f"WARNING: {utt} has no weights for its {len(found)} frames")
            skipped += 1
            continue
        part = np.bincount(found, weights * scale)
        total = np.pad(total, (0, max(len(part) - len(total), 0)))
        total[: len(part)] += part
    with open_wxfilename(counts) as stream:
        if binary:
            write_value(stream, total + HALF_FRAME, True)
        else:
            stream.write((" [ " + " ".join(f"{c:.10g}" for c in total + HALF_FRAME) + " ]\n").encode())
    if symbol_table:
        names = SymbolTable.read(symbol_table)
        for label in np.argsort(total, kind="stable").tolist():
            say(f"{total[label]:g}\t({total[label] / total.sum():g})\t{label}\t({names.symbol(label)})")
    say(f"{total.sum():g} frames of {np.count_nonzero(total)} labels counted, {skipped} utterances left out; {len(total)} in {counts}")
    return 0
