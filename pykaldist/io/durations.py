"""How long utterances and recordings are, and how many frames they have: `utt2dur`, `reco2dur`, `utt2num_frames`."""

from __future__ import annotations

import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir, pipe_command
from pykaldist.progress import progress

FRAME_SHIFT_S, FRAME_OVERLAP_S = 0.01, 0.015  # of features, where nothing says otherwise


def recording_seconds(data: DataDir, recording: str) -> float:
    """The length of a recording at the speed that it is read with; the header says it where it is a file, else it is read.

    Raises UserError where wav.scp lacks it, or it cannot be read.
    """
    if recording not in data.wav_scp:
        raise UserError(f"{data.path}/wav.scp has no recording {recording}; run utils/fix_data_dir.sh {data.path}.")
    source = data.wav_scp[recording]
    seconds = 0.0
    if pipe_command(source) is None:
        try:
            info = soundfile.info(source)
            seconds = info.frames / info.samplerate if info.frames < 2**62 else 0.0  # libsndfile's mark for an unknown length is 2^63 - 1
        except (soundfile.LibsndfileError, RuntimeError):
            pass  # read_audio says what is wrong
    if not seconds:
        audio, rate = read_audio(source, 0, pipes=True)
        seconds = len(audio) / rate
    return seconds / data.reco2speed.get(recording, 1.0)


def reco2dur(data: DataDir) -> dict[str, float]:
    """Recording -> seconds, of the table where it has all of them."""
    if data.has("reco2dur") and (known := data.table("reco2dur")).keys() == data.wav_scp.keys():
        return _numbers(data, "reco2dur", known)
    return {recording: recording_seconds(data, recording) for recording in data.wav_scp}


def utt2dur(data: DataDir, frame_shift: float | None = None) -> dict[str, float]:
    """Utterance -> seconds: of the table where it has all of them, else of segments, of frames of the file frame_shift, or of the audio."""
    if data.has("utt2dur") and (known := data.table("utt2dur")).keys() == data.utt2spk.keys():
        return _numbers(data, "utt2dur", known)
    if data.has("segments"):
        whole: dict[str, float] = {}
        for recording, _, end in data.segments.values():
            if end == -1 and recording not in whole:
                whole[recording] = recording_seconds(data, recording)
        return {utt: (whole[recording] if end == -1 else end) - start for utt, (recording, start, end) in data.segments.items()}
    if data.has("utt2num_frames") and (frame_shift or data.has("frame_shift")):
        shift = frame_shift or frame_shift_of(data)
        return {utt: (int(frames) + FRAME_OVERLAP_S / FRAME_SHIFT_S) * shift for utt, frames in data.table("utt2num_frames").items()}
    if not data.has("wav.scp") and data.has("feats.scp"):
        shift = frame_shift or FRAME_SHIFT_S
        return {utt: frames * shift for utt, frames in utt2num_frames(data).items()}
    return {utt: recording_seconds(data, utt) for utt in data.utt2spk}


def utt2num_frames(data: DataDir) -> dict[str, int]:
    """Utterance -> frames, of its features where there are some, else by its length."""
    if data.has("utt2num_frames"):
        return {utt: int(frames) for utt, frames in _numbers(data, "utt2num_frames", data.table("utt2num_frames")).items()}
    if data.has("feats.scp"):
        return {utt: data.feats.num_rows(utt) for utt in progress(data.feats, "numbers of frames", unit="utt")}
    return {utt: max(0, int((seconds - FRAME_OVERLAP_S) / FRAME_SHIFT_S + 1e-6)) for utt, seconds in utt2dur(data).items()}


def frame_shift_of(data: DataDir) -> float:
    """The time from a frame to the next in s: of the file frame_shift, else of durations and frames; 0.01 where it is nearly that."""
    if data.has("frame_shift"):
        text = (data.path / "frame_shift").read_text(encoding="utf-8").strip()
        try:
            return float(text)
        except ValueError as error:
            raise UserError(f"{data.path}/frame_shift: expected seconds, found {text!r}.") from error
    if not data.has("utt2num_frames") and not data.has("feats.scp"):
        return FRAME_SHIFT_S
    seconds, frames = utt2dur(data), utt2num_frames(data)
    some = [utt for utt in frames if utt in seconds][:10]
    # A frame is longer than the shift, by 1.5 shifts as a rule.
    if not some:
        return FRAME_SHIFT_S
    shift = sum(seconds[utt] for utt in some) / sum(frames[utt] + FRAME_OVERLAP_S / FRAME_SHIFT_S for utt in some)
    return FRAME_SHIFT_S if abs(shift - FRAME_SHIFT_S) < 0.02 * FRAME_SHIFT_S else shift


def _numbers(data: DataDir, name: str, table: dict[str, str]) -> dict[str, float]:
    found = {}
    for key, text in table.items():
        try:
            found[key] = float(text)
        except ValueError as error:
            raise UserError(f"{data.path / name}, {key}: expected a number, found {text!r}.") from error
    return found
