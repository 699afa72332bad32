"""MFCC, PLP and log-mel filterbank features, with Kaldi's settings (equal to Kaldi's within 1e-3); mel.py has what they are made of.

A frame depends on its own samples only, so utterances are laid end to end in one buffer, each at a multiple of the frame
shift, and go through the extractor together: the frames of an utterance are a slice of the buffer's frames, and short
utterances cost no calls of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.feats.mel import FLOOR, cepstral_transform, mel_centres, mel_filters, window
from pykaldist.feats.plp import plp
from pykaldist.options import option

BATCH_S = 5.0  # seconds of audio that go through the extractor at once: its temporaries should stay in the cache


@dataclass
class FrameOptions:
    """The options that all features share, by Kaldi's names and, but for --dither, with Kaldi's defaults."""

    kind: ClassVar[str]

    sample_frequency: float = option(16000.0, "sampling rate of the audio, in Hz")
    frame_length: float = option(25.0, "frame length, in ms")
    frame_shift: float = option(10.0, "frame shift, in ms")
    window_type: str = option("povey", "window", choices=("povey", "hamming", "hanning", "rectangular", "blackman"))
    preemphasis_coefficient: float = option(0.97, "coefficient of the pre-emphasis")
    remove_dc_offset: bool = option(True, "subtract each frame's mean from it")
    dither: float = option(0.0, "standard deviation of the noise that is added, in 16-bit units; the seed comes from the utterance")
    num_mel_bins: int = option(23, "triangular mel filters")
    low_freq: float = option(20.0, "lower edge of the lowest filter, in Hz")
    high_freq: float = option(0.0, "upper edge of the highest filter, in Hz; if not positive, an offset from the Nyquist frequency")

    def __post_init__(self) -> None:
        nyquist = self.sample_frequency / 2
        high = self.high_freq if self.high_freq > 0 else nyquist + self.high_freq
        if not 0 <= self.low_freq < high <= nyquist:
            raise UserError(f"--low-freq={self.low_freq:g} and --high-freq={self.high_freq:g} leave no band below "
                            f"{nyquist:g} Hz, half of --sample-frequency.")
        if self.num_mel_bins < 4:
            raise UserError(f"--num-mel-bins must be at least 4, found {self.num_mel_bins}.")
        if self.frame_length < self.frame_shift or self.samples_per_shift < 1:
            raise UserError(f"--frame-shift={self.frame_shift:g} ms must be positive and no more than "
                            f"--frame-length={self.frame_length:g} ms.")
        if self.window_type not in type(self).__dataclass_fields__["window_type"].metadata["choices"]:
            raise UserError(f"there is no --window-type={self.window_type}; take povey or hamming.")
        if self.dither < 0:
            raise UserError(f"--dither must not be negative, found {self.dither:g}.")

    @property
    def samples_per_frame(self) -> int:
        return int(self.sample_frequency * self.frame_length / 1000)

    @property
    def samples_per_shift(self) -> int:
        return int(self.sample_frequency * self.frame_shift / 1000)

    def num_frames(self, samples: int) -> int:
        """Frames that lie wholly within `samples` samples (Kaldi's --snip-edges=true)."""
        return max(0, 1 + (samples - self.samples_per_frame) // self.samples_per_shift)


@dataclass
class MfccOptions(FrameOptions):
    """Options of `conf/mfcc.conf`."""

    kind: ClassVar[str] = "mfcc"

    num_ceps: int = option(13, "cepstral coefficients, C0 or energy included")
    use_energy: bool = option(True, "log energy of the frame in the place of C0")
    cepstral_lifter: float = option(22.0, "liftering coefficient; 0 for none")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_ceps <= self.num_mel_bins:
            raise UserError(f"--num-ceps must be 1 to --num-mel-bins={self.num_mel_bins}, found {self.num_ceps}.")


@dataclass
class FbankOptions(FrameOptions):
    """Options of `conf/fbank.conf`."""

    kind: ClassVar[str] = "fbank"


@dataclass
class PlpOptions(FrameOptions):
    """Options of `conf/plp.conf`."""

    kind: ClassVar[str] = "plp"

    lpc_order: int = option(12, "order of the linear prediction")
    num_ceps: int = option(13, "cepstral coefficients, C0 or energy included")
    use_energy: bool = option(True, "log energy of the frame in the place of C0")
    compress_factor: float = option(0.33333, "exponent that compresses the mel energies")
    cepstral_lifter: float = option(22.0, "liftering coefficient; 0 for none")
    cepstral_scale: float = option(1.0, "factor on the cepstra, not on the energy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_ceps <= self.lpc_order + 1 <= self.num_mel_bins + 2:
            raise UserError(f"--num-ceps={self.num_ceps} must be 1 to --lpc-order + 1, and --lpc-order={self.lpc_order} at most "
                            f"--num-mel-bins={self.num_mel_bins} + 1.")


FeatureOptions = MfccOptions | PlpOptions | FbankOptions
KINDS: dict[str, type[FeatureOptions]] = {"mfcc": MfccOptions, "plp": PlpOptions, "fbank": FbankOptions}


class Extractor:
    """Computes the features of batches of utterances.

    `extract` takes samples at `options.sample_frequency` in 16-bit scale and returns float32 frames x dimensions for each.
    """

    def __init__(self, options: FeatureOptions, seed: int = 0) -> None:
        self.options, self.seed = options, seed
        self._fft_length = 1 << (options.samples_per_frame - 1).bit_length()
        self._band = (options.num_mel_bins, options.low_freq, options.high_freq + (options.high_freq <= 0) * options.sample_frequency / 2)
        # numpy transforms float32 in float32 only where it divides by the length; the filters take that back.
        self._filters = mel_filters(*self._band, self._fft_length, options.sample_frequency) * np.float32(self._fft_length) ** 2
        self._window = window(options.window_type, options.samples_per_frame)
        self._kept: tuple[np.ndarray, ...] = ()

    def extract(self, batch: Sequence[tuple[str, np.ndarray]]) -> list[np.ndarray]:
        """Compute the features of (utterance, samples) pairs; the name seeds the dither. Too short an utterance gives 0 frames.

        In the deterministic mode each goes through by itself: the last bits of a product of matrices depend on how many rows it has, and
        with them on what else is in the batch, and so on the number of jobs.
        """
        if deterministic.enabled() and len(batch) > 1:
            return [features for one in batch for features in self.extract([one])]
        shift, length = self.options.samples_per_shift, self.options.samples_per_frame
        starts, total = [], 0
        for _, samples in batch:
            starts.append(total)
            total += -(-len(samples) // shift)
        buffer = np.zeros(total * shift + length, dtype=np.float32)
        for (utt, samples), start in zip(batch, starts, strict=True):
            view = buffer[start * shift : start * shift + len(samples)]
            view[:] = samples
            if self.options.dither > 0:
                noise = np.random.default_rng([self.seed, zlib.crc32(utt.encode())]).standard_normal(len(samples), dtype=np.float32)
                view += np.float32(self.options.dither) * noise
        with np.errstate(over="ignore", invalid="ignore"):  # who calls looks for features that are not finite
            frames = self._features(np.lib.stride_tricks.sliding_window_view(buffer, length)[::shift])
        return [frames[start : start + self.options.num_frames(len(samples))] for (_, samples), start in zip(batch, starts, strict=True)]

    def _buffers(self, frames: int) -> tuple[np.ndarray, ...]:
        """Arrays for so many frames: samples with zeros behind them, spectrum, power, and one for anything.

        They are kept, as fresh memory costs more than what it is used for.
        """
        length = self._fft_length
        if not self._kept or len(self._kept[0]) < frames:
            widths = ((length, np.float32), (length // 2 + 1, np.complex64), (length // 2, np.float32), (length, np.float32))
            self._kept = tuple(np.zeros((frames, width), dtype) for width, dtype in widths)
        return tuple(one[:frames] for one in self._kept)

    def _features(self, frames: np.ndarray) -> np.ndarray:
        """The features of frames of samples, float32 (T, D)."""
        o = self.options
        padded, spectrum, power, other = self._buffers(len(frames))
        frames = np.subtract(frames, frames.mean(axis=1, keepdims=True) if o.remove_dc_offset else 0, out=padded[:, : frames.shape[1]])
        energy = np.einsum("ij,ij->i", frames, frames)
        if o.preemphasis_coefficient:
            before = np.multiply(frames[:, :-1], np.float32(o.preemphasis_coefficient), out=other[:, : frames.shape[1] - 1])
            frames[:, 1:] -= before
            frames[:, 0] *= 1.0 - o.preemphasis_coefficient
        frames *= self._window
        half = np.fft.rfft(padded, norm="forward", out=spectrum)[:, :-1]
        np.square(half.real, out=power)
        power += np.square(half.imag, out=other[:, : power.shape[1]])
        mel_energies = np.maximum(power @ self._filters, np.float32(FLOOR))
        if isinstance(o, FbankOptions):
            return np.log(mel_energies)
        if isinstance(o, PlpOptions):
            y = plp(mel_energies, mel_centres(*self._band), o.lpc_order, o.num_ceps, o.compress_factor, o.cepstral_lifter, o.cepstral_scale)
        else:
            y = np.log(mel_energies) @ cepstral_transform(o.num_ceps, o.num_mel_bins, o.cepstral_lifter)
        if o.use_energy:
            y[:, 0] = np.log(np.maximum(energy, np.float32(FLOOR)))
        return y
