"""Programs on tables of features: normalisation, deltas, splicing, transforms, selections."""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import RandomAccess, TableWriter, is_table, read_object, read_table, read_token, write_value
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.programs.command import say
from pykaldist.programs.number_lists import integers


def add_deltas(feats: str, target: str, *, delta_order: int = 2, delta_window: int = 2, truncate: int = 0) -> int:
    """Append deltas to features.

    Usage: add-deltas [options] <feats-rspecifier> <feats-wspecifier>
    e.g.: add-deltas scp:data/train/feats.scp ark:-

    Options:
      --delta-order: highest order (default: 2)
      --delta-window: frames on either side that a delta looks at (default: 2)
      --truncate: use the first so many dimensions only (default: 0: all)
    """
    from pykaldist.feats.deltas import DeltaOptions
    from pykaldist.feats.deltas import add_deltas as with_deltas

    options = DeltaOptions(delta_order, delta_window)
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            if truncate > x.shape[1]:
                raise UserError(f"{feats}, {key}: --truncate={truncate} of features of {x.shape[1]} dimensions.")
            out.write(key, with_deltas(x[:, :truncate] if truncate else x, options.delta_order, options.delta_window))
    return _done(out.count, "utterances")


def apply_cmvn(stats: str, feats: str, target: str, *, utt2spk: str = "", norm_means: bool = True, norm_vars: bool = False,
               reverse: bool = False, skip_dims: str = "") -> int:
    """Normalise the mean, and the variance, of features.

    Usage: apply-cmvn [options] (<cmvn-stats-rspecifier>|<file>) <feats-rspecifier> <feats-wspecifier>
    e.g.: apply-cmvn --utt2spk=ark:data/train/utt2spk scp:data/train/cmvn.scp scp:data/train/feats.scp ark:-

    Options:
      --utt2spk: rspecifier of each utterance's speaker, for whom the statistics are
      --norm-means: subtract the mean (default: true)
      --norm-vars: divide by the standard deviation (default: false)
      --reverse: put mean and variance of the statistics into normalised features (default: false)
      --skip-dims: dimensions to leave as they are, such as 13:14:15
    """
    from pykaldist.feats.cmvn import apply_cmvn as normalised

    if norm_vars and not norm_means:
        raise UserError("--norm-vars=true needs --norm-means=true.")
    skipped = integers("--skip-dims", skip_dims)
    of_table = RandomAccess(stats, read_value, utt2spk) if is_table(stats) else None
    of_file = None if of_table else read_object(stats, read_value)
    missing = 0
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            found = of_table.get(key) if of_table else of_file
            if found is None:
                say(f"WARNING: {stats} has no statistics for {key}")
                missing += 1
                continue
            if not norm_means:
                y = x
            elif reverse:
                y = _reversed(x, found, norm_vars)
            else:
                y = normalised(x, found, norm_vars)
            if skipped:
                y = y.copy()
                y[:, skipped] = x[:, skipped]
            out.write(key, y)
    return _done(out.count, f"utterances normalised, {missing} without statistics", bare=True)


def _reversed(x: np.ndarray, stats: np.ndarray, norm_vars: bool) -> np.ndarray:
    mean = stats[0, :-1] / stats[0, -1]
    scale = np.sqrt(np.maximum(stats[1, :-1] / stats[0, -1] - mean * mean, 1e-20)) if norm_vars else np.ones_like(mean)
    return x * scale.astype(np.float32) + mean.astype(np.float32)


def apply_cmvn_sliding(feats: str, target: str, *, center: bool = False, cmn_window: int = 600, min_cmn_window: int = 100,
                       norm_vars: bool = False, norm_means: bool = True) -> int:
    """Normalise features over a window that slides with the frames.

    Usage: apply-cmvn-sliding [options] <feats-rspecifier> <feats-wspecifier>
    e.g.: apply-cmvn-sliding --cmn-window=300 --center=true scp:feats.scp ark:-

    Options:
      --center: a window centred on the frame, instead of one that ends with it (default: false)
      --cmn-window: frames in the window (default: 600)
      --min-cmn-window: least frames in it at the beginning, without --center (default: 100)
      --norm-means: subtract the mean; false leaves features as they are (default: true)
      --norm-vars: divide by the standard deviation (default: false)
    """
    from pykaldist.feats.cmvn import sliding_cmvn

    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            out.write(key, sliding_cmvn(x, cmn_window, min_cmn_window, center, norm_vars) if norm_means else x)
    return _done(out.count, "utterances")


def compute_cmvn_stats(feats: str, target: str, *, spk2utt: str = "", binary: bool = True, weights: str = "") -> int:
    """Sum features and their squares, over each utterance, each speaker, or all.

    Usage: compute-cmvn-stats [options] <feats-rspecifier> (<stats-wspecifier>|<file>)
    e.g.: compute-cmvn-stats --spk2utt=ark:data/train/spk2utt scp:data/train/feats.scp ark,scp:cmvn.ark,cmvn.scp

    Options:
      --binary: write a file in binary form (default: true)
      --spk2utt: rspecifier of each speaker's utterances (default: statistics of each utterance, or of all in a file)
      --weights: rspecifier of a weight for each frame
    """
    from pykaldist.feats.cmvn import cmvn_stats

    of_weights = RandomAccess(weights, read_value) if weights else None

    def stats(key: str, x: np.ndarray) -> np.ndarray | None:
        if of_weights is None:
            return cmvn_stats([x])
        weight = of_weights.get(key)
        if weight is None or len(weight) != len(x):
            say(f"WARNING: {weights} has no weights of {key}'s {len(x)} frames")
            return None
        wide = x.astype(np.float64)
        return np.vstack([np.append(weight @ wide, weight.sum(dtype=np.float64)), np.append(weight @ (wide * wide), 0.0)])

    if not is_table(target):
        if spk2utt:
            raise UserError("--spk2utt is for a table of statistics; give a wspecifier (ark:...).")
        parts = [part for key, x in read_table(feats, read_value) if (part := stats(key, x)) is not None]
        if not parts:
            raise UserError(f"{feats} has no features to take the mean and variance of.")
        with open_wxfilename(target) as stream:
            write_value(stream, np.sum(parts, axis=0), binary)
        return _done(len(parts), "utterances")
    with TableWriter(target, write_value) as out:
        if spk2utt:
            values = RandomAccess(feats, read_value)
            for speaker, utts in read_table(spk2utt, read_token):
                found = [(utt, values.get(utt)) for utt in utts.split()]
                for utt, x in found:
                    if x is None:
                        say(f"WARNING: {feats} has no features of {utt}")
                parts = [part for utt, x in found if x is not None and (part := stats(utt, x)) is not None]
                if parts:
                    out.write(speaker, np.sum(parts, axis=0))
        else:
            for key, x in read_table(feats, read_value):
                if (part := stats(key, x)) is not None:
                    out.write(key, part)
    return _done(out.count, "speakers" if spk2utt else "utterances")


def modify_cmvn_stats(dims: str, source: str, target: str = "", *, convert_to_mean_and_var: bool = False) -> int:
    """Change CMVN statistics so that some dimensions are not normalised.

    Usage: modify-cmvn-stats [options] [<dims, such as 13:14:15>] <stats-rspecifier> <stats-wspecifier>
    e.g.: modify-cmvn-stats 13:14:15 scp:data/train/cmvn.scp ark:-

    Options:
      --convert-to-mean-and-var: write means and variances instead of sums (default: false)
    """
    if not target:
        dims, source, target = "", dims, source
    chosen = integers("dimensions", dims)
    with TableWriter(target, write_value) as out:
        for key, stats in read_table(source, read_value):
            stats = stats.astype(np.float64)
            if chosen and max(chosen) >= stats.shape[1] - 1:
                raise UserError(f"{source}, {key}: dimension {max(chosen)} of statistics of {stats.shape[1] - 1} dimensions.")
            stats[0, chosen], stats[1, chosen] = 0.0, stats[0, -1]
            if convert_to_mean_and_var:
                mean = stats[0, :-1] / stats[0, -1]
                stats = np.vstack([mean, stats[1, :-1] / stats[0, -1] - mean * mean])
            out.write(key, stats)
    return _done(out.count, "statistics")


def paste_feats(*tables: str, length_tolerance: int = 0, binary: bool = True) -> int:
    """Put the dimensions of several tables of features beside each other.

    Usage: paste-feats [options] <feats-rspecifier> <feats-rspecifier> ... <feats-wspecifier>, or of files
    e.g.: paste-feats --length-tolerance=2 ark:mfcc.ark ark:pitch.ark ark:-

    Options:
      --binary: write a file in binary form (default: true)
      --length-tolerance: frames by which an utterance's lengths may differ; the longer ones are cut (default: 0)
    """
    if len(tables) < 3:
        raise UserError("expected two sources or more, and a target.")
    first, *others, target = tables
    if not is_table(first):
        pasted = _pasted([read_object(name, read_value) for name in (first, *others)], length_tolerance)
        if pasted is None:
            raise UserError("the files' numbers of rows differ by more than --length-tolerance.")
        with open_wxfilename(target) as stream:
            write_value(stream, pasted, binary)
        return 0
    more = [RandomAccess(table, read_value) for table in others]
    left_out = 0
    with TableWriter(target, write_value) as out:
        for key, x in read_table(first, read_value):
            parts = [table.get(key) for table in more]
            pasted = None if any(part is None for part in parts) else _pasted([x, *(p for p in parts if p is not None)], length_tolerance)
            if pasted is None:
                say(f"WARNING: {key} is not in every table with the same number of frames")
                left_out += 1
            else:
                out.write(key, pasted)
    return _done(out.count, f"utterances pasted, {left_out} left out", bare=True)


def _pasted(parts: list[np.ndarray], tolerance: int) -> np.ndarray | None:
    lengths = [len(part) for part in parts]
    if max(lengths) - min(lengths) > tolerance or min(lengths) == 0:
        return None
    return np.hstack([part[: min(lengths)] for part in parts])


def select_feats(selection: str, feats: str, target: str) -> int:
    """Keep some dimensions of features, in the order given.

    Usage: select-feats <selection> <feats-rspecifier> <feats-wspecifier>
    e.g.: select-feats 0,3-5,1 scp:feats.scp ark:-
    """
    dims: list[int] = []
    try:
        for part in selection.split(","):
            first, _, last = part.partition("-")
            dims += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise UserError(f"{selection!r}: expected dimensions such as 0,3-5,1.") from error
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            if not dims or max(dims) >= x.shape[1] or min(dims) < 0:
                raise UserError(f"{feats}, {key}: features of {x.shape[1]} dimensions have no {selection}.")
            out.write(key, x[:, dims])
    return _done(out.count, "utterances")


def splice_feats(feats: str, target: str, *, left_context: int = 4, right_context: int = 4) -> int:
    """Put each frame's neighbours beside it.

    Usage: splice-feats [options] <feats-rspecifier> <feats-wspecifier>
    e.g.: splice-feats --left-context=3 --right-context=3 scp:feats.scp ark:-

    Options:
      --left-context: frames before (default: 4)
      --right-context: frames behind (default: 4)
    """
    from pykaldist.feats.splice import SpliceOptions, splice

    options = SpliceOptions(left_context, right_context)
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            out.write(key, splice(x, options.left_context, options.right_context))
    return _done(out.count, "utterances")


def subsample_feats(feats: str, target: str, *, n: int = 1, offset: int = 0) -> int:
    """Keep every n-th frame of features, or repeat each.

    Usage: subsample-feats [options] <feats-rspecifier> <feats-wspecifier>
    e.g.: subsample-feats --n=3 scp:feats.scp ark:-

    Options:
      --n: keep one frame of so many; a negative number repeats each frame so often (default: 1)
      --offset: the first frame kept (default: 0)
    """
    if n == 0 or offset < 0 or (n < 0 and offset):
        raise UserError(f"--n={n} --offset={offset}: expected n other than 0, an offset of 0 or more, and 0 with a negative n.")
    left_out = 0
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            y = x[offset::n] if n > 0 else np.repeat(x, -n, axis=0)
            if len(y):
                out.write(key, y)
            else:
                say(f"WARNING: of {key}'s {len(x)} frames none is left")
                left_out += 1
    return _done(out.count, f"utterances, {left_out} without a frame left out", bare=True)


def transform_feats(transform: str, feats: str, target: str, *, utt2spk: str = "") -> int:
    """Apply a linear or affine transform to features: one of a file, or one for each speaker or utterance.

    Usage: transform-feats [options] (<transform-rspecifier>|<file>) <feats-rspecifier> <feats-wspecifier>
    e.g.: transform-feats --utt2spk=ark:data/train/utt2spk ark:exp/tri3/trans.1 scp:feats.scp ark:-

    Options:
      --utt2spk: rspecifier of each utterance's speaker, for whom the transforms are
    """
    from pykaldist.feats.transforms import apply_transform

    of_table = RandomAccess(transform, read_value, utt2spk) if is_table(transform) else None
    of_file = None if of_table else read_object(transform, read_value)
    missing = 0
    with TableWriter(target, write_value) as out:
        for key, x in read_table(feats, read_value):
            matrix = of_table.get(key) if of_table else of_file
            if matrix is None:
                say(f"WARNING: {transform} has no transform for {key}")
                missing += 1
            else:
                out.write(key, apply_transform(x, matrix, f"{transform}, {key}"))
    return _done(out.count, f"utterances transformed, {missing} without a transform", bare=True)


def _done(count: int, what: str, bare: bool = False) -> int:
    say(f"{count} {what}" if bare else f"{count} {what} done")
    return 0 if count else 1
