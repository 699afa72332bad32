"""Tools for data directories: copies, parts, other speakers, speeds and volumes, durations.

`utils/data_tools` starts them, for they need packages, and so a while to start; what they do is in pykaldist/io/datadir_copies.py,
perturb.py and durations.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pykaldist.errors import UserError
from pykaldist.io.allowed_lengths import LengthOptions, perturb_to_allowed_lengths
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir, restrict, write_table
from pykaldist.io.datadir_copies import (
    combine_data,
    copy_data_dir,
    extract_wav_segments,
    limit_feature_dim,
    regroup_speakers,
    split_data,
    split_speakers,
    subsegment_data_dir,
    whole_recordings,
    without_repeats,
)
from pykaldist.io.datadir_tools import fix_data_dir
from pykaldist.io.durations import frame_shift_of, reco2dur, utt2dur, utt2num_frames
from pykaldist.io.perturb import perturb_speed, perturb_volume
from pykaldist.io.tables import read_map
from pykaldist.io.text_tools.tool import number, rows_of, text, tool, whole

if TYPE_CHECKING:
    from pykaldist.io.text_tools.tool import Output


def _said(*messages: str) -> list[bytes]:
    """Lines of what a tool has done, with its name."""
    return [f"{sys.argv[0]}: {message}\n".encode() for message in messages]


def _true(options: dict[str, str], name: str, default: str) -> bool:
    if (value := options.get(name, default)) not in ("true", "false"):
        raise UserError(f"option --{name} takes true or false, found {value!r}.")
    return value == "true"


def _count(data: DataDir) -> str:
    return f"{len(data.utt2spk)} utterances"


@tool("""copy_data_dir.sh [options] <data> <new-data>
 e.g.: utils/copy_data_dir.sh data/train data-fbank/train
       utils/copy_data_dir.sh --utt-prefix wsj --spk-prefix wsj data/wsj data/wsj_renamed
Options: --utt-prefix <text>, --utt-suffix <text>, --spk-prefix <text>, --spk-suffix <text>: new names of utterances and speakers; utt2uniq
then has the old names of utterances. --validate-opts is taken and not needed: what is copied is checked as far as it is there.""",
      "utt-prefix= utt-suffix= spk-prefix= spk-suffix= validate-opts=", (2, 2))
def copy_data_dir_sh(options: dict[str, str], source: str, target: str) -> Output:
    """Copy a data directory, with other names where they are asked for."""
    utt, spk = ([options.get(f"{what}-{place}", "") for place in ("prefix", "suffix")] for what in ("utt", "spk"))
    made = copy_data_dir(source, target, lambda name: f"{utt[0]}{name}{utt[1]}", lambda name: f"{spk[0]}{name}{spk[1]}")
    made.validate(text=made.has("text"), wav=made.has("wav.scp"))
    return _said(f"{_count(made)} of {source} in {target}")


@tool("""combine_data.sh [--extra-files "<file> ..."] [--skip-fix true|false] <new-data> <data> <data> ...
 e.g.: utils/combine_data.sh data/train data/train_clean data/train_other
Tables that not all directories have are left out; utt2uniq and segments are completed. The new directory is mended by
utils/fix_data_dir.sh, unless --skip-fix true. --extra-files are further tables.""", "extra-files= skip-fix=", (2, -1))
def combine_data_sh(options: dict[str, str], target: str, *sources: str) -> Output:
    """Put data directories together."""
    said = combine_data(target, sources, options.get("extra-files", "").split())
    if not _true(options, "skip-fix", "false"):
        said += fix_data_dir(target)
    return _said(*said, f"{_count(DataDir(target))} of {', '.join(sources)} in {target}")


@tool("""subset_data_dir_tr_cv.sh [options] <data> <train-data> <cv-data>
 e.g.: utils/subset_data_dir_tr_cv.sh --cv-spk-percent 10 data/train data/train_tr90 data/train_cv10
Divides a data directory for cross-validation; no speaker is in both. Options: --cv-spk-percent <n>, of the speakers (10), one at least;
--cv-spk-list <file> names them instead; --seed <n> (777); --cv-utt-percent is taken and ignored, as in Kaldi.""",
      "cv-spk-percent= cv-spk-list= seed= cv-utt-percent=", (3, 3))
def subset_data_dir_tr_cv_sh(options: dict[str, str], source: str, train: str, cv: str) -> Output:
    """Divide a data directory for cross-validation."""
    data = DataDir(source)
    parts = split_speakers(data, number(options.get("cv-spk-percent", "10"), "--cv-spk-percent"),
                           whole(options.get("seed", "777"), "--seed", 0), options.get("cv-spk-list"))
    made = [restrict(data, utts, target) for utts, target in zip(parts, (train, cv), strict=True)]
    return _said(*(f"{_count(part)} of {len(part.spk2utt)} speakers in {part.path}" for part in made))


@tool("""split_data.sh [--per-utt] <data> <number>
 e.g.: utils/split_data.sh data/train 4
Divides a data directory into <data>/split4/1 to 4, speaker by speaker; with --per-utt into <data>/split4utt, whoever speaks. What is
there and newer than the data stays.""", "per-utt", (2, 2))
def split_data_sh(options: dict[str, str], source: str, parts: str) -> Output:
    """Divide a data directory into parts."""
    split_data(DataDir(source), whole(parts, "the number of parts", 1), "per-utt" in options)
    return None


@tool("""data/modify_speaker_info.sh [options] <data> <new-data>
 e.g.: utils/data/modify_speaker_info.sh --utts-per-spk-max 2 data/train data/train_max2
Copies a data directory with speakers of so few utterances that follow each other. Options, one of the first two is needed:
--utts-per-spk-max <n>, --seconds-per-spk-max <s>; --respect-speaker-info true|false: whether new speakers are parts of the old (true).""",
      "utts-per-spk-max= seconds-per-spk-max= respect-speaker-info=", (2, 2))
def modify_speaker_info_sh(options: dict[str, str], source: str, target: str) -> Output:
    """Copy a data directory with other speakers."""
    utts = number(options.get("utts-per-spk-max", "-1"), "--utts-per-spk-max")
    seconds = number(options.get("seconds-per-spk-max", "-1"), "--seconds-per-spk-max")
    if utts <= 0 and seconds <= 0:
        raise UserError("give --utts-per-spk-max or --seconds-per-spk-max, or both.")
    data = DataDir(source)
    made = regroup_speakers(data, target, int(utts), seconds, utt2dur(data) if seconds > 0 else None,
                            _true(options, "respect-speaker-info", "true"))
    return _said(f"{_count(made)} of {len(data.spk2utt)} speakers have {len(made.spk2utt)} speakers in {target}")


@tool("""data/perturb_data_dir_speed.sh [--include-spk-prefix true|false] <factor> <data> <new-data>
 e.g.: utils/data/perturb_data_dir_speed.sh 0.9 data/train data/train_sp0.9
Copies a data directory at another speed; names of utterances and speakers begin with sp0.9-, or with --include-spk-prefix false only
utterances' end in -sp0.9. No audio is written: it is resampled when it is read, as reco2speed says.""", "include-spk-prefix=", (3, 3))
def perturb_data_dir_speed_sh(options: dict[str, str], factor: str, source: str, target: str) -> Output:
    """Copy a data directory at another speed."""
    speed = number(factor, "the speed")
    made = perturb_speed(source, target, [speed], name_all=True, new_speakers=_true(options, "include-spk-prefix", "true"))
    return _said(f"{_count(made)} of {source} at speed {speed:g} in {target}")


@tool("""data/perturb_data_dir_speed_3way.sh [options] <data> <new-data>
 e.g.: utils/data/perturb_data_dir_speed_3way.sh data/train data/train_sp
Copies a data directory with its utterances at other speeds beside them: three times the data, other voices. The copies' names begin with
sp0.9- and sp1.1-. No audio is written: features are then made with steps/make_mfcc.sh, which resamples as reco2speed says. utt2uniq says
what each is a copy of: steps/nnet/pack.sh trains on no copy of a held-out utterance. Options: --factors "<speed> ..." ("0.9 1.1");
--always-include-prefix true|false: unchanged ones are named sp1.0- too (false); --include-spk-prefix true|false: false leaves speakers'
names, and utterances end in -sp0.9 (true).""", "factors= always-include-prefix= include-spk-prefix=", (2, 2))
def perturb_data_dir_speed_3way_sh(options: dict[str, str], source: str, target: str) -> Output:
    """Copy a data directory with its utterances at other speeds beside them."""
    factors = [number(factor, "--factors") for factor in options.get("factors", "0.9 1.1").split()]
    made = perturb_speed(source, target, [1.0, *factors], _true(options, "always-include-prefix", "false"),
                         _true(options, "include-spk-prefix", "true"))
    return _said(f"{_count(made)} in {target}: those of {source}, and at speed {', '.join(f'{f:g}' for f in factors)}")


@tool("""data/perturb_speed_to_allowed_lengths.py [options] <percent> <data> <new-data>
 e.g.: utils/data/perturb_speed_to_allowed_lengths.py 12 data/train data/train_spe2e_hires
Copies utterances at such speeds that their lengths are among a few, so many per cent apart, for steps/nnet3/chain/e2e/train_e2e.py: pv1-
as short as the next shorter one, pv2- as long as the next longer one, pv3- at their own speed, which training makes longer by copies of the
last frame. No audio is written: it is resampled when it is read, as reco2speed says. Writes allowed_lengths.txt and allowed_durs.txt.
Options: --speed-perturb true|false: false makes pv3- alone (true); --coverage-factor <per cent>: speech in too short, and in too long
utterances, that is left out (0.05); --frame-shift, --frame-length <ms> (10, 25); --frame-subsampling-factor <n> (3).""",
      "speed-perturb= coverage-factor= frame-shift= frame-length= frame-subsampling-factor=", (3, 3))
def perturb_speed_to_allowed_lengths_py(options: dict[str, str], percent: str, source: str, target: str) -> Output:
    """Copy utterances at such speeds that their lengths are among a few."""
    shift, window, factor = (whole(options.get(name, default), f"--{name}", 1) for name, default in (
        ("frame-shift", "10"), ("frame-length", "25"), ("frame-subsampling-factor", "3")))
    lengths = LengthOptions(1.0 + number(percent, "the spacing of lengths") / 100, number(options.get("coverage-factor", "0.05"),
                                                                                          "--coverage-factor"), shift, window, factor)
    made = perturb_to_allowed_lengths(source, target, lengths, _true(options, "speed-perturb", "true"))
    return _said(f"{_count(made)} of {source} in {target}, of lengths in {target}/allowed_lengths.txt")


@tool("""data/perturb_data_dir_volume.sh [options] <data>
 e.g.: utils/data/perturb_data_dir_volume.sh data/train_hires
Gives each recording another volume. No audio is written: reco2vol has the factor on the samples when they are read. Features that were made
before go to .backup. Options: --scale-low <f> (0.125), --scale-high <f> (2), --seed <n> (0); --reco2vol <file>: factors to take instead;
--write-reco2vol <file>: a copy of those that were taken.""", "reco2vol= write-reco2vol= scale-low= scale-high= seed=", (1, 1))
def perturb_data_dir_volume_sh(options: dict[str, str], source: str) -> Output:
    """Give recordings other volumes."""
    data = DataDir(source)
    done = perturb_volume(data, number(options.get("scale-low", "0.125"), "--scale-low"),
                          number(options.get("scale-high", "2"), "--scale-high"), options.get("reco2vol") or None,
                          whole(options.get("seed", "0"), "--seed", 0))
    if options.get("write-reco2vol"):
        copy_file(data.path / "reco2vol", options["write-reco2vol"])
    if not done:
        return _said(f"{source} has other volumes already (reco2vol); nothing is done")
    return _said(f"other volumes for {len(data.wav_scp)} recordings of {source}")


@tool("""data/remove_dup_utts.sh <most> <data> <new-data>
 e.g.: utils/data/remove_dup_utts.sh 10 data/train data/train_nodup
Copies a data directory with at most <most> utterances of the same transcript; which ones is drawn at random.""", "", (3, 3))
def remove_dup_utts_sh(options: dict[str, str], most: str, source: str, target: str) -> Output:
    """Copy a data directory without many utterances of one transcript."""
    data = DataDir(source)
    made = restrict(data, without_repeats(data, whole(most, "<most>", 0)), target)
    return _said(f"{len(made.utt2spk)} of {_count(data)} of {source} in {target}")


@tool("""data/convert_data_dir_to_whole.sh <data> <new-data>
 e.g.: utils/data/convert_data_dir_to_whole.sh data/dev data/dev_whole
Copies a data directory without its segments: recordings are utterances.""", "", (2, 2))
def convert_data_dir_to_whole_sh(options: dict[str, str], source: str, target: str) -> Output:
    """Copy a data directory without its segments."""
    return _said(f"{_count(whole_recordings(DataDir(source), target))} in {target}")


@tool("""data/limit_feature_dim.sh <first>:<last> <data> <new-data>
 e.g.: utils/data/limit_feature_dim.sh 0:39 data/train_hires_pitch data/train_hires
Copies a data directory with only these columns, from 0, of its features.""", "", (3, 3))
def limit_feature_dim_sh(options: dict[str, str], columns: str, source: str, target: str) -> Output:
    """Copy a data directory with some columns of its features."""
    return _said(f"{_count(limit_feature_dim(DataDir(source), target, columns))} with columns {columns} in {target}")


@tool("""data/extract_wav_segments_data_dir.sh [options] <data> <new-data>
 e.g.: utils/data/extract_wav_segments_data_dir.sh data/train data/train_cut
Copies a data directory with a wav file of its own for each utterance, in <new-data>/data, so that it needs no segments. Features that the
old one has are those of the new one too. Options: --nj and --cmd are taken and not needed.""", "nj= cmd=", (2, 2))
def extract_wav_segments_data_dir_sh(options: dict[str, str], source: str, target: str) -> Output:
    """Copy a data directory with a wav file for each utterance."""
    return _said(f"{_count(extract_wav_segments(DataDir(source), target))} with files of their own in {target}")


@tool("""data/subsegment_data_dir.sh [--segment-end-padding <s>] <data> <segments> [<text>] <new-data>
 e.g.: utils/data/subsegment_data_dir.sh data/train exp/tri3_resegment/segments exp/tri3_resegment/text data/train_resegmented
Writes a data directory of parts of utterances. Lines of <segments> are `new-utterance utterance begin end`, in s within the utterance.
Features are rows of the old ones; CMVN statistics are to be computed again. Options: --segment-end-padding: added to the ends in the new
segments, as frames reach beyond their shift; --nj and --cmd are taken and not needed.""", "segment-end-padding= nj= cmd=", (3, 4))
def subsegment_data_dir_sh(options: dict[str, str], source: str, segments: str, *rest: str) -> Output:
    """Write a data directory of parts of utterances."""
    parts: dict[str, tuple[str, float, float]] = {}
    for fields, _, line in rows_of(segments, 4, 4, "new-utterance utterance begin end"):
        new, utt, begin, end = (text(field) for field in fields)
        parts[new] = (utt, number(begin, f"{segments}, line {line}"), number(end, f"{segments}, line {line}"))
    words = read_map(rest[0]) if len(rest) == 2 else None
    made = subsegment_data_dir(DataDir(source), parts, rest[-1], words, number(options.get("segment-end-padding", "0"), "the padding"))
    return _said(f"{_count(made)} of {source} in {rest[-1]}")


_JOBS = "nj= cmd= frame-shift= read-entire-file="  # Kaldi's, for what it reads in jobs


@tool("""data/get_utt2dur.sh [options] <data>
 e.g.: utils/data/get_utt2dur.sh data/train
Writes utt2dur, utterances' lengths in s, where it is not there: from segments, or from the audio's headers. Options: --frame-shift <s>:
take it from the features' frames; --nj, --cmd and --read-entire-file are taken and not needed.""", _JOBS, (1, 1))
def get_utt2dur_sh(options: dict[str, str], source: str) -> Output:
    """Write the lengths of utterances."""
    data = DataDir(source)
    shift = number(options["frame-shift"], "--frame-shift") if "frame-shift" in options else None
    table = utt2dur(data, shift)
    write_table(data.path / "utt2dur", {utt: f"{seconds:.6g}" for utt, seconds in table.items()})
    return _said(f"{len(table)} utterances of {sum(table.values()) / 3600:.2f} h in {source}")


@tool("""data/get_reco2dur.sh [options] <data>
 e.g.: utils/data/get_reco2dur.sh data/train
Writes reco2dur, recordings' lengths in s, where it is not there. Options: --nj, --cmd, --frame-shift and --read-entire-file are taken and
not needed.""", _JOBS, (1, 1))
def get_reco2dur_sh(options: dict[str, str], source: str) -> Output:
    """Write the lengths of recordings."""
    data = DataDir(source)
    table = reco2dur(data)
    write_table(data.path / "reco2dur", {recording: f"{seconds:.6g}" for recording, seconds in table.items()})
    return _said(f"{len(table)} recordings of {sum(table.values()) / 3600:.2f} h in {source}")


@tool("""data/get_utt2num_frames.sh [options] <data>
 e.g.: utils/data/get_utt2num_frames.sh data/train
Writes utt2num_frames where it is not there: from the features, else from the lengths in s. Options: --nj, --cmd, --frame-shift,
--frame-overlap and --read-entire-file are taken and not needed.""", _JOBS + " frame-overlap=", (1, 1))
def get_utt2num_frames_sh(options: dict[str, str], source: str) -> Output:
    """Write how many frames utterances have."""
    data = DataDir(source)
    table = utt2num_frames(data)
    write_table(data.path / "utt2num_frames", {utt: str(frames) for utt, frames in table.items()})
    return _said(f"{len(table)} utterances of {sum(table.values())} frames in {source}")


@tool("""data/get_num_frames.sh <data>
 e.g.: num_frames=$(utils/data/get_num_frames.sh data/train)
Prints about how many frames a data directory has.""", "", (1, 1))
def get_num_frames_sh(options: dict[str, str], source: str) -> Output:
    """Print how many frames there are."""
    data = DataDir(source)
    return [b"%.0f\n" % (sum(utt2dur(data).values()) / frame_shift_of(data))]


@tool("""data/get_frame_shift.sh <data>
 e.g.: frame_shift=$(utils/data/get_frame_shift.sh data/train)
Prints the time from a frame to the next in s.""", "", (1, 1))
def get_frame_shift_sh(options: dict[str, str], source: str) -> Output:
    """Print the frame shift."""
    return [f"{frame_shift_of(DataDir(source)):g}\n".encode()]


@tool("""data/get_segments_for_data.sh <data> > <segments>
 e.g.: utils/data/get_segments_for_data.sh data/train > data/train/segments
Prints a segment for each utterance that is the whole of its recording.""", "", (1, 1))
def get_segments_for_data_sh(options: dict[str, str], source: str) -> Output:
    """Print segments that are whole recordings."""
    return (f"{utt} {utt} 0 {seconds:.6g}\n".encode() for utt, seconds in utt2dur(DataDir(source)).items())
