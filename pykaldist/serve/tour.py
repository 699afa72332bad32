"""A tour of what a recipe has made, in four stops: its page, an utterance to hear, two strategies side by side, a recording transcribed.

Each stop is a command of the user's own, which is printed, then run. What the tour makes goes to a folder of its own; the recipe is only
read.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import INT16_SCALE, AudioError, read_utterances
from pykaldist.io.datadir import DataDir, pipe_command
from pykaldist.report.live import CLEAR, STOPPED, Onlooker, render_view
from pykaldist.report.page.systems import Pairs, read_alignments
from pykaldist.report.page.utterances import data_of, references_of
from pykaldist.report.table import System, systems

PLAYERS = (("ffplay", "-nodisp", "-autoexit", "-loglevel", "error"), ("pw-play",), ("paplay",), ("aplay", "-q"), ("play", "-q"))
STRATEGIES = ("ma", "bmuf")
WORKERS, EPOCHS, LAYERS, UNITS = 4, 2, 1, 128
WORDS = 8  # of the utterance that is heard
LOOK_EVERY = 1.0  # seconds
WIDE = 150  # columns of a terminal in which two views stand beside each other


@dataclass
class Example:
    """An utterance with errors: its reference and hypothesis, word by word, and its audio in a file."""

    system: System
    utt: str
    pairs: Pairs
    audio: Path


class Tour:
    """A tour of the recipe in `recipe`, which puts what it makes into `out`.

    `pause` waits for the user; `say` prints. Raises UserError where the recipe has made nothing yet.
    """

    def __init__(self, recipe: Path, out: Path, open_page: bool, pause: Callable[[], None], say: Callable[[str], None]) -> None:
        self.recipe, self.out, self.open_page, self.pause, self.say = recipe, out, open_page, pause, say
        if not (recipe / "exp").is_dir():
            raise UserError(f"{recipe} has no exp; run its run.sh first, then come back.")
        self.systems = systems(recipe / "exp")
        self.best = min(self.systems, key=lambda system: system.wer)
        out.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Go through all stops."""
        example = self._example()
        stops = [("The page of all experiments", self.page), ("An utterance, and what was made of it", lambda: self.listen(example)),
                 ("The same network by two strategies, side by side", self.train),
                 ("A recording of your own", lambda: self.transcribe(example))]
        for number, (title, stop) in enumerate(stops, 1):
            self.say(f"\n[{number}/{len(stops)}] {title}")
            stop()
            if number < len(stops):
                self.pause()
        self.say(f"\nThat was all. What the tour made is in {self.out}, and can be removed. Next: docs/training.md, pykaldist --help.")

    def page(self) -> None:
        """Make the page, and open it in a browser."""
        target = self.out / "report.html"
        self.command(["report", str(self.recipe / "exp"), "--html", str(target)])
        self.say(f"Curves, word error rates with intervals, confusions, and each utterance with its audio: {target}")
        if self.open_page and _has_display() and webbrowser.open(target.resolve().as_uri()):
            self.say("It opens in your browser.")
        else:
            self.say("Open it in a browser; it needs no network.")

    def listen(self, example: Example | None) -> None:
        """Play an utterance, with reference and hypothesis."""
        if example is None:
            self.say("No utterance with errors has audio in a plain file; the page plays the others.")
            return
        for line in _aligned(example.pairs):
            self.say(f"  {line}")
        self.say(f"{example.utt}, by {example.system.name}.")
        player = next((one for one in PLAYERS if shutil.which(one[0])), None)
        if player is None or subprocess.run([*player, str(example.audio)], stdin=subprocess.DEVNULL, check=False).returncode:
            self.say(f"No player of audio works here ({', '.join(one[0] for one in PLAYERS)}); listen to {example.audio}.")

    def train(self) -> None:
        """Train a small network by two strategies at once, and show both."""
        store = next((path.parent.parent for path in sorted((self.recipe / "exp").glob("**/store/train/manifest.json"))), None)
        if store is None:
            self.say("There is no frame store (steps/nnet/pack.sh makes one); this stop is left out.")
            return
        options = ["--ngpu", str(WORKERS), "--fabric", "virtual", "--hid-layers", str(LAYERS), "--hid-dim", str(UNITS), "--schedule",
                   "exponential", "--num-epochs", str(EPOCHS)]
        targets = [self.out / strategy for strategy in STRATEGIES]
        commands = [["train", "--strategy", strategy, *options, str(store), str(target)]
                    for strategy, target in zip(STRATEGIES, targets, strict=True)]
        for command in commands:
            self.say(f"$ pykaldist {shlex.join(command)} &")
        self.say(f"{WORKERS} workers in this process, as on {WORKERS} GPUs. `pykaldist watch` shows one training; here are both:")
        with _started(commands, targets) as running:
            self.watch(targets, running)
        failed = next((target for target, one in zip(targets, running, strict=True) if one.returncode), None)
        if failed is not None:
            raise UserError(f"the training of {failed} failed; {failed}.log says why.")
        self.command(["compare", *map(str, targets)])

    def watch(self, targets: Sequence[Path], running: Sequence[subprocess.Popen[bytes]]) -> None:
        """Show trainings until the last one has ended."""
        drawn, onlookers = sys.stdout.isatty(), [Onlooker(target) for target in targets]
        said = time.monotonic()
        while any(one.poll() is None for one in running):
            time.sleep(LOOK_EVERY)
            if drawn or time.monotonic() - said > 10 * LOOK_EVERY:
                said = time.monotonic()
                size = shutil.get_terminal_size((100, 40))
                self.say((CLEAR if drawn else "") + _beside([_view(one, size.columns, size.lines) for one in onlookers], size.columns))

    def transcribe(self, example: Example | None) -> None:
        """Transcribe a recording by the best model."""
        model = self.best.decode_dir.parent
        if example is not None:
            self.command(["transcribe", "--format", "vtt", str(model), str(example.audio)])
        self.say(f"A file of your own: pykaldist transcribe {shlex.quote(str(model))} FILE.wav|mp3|opus   (--format srt: subtitles)\n"
                 f"In a browser, or by your voice: pykaldist transcribe --serve true {shlex.quote(str(model))}")

    def command(self, words: Sequence[str]) -> None:
        """Print a command of pykaldist's, and run it; raises UserError where it fails."""
        self.say(f"$ pykaldist {shlex.join(words)}")
        sys.stdout.flush()
        if subprocess.run(_pykaldist(words), check=False).returncode:
            raise UserError(f"`pykaldist {shlex.join(words)}` failed, as it says above; mend that, and start the tour again.")

    def _example(self) -> Example | None:
        """Of the best system, an utterance with few errors and about eight words, whose audio is in a plain file."""
        if not self.best.per_utt.is_file():
            return None
        aligned = read_alignments(self.best.per_utt)
        known = [DataDir(path.parent) for path in sorted((self.recipe / "data").glob("*/wav.scp")) if (path.parent / "utt2spk").is_file()]
        data, _ = data_of(self.best, references_of(aligned), known)
        if data is None:
            return None
        errors = {utt: sum(ref != hyp for ref, hyp in pairs) for utt, pairs in aligned.items()}
        for utt in sorted((utt for utt in aligned if errors[utt]), key=lambda utt: (errors[utt], abs(len(aligned[utt]) - WORDS), utt)):
            if (samples := _samples(data, utt)) is not None:
                audio = self.out / "utterance.wav"
                soundfile.write(audio, samples[0] / INT16_SCALE, samples[1], subtype="PCM_16")
                return Example(self.best, utt, aligned[utt], audio)
        return None


def _samples(data: DataDir, utt: str) -> tuple[np.ndarray, int] | None:
    """The samples of an utterance and their rate; None where they are not in a file that is read without running anything."""
    recording = data.segments[utt][0] if data.has("segments") else utt
    source = data.wav_scp.get(recording, "")
    if not source or pipe_command(source) is not None:
        return None
    try:
        rate = soundfile.info(source).samplerate
        ((_, samples),) = read_utterances(data, [utt], rate)
    except (soundfile.LibsndfileError, OSError):
        return None
    return None if isinstance(samples, AudioError) else (samples, rate)


def _aligned(pairs: Pairs) -> list[str]:
    """Reference and hypothesis under each other, and a mark where they differ."""
    shown = [(ref, hyp, "" if ref == hyp else "^") for ref, hyp in pairs]
    widths = [max(map(len, column)) for column in shown]
    return [f"{name:10s} " + " ".join(column[row].ljust(width) for column, width in zip(shown, widths, strict=True)).rstrip()
            for row, name in enumerate(("reference", "recognised", ""))]


def _pykaldist(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pykaldist", *words]


@contextmanager
def _started(commands: Sequence[Sequence[str]], targets: Sequence[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands that run at the same time, their output in files beside what they make; what still runs at the end is ended."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, target in zip(commands, targets, strict=True):
            with open(f"{target}.log", "wb") as log:
                running.append(subprocess.Popen(_pykaldist(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        yield running
    finally:
        for one in running:
            if one.poll() is None:
                one.terminate()
            one.wait()


def _view(onlooker: Onlooker, columns: int, rows: int) -> list[str]:
    """The view of a training as lines; a line that it begins where there is nothing to see."""
    try:
        view = onlooker.look()
    except UserError:
        return [f"{onlooker.exp}: begins"]
    if view.state == STOPPED:
        return [f"{onlooker.exp}: begins"]
    wide = columns >= WIDE
    return render_view(view, columns // 2 - 2 if wide else columns, rows if wide else rows // 2).splitlines()


def _beside(views: Sequence[list[str]], columns: int) -> str:
    """Views beside each other where the terminal is wide enough, else below each other."""
    if columns < WIDE:
        return "\n\n".join("\n".join(view) for view in views)
    width, height = columns // len(views), max(map(len, views))
    padded = [view + [""] * (height - len(view)) for view in views]
    return "\n".join("".join(line.ljust(width) for line in lines).rstrip() for lines in zip(*padded, strict=True))


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
