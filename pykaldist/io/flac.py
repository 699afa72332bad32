"""flac: the samples of FLAC files as wav, with the command line that recipes write into wav.scp.

    flac -c -d -s FILE.flac > FILE.wav

It stands in for the program of this name where a machine has none. Features are made without a process for each recording:
`own_command` knows these command lines, which `convert` carries out here.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from pathlib import Path

import soundfile

from pykaldist.errors import UserError, quoted

PROGRAM = "tools/flac/flac"
DECODE = {"-c": "c", "--stdout": "c", "-d": "d", "--decode": "d", "-s": "s", "--silent": "s", "--totally-silent": "s"}
USAGE = """Usage: flac -c -d [-s] <file>
 e.g.: flac -c -d -s 1272-128104-0000.flac > 1272-128104-0000.wav
Writes the samples of a FLAC file to standard output, as wav. Where the FLAC project's own
program is installed, that one is taken.
Options:
  -d   # decode; needed
  -c   # to standard output; needed
  -s   # say nothing, as ever
"""


def own_command(command: str) -> list[str] | None:
    """The arguments where a shell command is nothing but a call of this program to standard output; else None."""
    if not command.split() or os.path.basename(command.split()[0]) != "flac" or any(char in command for char in "|&;<>$`*?(){}~\n"):
        return None
    words = shlex.split(command)
    root = os.environ.get("PYKALDIST_ROOT") or Path(__file__).resolve().parents[2]
    found = shutil.which(words[0])
    return words[1:] if found and os.path.realpath(found) == os.path.realpath(os.path.join(root, PROGRAM)) else None


def convert(words: list[str]) -> bytes:
    """The wav file that a command line's arguments ask for; raises UserError where they ask for something else, or the file is no FLAC."""
    asked = set()
    files = []
    for word in words:
        letters = [f"-{letter}" for letter in word[1:]] if word.startswith("-") and not word.startswith("--") else [word]
        if word.startswith("-") and all(letter in DECODE for letter in letters):
            asked |= {DECODE[letter] for letter in letters}
        elif word.startswith("-"):
            raise UserError(f"flac: {word} is not known here, where `flac -c -d -s FILE` decodes a file; install the FLAC project's flac.")
        else:
            files.append(word)
    if not {"c", "d"} <= asked or len(files) != 1:
        raise UserError("flac: expected -c, -d and a file, for here it decodes to stdout; for the rest apt-get install flac.")
    try:
        with soundfile.SoundFile(files[0]) as sound:
            if sound.format != "FLAC":
                raise UserError(f"flac: {files[0]} is no FLAC file, but {sound.format}; convert it (ffmpeg -i {quoted(files[0])} "
                                "FILE.flac).")
            samples, rate, subtype = sound.read(dtype="int32", always_2d=True), sound.samplerate, sound.subtype
            if len(samples) < sound.frames:
                raise UserError(f"{files[0]} is truncated: {sound.frames} samples expected, {len(samples)} found; fetch it again.")
    except (soundfile.LibsndfileError, RuntimeError) as error:
        if not os.path.exists(files[0]):
            raise UserError(f"{files[0]} does not exist; check the path in wav.scp.") from error
        raise UserError(f"{files[0]} is no FLAC file that is read here ({str(error).rsplit(': ', 1)[-1].rstrip('.')}); convert it (ffmpeg "
                        f"-i {quoted(files[0])} FILE.flac).") from error
    written = io.BytesIO()
    soundfile.write(written, samples, rate, "PCM_U8" if subtype == "PCM_S8" else subtype, format="WAV")
    return written.getvalue()


def main(words: list[str]) -> int:
    """Do what the command line says; returns the exit status."""
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 1
    try:
        content = convert(words)
    except UserError as error:
        print(f"flac: ERROR: {error}", file=sys.stderr)
        return 1
    with os.fdopen(os.dup(1), "wb") as stream:
        stream.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
