"""lhotse's cuts of a data directory, one after the other, and cuts read from lhotse's manifests and shar folders.

A cut is one utterance: its recording, where it begins and ends in it, and one supervision with words and speaker. lhotse is imported when
a cut is made, for it takes a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir, pipe_command

if TYPE_CHECKING:
    from lhotse import CutSet

#: What lhotse puts behind the name of a copy in which every frame is where it was: another volume, in a room, without its echo.
_SAME_FRAMES = re.compile(r"(?:_(?:vp-?[\d.]+|rvb|wpe|ln-?[\d.]+))+$")
_SPEED = re.compile(r"(.*)_sp([\d.]+)$")


class DataDirCuts:
    """The cuts of a Kaldi data directory, made as they are asked for: headers of audio files are read then, one recording at a time.

    Raises UserError in iteration for a recording that wav.scp lacks, or that cannot be read.
    """

    def __init__(self, data: DataDir) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data.utt2spk)

    def __iter__(self) -> Iterator[Any]:
        from lhotse import MonoCut, SupervisionSegment

        data, known, recording = self.data, "", None
        segments = data.segments if data.has("segments") else None
        text = data.text if data.has("text") else {}
        for utt, speaker in data.utt2spk.items():
            name, start, end = segments[utt] if segments is not None else (utt, 0.0, -1.0)
            if name != known or recording is None:
                known, recording = name, _recording(data, name)
            duration = (recording.duration if end == -1 else min(end, recording.duration)) - start
            if not (start >= 0 and duration > 0):
                raise UserError(f"{data.path}/segments, {utt}: {start:g} to {end:g} s lies outside of recording {name}, which has "
                                f"{recording.duration:g} s; correct segments.")
            words = " ".join(text[utt]) if utt in text else None
            supervision = SupervisionSegment(utt, name, 0.0, round(duration, 5), text=words, speaker=speaker)
            yield MonoCut(utt, round(start, 5), round(duration, 5), 0, [supervision], recording=recording)


def _recording(data: DataDir, name: str) -> Any:
    """The recording of wav.scp, at the speed and volume that it is to be read with."""
    from lhotse import Recording
    from lhotse.audio import AudioSource

    if name not in data.wav_scp:
        raise UserError(f"{data.path}/wav.scp has no recording {name}; run utils/fix_data_dir.sh {data.path}.")
    source, command = data.wav_scp[name], pipe_command(data.wav_scp[name])
    try:
        if command is not None:
            raise RuntimeError
        info = soundfile.info(source)
        samples, rate = info.frames, info.samplerate
    except (soundfile.LibsndfileError, RuntimeError):
        audio, rate = read_audio(source, 0, pipes=True)
        samples = len(audio)
    kind = AudioSource("file", [0], os.path.abspath(source)) if command is None else AudioSource("command", [0], command)
    recording = Recording(name, [kind], rate, samples, samples / rate)
    if name in data.reco2speed:
        recording = recording.perturb_speed(data.reco2speed[name], affix_id=False)
    if name in data.reco2vol:
        recording = recording.perturb_volume(data.reco2vol[name], affix_id=False)
    return recording


def data_dir_cuts(path: str | os.PathLike[str]) -> CutSet:
    """A lazy CutSet of a Kaldi data directory: nothing but its tables is in memory."""
    from lhotse import CutSet

    return CutSet(DataDirCuts(DataDir(path)))


def read_cuts(path: str | os.PathLike[str]) -> CutSet:
    """A lazy CutSet of a manifest (*.jsonl, *.jsonl.gz) or a shar folder; raises UserError for anything else."""
    from lhotse import CutSet

    path = Path(path)
    if path.is_dir():
        if not any(path.glob("cuts.*.jsonl*")):
            raise UserError(f"{path} has no cuts.*.jsonl.gz; give a shar folder (CutSet.to_shar), or a manifest of cuts.")
        return CutSet.from_shar(in_dir=path)
    if not path.is_file():
        raise UserError(f"{path} does not exist; give lhotse's manifest of cuts, *.jsonl.gz, or a shar folder.")
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(f"{path}: expected *.jsonl or *.jsonl.gz, which are read one cut after the other; write the manifest as one "
                        "(CutSet.to_file).")
    return CutSet.from_jsonl_lazy(path)


def utterances(cuts: CutSet, where: str | os.PathLike[str]) -> Iterator[Any]:
    """The cuts, one after the other, each one utterance whose audio is at hand.

    Raises UserError for an entry that lhotse cannot read, for a cut with several supervisions, or none, for one that a command or an
    address gives, neither of which is run or fetched here, and for a name that comes again.
    """
    entries, seen = iter(cuts), set[str]()
    while True:
        try:
            cut = next(entries, None)
        except Exception as error:  # lhotse raises what comes of reading fields that are not as it wrote them
            raise UserError(f"{where}: lhotse cannot read the entry behind {len(seen)} cuts ({type(error).__name__}: {error}); write it "
                            "again.") from error
        if cut is None:
            return
        tracks = [track.cut for track in getattr(cut, "tracks", ())] or [cut]
        of_first = len(getattr(tracks[0], "supervisions", ()))
        if of_first != 1:
            raise UserError(f"{where}, cut {getattr(cut, 'id', '?')}: expected one supervision, found {of_first}; cut it at its utterances "
                            "(CutSet.trim_to_supervisions).")
        for track in tracks:
            for audio in (track.recording.sources if getattr(track, "has_recording", False) else ()):
                if audio.type not in ("file", "memory"):
                    raise UserError(f"{where}, cut {cut.id}: its audio comes from a {audio.type}, which is not run or fetched here; write "
                                    "the audio into files, or a shar folder.")
        if cut.id in seen:
            raise UserError(f"{where}: cut {cut.id} comes twice; give the copies names of their own.")
        seen.add(cut.id)
        yield cut


def original(cut: Any) -> str:
    """The utterance that a cut has the frames of: its own name, without what lhotse adds for copies; of a mix, that of its first track."""
    first = cut.tracks[0].cut if getattr(cut, "tracks", None) else cut
    return _SAME_FRAMES.sub("", str(first.id))


def source(cut: Any) -> str:
    """The utterance that a cut is a copy of, at whatever speed."""
    name = original(cut)
    other = _SPEED.match(name)
    return other[1] if other else name


def aligned_names(cut: Any) -> list[str]:
    """The names under which a cut may be aligned: its own, its original's, and at another speed the one that Kaldi's scripts give."""
    name = original(cut)
    other = _SPEED.match(name)
    return [str(cut.id), name, *([f"sp{other[2]}-{other[1]}"] if other else [])]
