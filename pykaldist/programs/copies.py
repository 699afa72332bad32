"""Programs on tables and files of matrices and vectors that look at no numbers: copies and sizes. They start without numpy."""

from __future__ import annotations

from pykaldist.errors import MADE, UserError
from pykaldist.io.lazy_values import LazyValue, read_lazy, read_lazy_ints, write_lazy
from pykaldist.io.table_streams import Read, TableWriter, Write, is_table, read_object, read_table, write_token
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.programs.command import say


def _copy(source: str, target: str, what: str, read: Read[LazyValue], write: Write[LazyValue], binary: bool) -> int:
    """Copy a table to a table, or a file to a file; returns the exit status."""
    if is_table(source) != is_table(target):
        raise UserError(f"{source!r} and {target!r}: expected two tables (ark:, scp:) or two files.")
    if not is_table(source):
        value = read_object(source, read)
        with open_wxfilename(target) as stream:
            write(stream, value, binary)
        return 0
    with TableWriter(target, write) as out:
        for key, value in read_table(source, read):
            out.write(key, value)
    say(f"{out.count} {what} copied")
    return 0 if out.count else 1


def copy_feats(feats: str, target: str, *, compress: bool = False, compression_method: int = 1, binary: bool = True, htk_in: bool = False,
               sphinx_in: bool = False, write_num_frames: str = "") -> int:
    """Copy features, or other matrices, between archives, scp files and text.

    Usage: copy-feats [options] <feats-rspecifier> <feats-wspecifier>
    e.g.: copy-feats scp:data/train/feats.scp ark,t:-

    Options:
      --compress: one or two bytes a value, in binary archives (default: false)
      --compression-method: Kaldi's number of the method, 1 to 7 (default: 1, which is 2 here: one byte a value, speech features)
      --binary: for two files instead of tables: write binary (default: true)
      --htk-in: not here
      --sphinx-in: not here
      --write-num-frames: wspecifier for each utterance's number of frames
    """
    if htk_in or sphinx_in:
        raise UserError("--htk-in and --sphinx-in: files of HTK and Sphinx are not read here; convert them with another program.")
    write = _compressing(2 if compression_method == 1 else compression_method) if compress else write_lazy
    if not write_num_frames:
        return _copy(feats, target, "matrices", read_lazy, write, binary)
    with TableWriter(target, write) as out, TableWriter(write_num_frames, write_token) as lengths:
        for key, value in read_table(feats, read_lazy):
            out.write(key, value)
            lengths.write(key, value.shape[0])
    say(f"{out.count} matrices copied")
    return 0 if out.count else 1


def _compressing(method: int) -> Write[LazyValue]:
    """A writer of matrices by one of Kaldi's compression methods."""
    from pykaldist.io.table_streams import compressing

    write = compressing(method)
    return lambda stream, value, binary: write(stream, value.array(), binary)


def copy_int_vector(source: str, target: str, *, binary: bool = True) -> int:
    """Copy vectors of integers, such as alignments, from a table to a table or from a file to a file.

    Usage: copy-int-vector [options] <rspecifier> <wspecifier> or copy-int-vector [options] <file> <file>
    e.g.: copy-int-vector "ark:gunzip -c exp/mono/ali.1.gz|" ark,t:-

    Options:
      --binary: write a file in binary form; a table says so itself (default: true)
    """
    return _copy(source, target, "vectors", read_lazy_ints, write_lazy, binary)


def feat_to_dim(feats: str, output: str = "-") -> int:
    """Print the dimension of features, of the first utterance, or of each to a table.

    Usage: feat-to-dim [options] <feats-rspecifier> (<file>|<wspecifier>)
    e.g.: feat-to-dim scp:data/train/feats.scp -
    """
    if is_table(output):
        with TableWriter(output, write_token) as out:
            for key, value in read_table(feats, read_lazy):
                out.write(key, value.shape[1])
        return 0 if out.count else 1
    item = next(read_table(feats, read_lazy), None)
    if item is None:
        raise UserError(f"{feats} has no features; {MADE}.")
    with open_wxfilename(output) as stream:
        stream.write(b"%d\n" % item[1].shape[1])
    return 0


def feat_to_len(feats: str, output: str = "") -> int:
    """Print the number of frames of all features together, or of each utterance to a table.

    Usage: feat-to-len [options] <feats-rspecifier> [<lengths-wspecifier>]
    e.g.: feat-to-len scp:data/train/feats.scp ark,t:feats.len
    """
    if not output:
        print(sum(value.shape[0] for _, value in read_table(feats, read_lazy)))
        return 0
    with TableWriter(output, write_token) as out:
        for key, value in read_table(feats, read_lazy):
            out.write(key, value.shape[0])
    return 0 if out.count else 1


def matrix_dim(source: str, target: str = "", *, read_speaker: bool = False) -> int:
    """Print the rows and columns of a matrix, or of each of a table.

    Usage: matrix-dim [options] <file>|<rspecifier> [<wspecifier>]
    e.g.: matrix-dim final.mat

    Options:
      --read-speaker: has no effect
    """
    if not is_table(source):
        print(*read_object(source, read_lazy).shape)
        return 0
    with TableWriter(target or "ark,t:-", write_token) as out:
        for key, value in read_table(source, read_lazy):
            out.write(key, " ".join(map(str, value.shape)))
    return 0 if out.count else 1
