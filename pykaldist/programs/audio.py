"""Programs on sound: copies, lengths, segments, and the features of recordings.

An entry of a wav.scp may be a command, `sph2pipe -f wav x.sph |`. It is run, for the user has named the table on the command line.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.audio import AudioError, cut_segment, decode_audio, read_channels
from pykaldist.io.table_streams import TableWriter, archive_sources, is_table, read_scp, read_table, write_token, write_value
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename
from pykaldist.programs.command import say

Wave = tuple[np.ndarray, int]  # samples [number, channels] in 16-bit scale, sampling rate in Hz
_UNKNOWN = (0, 0x7FFFFFFF, 0x7FFFF000, 0x80000000, 0xFFFFFFFF)  # sizes in headers of programs that write into pipes


def read_wave(stream: io.BufferedReader) -> Wave:
    """Read a wav file of an archive, where the next entry follows."""
    head = stream.read(8)
    size = struct.unpack("<I", head[4:8])[0] if len(head) == 8 else 0
    if head[:4] != b"RIFF":
        raise ValueError("expected a wav file")
    rest = stream.read() if size in _UNKNOWN else stream.read(size)
    return decode_audio(head + rest, "an archive's entry", piped=size in _UNKNOWN)


def write_wave(stream: IO[bytes], wave: Wave, binary: bool) -> None:
    """Write a wav file of 16-bit samples."""
    samples, rate = wave
    data = np.clip(np.rint(samples), -32768, 32767).astype("<i2").tobytes()
    channels = samples.shape[1]
    stream.write(struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, channels, rate, 2 * channels * rate,
                             2 * channels, 16, b"data", len(data)) + data)


def waves(rspecifier: str) -> Iterator[tuple[str, Wave | AudioError]]:
    """Iterate over (recording, wave), or (recording, what is wrong with it), of a table."""
    if archive_sources(rspecifier) is not None:
        yield from read_table(rspecifier, read_wave)
        return
    for key, source in read_scp(rspecifier):
        try:
            yield key, read_channels(source, pipes=True)
        except AudioError as error:
            yield key, error


def sound(rspecifier: str) -> Iterator[tuple[str, Wave]]:
    """Iterate over (recording, wave) of a table; those that cannot be read are named and left out."""
    for key, wave in waves(rspecifier):
        if isinstance(wave, AudioError):
            say(f"WARNING: {key}: {wave}")
        else:
            yield key, wave


def wav_copy(source: str, target: str) -> int:
    """Copy sound, from a table to a table or from a file to a file, as wav files of 16 bits.

    Usage: wav-copy <wav-rspecifier> <wav-wspecifier> or wav-copy <rxfilename> <wxfilename>
    e.g.: wav-copy scp:wav.scp ark:- | wav-to-duration ark:- ark,t:-
    """
    if not is_table(source):
        with open_rxfilename(source) as stream:
            wave = decode_audio(stream.read(), source, piped=True)
        with open_wxfilename(target) as out:
            write_wave(out, wave, True)
        return 0
    with TableWriter(target, write_wave) as table:
        for key, wave in sound(source):
            table.write(key, wave)
    say(f"{table.count} recordings copied")
    return 0 if table.count else 1


def wav_to_duration(source: str, target: str, *, read_entire_file: bool = True) -> int:
    """Write how long each recording is, in seconds.

    Usage: wav-to-duration [options] <wav-rspecifier> <duration-wspecifier>
    e.g.: wav-to-duration scp:wav.scp ark,t:reco2dur

    Options:
      --read-entire-file: has no effect: files are always read to their end
    """
    with TableWriter(target, write_token) as out:
        for key, (samples, rate) in sound(source):
            out.write(key, f"{len(samples) / rate:.7g}")
    say(f"{out.count} durations written")
    return 0 if out.count else 1


def extract_segments(source: str, segments: str, target: str, *, min_segment_length: float = 0.1, max_overshoot: float = 0.5) -> int:
    """Cut utterances out of recordings.

    Usage: extract-segments [options] <wav-rspecifier> <segments> <wav-wspecifier>
    e.g.: extract-segments scp:wav.scp segments ark:- | compute-mfcc-feats ark:- ark:mfcc.ark

    Options:
      --min-segment-length: shorter ones, in seconds, are left out (default: 0.1)
      --max-overshoot: so many seconds a segment may end after its recording (default: 0.5)
    """
    rows: dict[str, list[tuple[str, float, float, int]]] = {}
    with open_rxfilename(segments) as stream:
        for number, line in enumerate(stream.read().decode("utf-8").splitlines(), 1):
            fields = line.split()
            try:
                utt, recording, begin, end = fields[0], fields[1], float(fields[2]), float(fields[3])
                rows.setdefault(recording, []).append((utt, begin, end, int(fields[4]) if len(fields) > 4 else -1))
            except (IndexError, ValueError) as error:
                raise UserError(f"{segments}, line {number}: expected `utterance recording begin end`, found {line!r}.") from error
    total = sum(map(len, rows.values()))
    with TableWriter(target, write_wave) as out:
        for key, (samples, rate) in sound(source):
            for utt, begin, end, channel in rows.pop(key, []):
                try:
                    if 0 <= end < begin + min_segment_length:
                        raise AudioError(f"segment {utt}: {begin:g} to {end:g} s: less than --min-segment-length={min_segment_length:g}.")
                    part = cut_segment(samples, rate, utt, key, begin, end, max_overshoot)
                    out.write(utt, (part if channel < 0 else part[:, channel : channel + 1], rate))
                except AudioError as error:
                    say(f"WARNING: {error}")
    say(f"{out.count} of {total} segments extracted")
    return 0 if out.count else 1


def compute_mfcc_feats(source: str, target: str, *, channel: int = -1, min_duration: float = 0.0, subtract_mean: bool = False,
                       write_utt2dur: str = "", **options: str) -> int:
    """Compute MFCC features of recordings, or utterances.

    Usage: compute-mfcc-feats [options] <wav-rspecifier> <feats-wspecifier>
    e.g.: compute-mfcc-feats --config=conf/mfcc.conf scp:wav.scp ark:mfcc.ark

    Options:
      --channel: which of several, from 0 (default: -1: there is one)
      --min-duration: shorter ones, in seconds, are left out (default: 0)
      --subtract-mean: subtract each utterance's mean (default: false)
      --write-utt2dur: wspecifier of durations

    Other options are those of conf/mfcc.conf: --sample-frequency, --num-ceps, --use-energy, --dither (default: 0) and so on.
    """
    return _features("mfcc", source, target, channel, min_duration, subtract_mean, write_utt2dur, options)


def compute_fbank_feats(source: str, target: str, *, channel: int = -1, min_duration: float = 0.0, subtract_mean: bool = False,
                        write_utt2dur: str = "", **options: str) -> int:
    """Compute log mel filterbank features of recordings, or utterances.

    Usage: compute-fbank-feats [options] <wav-rspecifier> <feats-wspecifier>
    e.g.: compute-fbank-feats --config=conf/fbank.conf scp:wav.scp ark:fbank.ark

    Options:
      --channel: which of several, from 0 (default: -1: there is one)
      --min-duration: shorter ones, in seconds, are left out (default: 0)
      --subtract-mean: subtract each utterance's mean (default: false)
      --write-utt2dur: wspecifier of durations

    Other options are those of conf/fbank.conf: --sample-frequency, --num-mel-bins, --dither (default: 0) and so on.
    """
    return _features("fbank", source, target, channel, min_duration, subtract_mean, write_utt2dur, options)


def compute_plp_feats(source: str, target: str, *, channel: int = -1, min_duration: float = 0.0, subtract_mean: bool = False,
                      write_utt2dur: str = "", **options: str) -> int:
    """Compute PLP features of recordings, or utterances.

    Usage: compute-plp-feats [options] <wav-rspecifier> <feats-wspecifier>
    e.g.: compute-plp-feats --config=conf/plp.conf scp:wav.scp ark:plp.ark

    Options:
      --channel: which of several, from 0 (default: -1: there is one)
      --min-duration: shorter ones, in seconds, are left out (default: 0)
      --subtract-mean: subtract each utterance's mean (default: false)
      --write-utt2dur: wspecifier of durations

    Other options are those of conf/plp.conf: --sample-frequency, --num-ceps, --lpc-order, --dither (default: 0) and so on.
    """
    return _features("plp", source, target, channel, min_duration, subtract_mean, write_utt2dur, options)


def _features(kind: str, source: str, target: str, channel: int, min_duration: float, subtract_mean: bool, write_utt2dur: str,
              options: dict[str, str]) -> int:
    from pykaldist.feats.extract import Extractor, FbankOptions, MfccOptions, PlpOptions
    from pykaldist.io.conf import parse_conf

    text = "\n".join(f"--{name.replace('_', '-')}={value}" for name, value in options.items())
    if kind == "mfcc":
        extractor = Extractor(parse_conf(MfccOptions, text))
    else:
        extractor = Extractor(parse_conf(FbankOptions, text) if kind == "fbank" else parse_conf(PlpOptions, text))
    rate = extractor.options.sample_frequency
    with TableWriter(target, write_value) as out, TableWriter(write_utt2dur or "ark:/dev/null", write_token) as durations:
        for utt, (samples, found) in sound(source):
            problem = ""
            if found != rate:
                problem = f"expected {rate:g} Hz, found {found} Hz; set --sample-frequency={found} or resample the audio"
            elif channel >= samples.shape[1] or (channel < 0 and samples.shape[1] > 1):
                problem = f"it has {samples.shape[1]} channels; choose one with --channel"
            elif len(samples) < max(min_duration * found, extractor.options.samples_per_frame):
                problem = f"it has {len(samples)} samples, which are too few"
            if problem:
                say(f"WARNING: {utt}: {problem}")
                continue
            (feats,) = extractor.extract([(utt, np.ascontiguousarray(samples[:, max(channel, 0)]))])
            out.write(utt, feats - feats.mean(axis=0) if subtract_mean else feats)
            durations.write(utt, f"{len(samples) / found:.7g}")
    say(f"{out.count} utterances done")
    return 0 if out.count else 1
