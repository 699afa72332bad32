"""The feature stages: extraction in jobs, the collection of the jobs' parts, and CMVN statistics.

Job j writes raw_<kind>_<data>.j.{ark,scp} below the feature directory, `.utts` (`utt frames seconds`), `.lost` (`utt reason`) and `.texts`
(likewise). `collect` makes the data directory's feats.scp of them only when every job has come to its end.
A few unusable utterances are lost and named; more than MAX_LOST of the data are an error. Files of text that have come into wav.scp are no
utterances: they are left out and named, too, and do not count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir, write_table
from pykaldist.io.line_index import LineIndex
from pykaldist.io.tables import MatrixReader, MatrixWriter, read_lines, read_map
from pykaldist.progress import Progress, progress
from pykaldist.usage import heard

MAX_LOST = 0.01
PITCH = "_pitch"  # behind the kind of features that have it
FRAME_SHIFT_S = 0.01  # where nothing says how long an utterance is


def part_name(data: DataDir, kind: str, job: int) -> str:
    """Kaldi's name of a job's archive, without suffix."""
    return f"raw_{kind}_{data.path.resolve().name}.{job}"


def extract_part(data: DataDir, feat_dir: str | os.PathLike[str], config: str | None, kind: str, job: int, nj: int,
                 channel: int = -1, compress: bool = False, seed: int = 0, pitch_config: str | None = None,
                 pitch_postprocess_config: str | None = None, paste_length_tolerance: int = 2,
                 online_pitch_config: str | None = None) -> None:
    """Extract the features of job `job` of `nj`, by the options of the file `config` (None: the defaults).

    `kind` is mfcc, plp or fbank; with `_pitch` behind, pitch features stand behind the others in every frame, where the two may differ by
    `paste_length_tolerance` frames. Raises UserError for bad options, or where more than MAX_LOST of all utterances are unusable.
    """
    from pykaldist.feats.extract import BATCH_S, KINDS, Extractor
    from pykaldist.feats.pitch import PitchExtractor, PitchOptions, ProcessPitchOptions
    from pykaldist.io.audio import AudioError, NotAudioError, read_utterances
    from pykaldist.io.conf import divided_conf, parse_conf, read_conf

    cls = KINDS[kind.removesuffix(PITCH)]
    options = read_conf(cls, config) if config else cls()
    extractor, pitch = Extractor(options, seed), None
    if kind.endswith(PITCH):
        if online_pitch_config:
            parts = divided_conf((PitchOptions, ProcessPitchOptions), online_pitch_config)
            pitch = PitchExtractor(parse_conf(PitchOptions, parts[0], online_pitch_config),
                                   parse_conf(ProcessPitchOptions, parts[1], online_pitch_config), seed)
        else:
            pitch = PitchExtractor(read_conf(PitchOptions, pitch_config) if pitch_config else PitchOptions(),
                                   read_conf(ProcessPitchOptions, pitch_postprocess_config) if pitch_postprocess_config else None, seed)
        if (pitch.options.sample_frequency, pitch.options.frame_shift) != (options.sample_frequency, options.frame_shift):
            raise UserError(f"{config} and {online_pitch_config or pitch_config} differ in --sample-frequency or --frame-shift; give both "
                            "files the same.")
    utts, allowed = data.part(job, nj), int(MAX_LOST * len(data.utterances()))
    base = Path(feat_dir) / part_name(data, kind, job)
    done: list[str] = []
    lost: dict[str, str] = {}
    texts: dict[str, str] = {}

    def lose(utt: str, error: AudioError) -> None:
        """Leave an utterance out and say why; more than a few are an error."""
        (texts if isinstance(error, NotAudioError) else lost)[utt] = str(error)
        print(f"WARNING: {utt} is left out: {error}", file=sys.stderr, flush=True)
        if len(lost) > allowed:
            raise UserError(f"{len(lost)} of {len(data.utterances())} utterances of {data.path} are unusable, more than "
                            f"{100 * MAX_LOST:g} %; the last: {error}")

    def usable() -> Iterator[tuple[str, np.ndarray]]:
        for utt, audio in read_utterances(data, utts, int(options.sample_frequency), channel):
            if not isinstance(audio, AudioError) and options.num_frames(len(audio)) == 0:
                audio = AudioError(f"{utt} has {len(audio)} samples, fewer than a frame's {options.samples_per_frame}; remove it.")
            if isinstance(audio, AudioError):
                lose(utt, audio)
                bar.update()
            else:
                yield utt, audio

    for suffix in (".utts", ".lost", ".texts"):
        base.with_name(base.name + suffix).unlink(missing_ok=True)
    with Progress(f"{kind} of {data.path.name}, job {job} of {nj}", len(utts), "utt") as bar, \
            MatrixWriter(f"{base}.ark", f"{base}.scp", compression_method=2 if compress else 0) as writer:
        for batch in batches(usable(), BATCH_S * options.sample_frequency):
            for (utt, audio), feats in zip(batch, extractor.extract(batch), strict=True):
                if pitch is not None:
                    feats = paste(feats, pitch.extract(utt, audio), paste_length_tolerance, utt)
                if not np.isfinite(feats).all():
                    lose(utt, AudioError(f"its features are not finite; its samples reach {np.abs(audio).max():.3g}, where 16 bits reach "
                                         "32768: convert the audio again."))
                    continue
                writer.write(utt, feats)
                heard(len(feats))
                done.append(f"{utt} {len(feats)} {len(audio) / options.sample_frequency:.4f}\n")
            bar.update(len(batch))
    write_text(f"{base}.lost", "".join(f"{utt} {reason}\n" for utt, reason in lost.items()))
    write_text(f"{base}.texts", "".join(f"{utt} {reason}\n" for utt, reason in texts.items()))
    write_text(f"{base}.utts", "".join(done))


def paste(left: np.ndarray, right: np.ndarray, tolerance: int, utt: str) -> np.ndarray:
    """Put the frames of two features side by side (T, D1 + D2); the longer is cut, by `tolerance` frames at most (Kaldi's paste-feats)."""
    if abs(len(left) - len(right)) > tolerance:
        raise UserError(f"{utt}: {len(left)} frames of one kind of features and {len(right)} of another, which is more than "
                        f"--paste-length-tolerance={tolerance} apart; give both kinds the same frame length and shift.")
    frames = min(len(left), len(right))
    return np.concatenate([left[:frames], right[:frames]], axis=1)


class Pipeline(Protocol):
    """What makes features of stored ones."""

    def apply(self, data: DataDir, utt: str) -> np.ndarray:
        """The features of one utterance, float32 (T, D)."""
        ...


def transform_part(source: DataDir, target: DataDir, pipeline: Pipeline, feat_dir: str | os.PathLike[str], job: int, nj: int,
                   kind: str = "fmllr") -> None:
    """Write the features of `source` after `pipeline`, for job `job` of `nj`, as parts of a kind of the features of `target`."""
    base = Path(feat_dir) / part_name(target, kind, job)
    seconds = source.table("utt2dur") if source.has("utt2dur") else {}
    utts, done = target.part(job, nj), []
    base.with_name(base.name + ".utts").unlink(missing_ok=True)
    with MatrixWriter(f"{base}.ark", f"{base}.scp") as writer:
        for utt in progress(utts, f"transformed features of {target.path.name}, job {job} of {nj}", unit="utt"):
            feats = pipeline.apply(source, utt)
            writer.write(utt, feats)
            done.append(f"{utt} {len(feats)} {seconds.get(utt, f'{FRAME_SHIFT_S * len(feats):.2f}')}\n")
    write_text(f"{base}.lost", "")
    write_text(f"{base}.texts", "")
    write_text(f"{base}.utts", "".join(done))


def batches(items: Iterator[tuple[str, np.ndarray]], samples: float) -> Iterator[list[tuple[str, np.ndarray]]]:
    """Divide items into lists of consecutive items, of at least `samples` samples each but for the last."""
    batch: list[tuple[str, np.ndarray]] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item[1])
        if size >= samples:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def collect_parts(data: DataDir, feat_dir: str | os.PathLike[str], kind: str, nj: int) -> str:
    """Write feats.scp, utt2num_frames and utt2dur from the jobs' parts; returns one line that says what came out.

    Raises UserError where a part is missing or of other data, or more than MAX_LOST of the utterances were lost.
    """
    where: dict[str, str] = {}
    frames: dict[str, str] = {}
    seconds: dict[str, str] = {}
    lost: dict[str, str] = {}
    texts: dict[str, str] = {}
    for job in range(1, nj + 1):
        base = Path(feat_dir) / part_name(data, kind, job)
        if not base.with_name(base.name + ".utts").is_file():
            raise UserError(f"{base}.utts does not exist: job {job} of {nj} did not come to its end; make the features again ({FEATURES}).")
        where.update(read_map(f"{base}.scp"))
        lost.update(read_map(f"{base}.lost"))
        texts.update(read_map(f"{base}.texts"))
        for line in read_lines(f"{base}.utts"):
            utt, frames[utt], seconds[utt] = _fields(line)
    total = data.utterances()
    if set(total) != set(where) | set(lost) | set(texts):
        raise UserError(f"{feat_dir} has features of {len(where)} utterances, {data.path} has {len(total)}, and they are not the same; "
                        f"make them again ({FEATURES}).")
    if len(lost) > MAX_LOST * len(total):
        utt = next(iter(lost))
        raise UserError(f"{len(lost)} of {len(total)} utterances of {data.path} are unusable, more than {100 * MAX_LOST:g} %; "
                        f"the first, {utt}: {lost[utt]}")
    (data.path / "cmvn.scp").unlink(missing_ok=True)  # of other features
    write_table(data.path / "utt2num_frames", frames)
    write_table(data.path / "utt2dur", seconds)
    write_table(data.path / "feats.scp", where)
    minutes = sum(map(float, seconds.values())) / 60
    spoken = f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"
    line = f"features of {len(where)} utterances, {spoken}, {sum(map(int, frames.values()))} frames in {data.path}/feats.scp"
    if lost := lost | texts:
        line += f"; {len(lost)} of {len(total)} utterances left out for their audio: {' '.join(sorted(lost)[:5])}" \
            + (" ..." if len(lost) > 5 else "") + f" (reasons in the logs; run utils/fix_data_dir.sh {data.path})"
    return line


def _fields(line: str) -> tuple[str, str, str]:
    utt, frames, seconds = line.split()
    return utt, frames, seconds


def speaker_cmvn(data: DataDir, feat_dir: str | os.PathLike[str], unchanged: Sequence[int] | None = ()) -> str:
    """Write the CMVN statistics of each speaker to cmvn_<data>.ark and the data directory's cmvn.scp.

    Returns one line that says what came out. The dimensions `unchanged`, all where it is None, have mean 0 and variance 1 in them, so that
    normalisation leaves them as they are.

    Utterances without features are passed over, as in Kaldi; a speaker without any, and features that are not finite, are an error.
    """
    name = f"cmvn_{data.path.resolve().name}"
    feats = data.feats
    base = Path(feat_dir) / name
    count, speakers = data.speakers()
    with MatrixWriter(f"{base}.ark", f"{base}.scp") as writer:
        for speaker, utts in progress(speakers, f"CMVN statistics of {data.path.name}", count, "speaker"):
            try:
                writer.write(speaker, _unchanging(cmvn_stats(_finite(feats, utt) for utt in utts if utt in feats), unchanged))
            except UserError as error:
                raise UserError(f"{data.path}, speaker {speaker}: {error}") from error
    write_table(data.path / "cmvn.scp", LineIndex(f"{base}.scp"))
    return f"CMVN statistics of {count} speaker{'s' * (count != 1)} in {data.path}/cmvn.scp"


def _unchanging(stats: np.ndarray, dims: Sequence[int] | None) -> np.ndarray:
    """Statistics [[sum x, count], [sum x^2, 0]] with mean 0 and variance 1 in some dimensions, in all where `dims` is None."""
    last = stats.shape[1] - 1
    chosen = np.arange(last) if dims is None else np.array(dims, np.int64)
    if len(chosen) and chosen.max() >= last:
        raise UserError(f"dimension {chosen.max()} is not among the {last} of the features, which are counted from 0.")
    stats = stats.copy()
    stats[:, chosen] = [[0], [stats[0, last]]]
    return stats


def _finite(feats: MatrixReader, utt: str) -> np.ndarray:
    matrix = feats[utt]
    if not np.isfinite(matrix).all():
        raise UserError(f"features of {utt} are not finite; look at its audio and make the features again ({FEATURES}).")
    return matrix
