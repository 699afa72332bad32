"""sph2pipe: the samples of NIST sphere files as wav, with the command line that recipes write into wav.scp.

    tools/sph2pipe_v2.5/sph2pipe -f wav -p -c 1 FILE.sph > FILE.wav

Features are made without a process for each recording: `own_command` knows this program's command lines, which `convert` carries out here.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import soundfile

from pykaldist.errors import UserError, quoted
from pykaldist.io.entries import reason

PROGRAM = "tools/sph2pipe_v2.5/sph2pipe"
FORMATS = {"wav": "WAV", "rif": "WAV", "aif": "AIFF", "sph": "NIST", "raw": "RAW"}
USAGE = f"""Usage: sph2pipe [options] <file> [<out-file>]
 e.g.: sph2pipe -f wav -p -c 1 sw02001.sph > sw02001-A.wav
Converts a NIST sphere file to 16-bit samples, in another format; it goes to standard output, or to <out-file>.
Options:
  -f {'|'.join(FORMATS)}   # format (sph)
  -p                   # 16-bit samples, as they always are
  -c 1|2               # one channel, from 1 (all)
  -t <begin>:<end>     # seconds from begin to end; either may be left out
  -s <begin>:<end>     # likewise in samples
Files that are compressed with shorten are not read: the Linguistic Data Consortium's sph2pipe of this name does.
"""


def own_command(command: str) -> list[str] | None:
    """The arguments where a shell command is nothing but a call of this program to standard output; else None."""
    if "sph2pipe" not in command or any(char in command for char in "|&;<>$`*?(){}~\n"):
        return None
    words = shlex.split(command)
    found = shutil.which(words[0])
    return words[1:] if found and os.path.realpath(found) == os.path.realpath(own_program()) else None


def header_fields(content: bytes) -> dict[str, str]:
    """The fields of a sphere file's header: lines such as `sample_rate -i 16000`, up to `end_head`."""
    fields = {}
    for line in content[16:4096].split(b"end_head")[0].decode("ascii", errors="replace").splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3:
            fields[parts[0]] = parts[2]
    return fields


@dataclass(frozen=True)
class Header:
    """What a sphere file's header says; `samples` are those of one channel."""

    rate: int
    channels: int
    samples: int
    shortened: bool


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check the header of a sphere file, and the file's length where it is not compressed.

    Raises UserError for a file that is no sphere file, whose header is damaged, or that has fewer or more samples than its header says.
    """
    try:
        with open(path, "rb") as stream:
            return parse_header(stream.read(4096), os.fstat(stream.fileno()).st_size, path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path.") from error


def parse_header(head: bytes, size: int, path: str | os.PathLike[str]) -> Header:
    """The header of a sphere file of `size` bytes that begins with `head`, checked as by `read_header`; `path` is its name in messages."""
    if not head.startswith(b"NIST_1A"):
        raise UserError(f"{path} is no sphere file: expected NIST_1A at its beginning, found {head[:7]!r}; fetch it again.")
    fields = header_fields(head)
    try:
        length, width = int(head[8:16]), int(fields["sample_n_bytes"])
        header = Header(int(fields["sample_rate"]), int(fields["channel_count"]), int(fields["sample_count"]),
                        "shorten" in fields.get("sample_coding", ""))
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: the sphere header is damaged ({reason(error)}); fetch it again.") from error
    if min(header.rate, header.channels, header.samples, width) < 1:
        raise UserError(f"{path}: the sphere header is damaged: {header.samples} samples of {header.channels} channels at "
                        f"{header.rate} Hz; fetch it again.")
    expected, found = header.samples * header.channels * width, max(size - length, 0)
    if not header.shortened and found != expected:
        raise UserError(f"{path} {'is truncated' if found < expected else 'has more than its header says'}: {expected} bytes of samples "
                        f"expected, {found} found; fetch it again.")
    return header


def own_program() -> str:
    """The path of this program, as wav.scp names it."""
    return os.path.join(os.environ.get("PYKALDIST_ROOT") or Path(__file__).resolve().parents[2], PROGRAM)


def decompressor() -> str | None:
    """A program of this name that reads shortened files, the Linguistic Data Consortium's, on PATH or installed by lhotse; else None."""
    found = shutil.which("sph2pipe")
    if found and os.path.realpath(found) != os.path.realpath(own_program()):
        return found
    installed = Path.home() / ".lhotse/tools/sph2pipe-2.5/sph2pipe"  # where `lhotse install-sph2pipe` puts it
    return str(installed) if os.access(installed, os.X_OK) else None


def pipe(program: str, path: str | os.PathLike[str], channel: int) -> str:
    """The entry of wav.scp for one channel, from 1, of a sphere file."""
    return f"{shlex.quote(program)} -f wav -p -c {channel} {shlex.quote(os.fspath(path))} |"


def convert(words: list[str]) -> tuple[bytes, str]:
    """The converted file of a command line's arguments, and the name of the file to write, or none.

    Raises UserError for arguments that are none, and a file that is missing, damaged or compressed.
    """
    options: dict[str, str] = {"f": "sph", "c": "", "t": "", "s": ""}
    rest = list(words)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        name = rest.pop(0)[1:]
        if name == "p":
            continue
        if name not in options or not rest:
            raise UserError(f"sph2pipe has no option -{name}, or it lacks its value; it has -f, -p, -c, -t and -s.")
        options[name] = rest.pop(0)
    if not 1 <= len(rest) <= 2:
        raise UserError(f"sph2pipe: expected a file, found {len(rest)}.")
    if options["f"] not in FORMATS or options["c"] not in ("", "1", "2"):
        raise UserError(f"sph2pipe: expected -f {'|'.join(FORMATS)} and -c 1|2, found -f {options['f']} -c {options['c']}.")
    path = rest[0]
    try:
        if read_header(path).shortened:
            raise UserError(f"{path} is compressed with shorten, which is not read here; decompress the corpus with the Linguistic Data "
                            f"Consortium's sph2pipe, or put that in the place of {PROGRAM}.")
        with soundfile.SoundFile(path) as sound:
            rate = sound.samplerate
            samples = sound.read(dtype="int16", always_2d=True)
            if len(samples) < sound.frames:
                raise UserError(f"{path} is truncated: {sound.frames} samples expected, {len(samples)} found; fetch it again.")
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise UserError(f"{path} is no audio file that is read here ({str(error).rsplit(': ', 1)[-1].rstrip('.')}); convert it (ffmpeg -i "
                        f"{quoted(path)} FILE.wav).") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    for span, scale in ((options["t"], rate), (options["s"], 1)):
        if span:
            samples = samples[slice(*_bounds(span, scale))]
    channel = int(options["c"] or 0)
    if channel > samples.shape[1]:
        raise UserError(f"{path}: expected channel {channel}, found {samples.shape[1]} channels.")
    written = io.BytesIO()
    soundfile.write(written, samples[:, channel - 1] if channel else samples, rate, "PCM_16", format=FORMATS[options["f"]])
    return written.getvalue(), rest[1] if len(rest) == 2 else ""


def _bounds(span: str, scale: int) -> tuple[int, int | None]:
    """The first sample, and the one behind the last, of <begin>:<end>."""
    begin, colon, end = span.partition(":")
    try:
        return round(float(begin or 0) * scale), round(float(end) * scale) if end else None
    except ValueError as error:
        raise UserError(f"sph2pipe: expected <begin>:<end>, found {span}{'' if colon else ' without a colon'}.") from error


def main(words: list[str]) -> int:
    """Do what the command line says; returns the exit status."""
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 1
    try:
        content, target = convert(words)
    except UserError as error:
        print(f"sph2pipe: ERROR: {error}", file=sys.stderr)
        return 1
    with open(target, "wb") if target else os.fdopen(os.dup(1), "wb") as stream:
        stream.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
