"""Pitch and voicing features, as of Kaldi's compute-kaldi-pitch-feats and process-kaldi-pitch-feats.

The signal is low-pass filtered and resampled to 4 kHz. With the window's samples x (its mean subtracted) at time t, the normalised
cross-correlation at lag l is
    NCCF(t, l) = sum_n x[n] x[n + l] / sqrt(|x[0 .. N)|^2 |x[l .. l + N)|^2 + ballast),
for the whole-sample lags between the periods of max-f0 and min-f0, from which it is interpolated at lags L_i that grow by the factor
1 + delta-pitch. The ballast, in proportion to the signal's mean power, keeps quiet frames from looking voiced. The pitch track minimises
    sum_t 1 - NCCF(t, L_i) (1 - soft-min-f0 L_i) + penalty-factor log(1 + delta-pitch)^2 (i_t - i_{t-1})^2,
by dynamic programming, in which the minimum over the squared jumps from all lags at once is the lower envelope of parabolas
(P. Felzenszwalb, D. Huttenlocher, 2004): linear in the number of lags, and exact. Tracks are often tied to within the rounding of float32;
to choose Kaldi's, costs are added up in float32 as there, and lags near the envelope's are compared so.

The features are a warped NCCF (without ballast) at the chosen lag, the log-pitch less its mean over a window, weighted by the probability
of voicing, and the delta of the log-pitch.
Source: P. Ghahremani et al., "A pitch extraction algorithm tuned for automatic speech recognition", ICASSP 2014.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.deltas import add_deltas
from pykaldist.kernels import kernel
from pykaldist.options import option

_NEAR = 3  # lags on either side of the envelope's that are compared in float32


@dataclass
class PitchOptions:
    """Options of `conf/pitch.conf`, with Kaldi's names and defaults."""

    sample_frequency: float = option(16000.0, "sampling rate of the audio, in Hz")
    frame_length: float = option(25.0, "frame length, in ms")
    frame_shift: float = option(10.0, "frame shift, in ms")
    min_f0: float = option(50.0, "lowest pitch searched for, in Hz")
    max_f0: float = option(400.0, "highest pitch searched for, in Hz")
    soft_min_f0: float = option(10.0, "lower pitches than some multiple of this are disfavoured, in Hz")
    penalty_factor: float = option(0.1, "cost of changes of the pitch")
    lowpass_cutoff: float = option(1000.0, "cutoff of the low-pass filter, in Hz")
    resample_frequency: float = option(4000.0, "sampling rate that the signal is brought to, in Hz")
    delta_pitch: float = option(0.005, "smallest relative change of pitch that is told apart")
    nccf_ballast: float = option(7000.0, "how far quiet frames are kept from looking voiced")
    lowpass_filter_width: int = option(1, "zeros of the low-pass filter on either side")
    upsample_filter_width: int = option(5, "zeros of the filter that interpolates the NCCF on either side")

    def __post_init__(self) -> None:
        if not 0 < self.min_f0 < self.max_f0 or self.delta_pitch <= 0:
            raise UserError(f"--min-f0 must be above 0 and below --max-f0, and --delta-pitch above 0, found {self.min_f0:g}, "
                            f"{self.max_f0:g} and {self.delta_pitch:g}.")
        if not 0 < 2 * self.lowpass_cutoff <= min(self.sample_frequency, self.resample_frequency):
            raise UserError(f"--lowpass-cutoff={self.lowpass_cutoff:g} must be at most half of --sample-frequency and of "
                            f"--resample-frequency, {self.sample_frequency:g} and {self.resample_frequency:g}.")
        if self.frame_length < self.frame_shift or self.shift < 1:
            raise UserError(f"--frame-shift={self.frame_shift:g} ms must be at least a sample of --resample-frequency and no more than "
                            f"--frame-length={self.frame_length:g} ms.")

    @property
    def shift(self) -> int:
        """The frame shift in samples of the resampled signal."""
        return int(self.resample_frequency * self.frame_shift / 1000)

    @property
    def window(self) -> int:
        """The length of a frame in samples of the resampled signal."""
        return int(self.resample_frequency * self.frame_length / 1000)


@dataclass
class ProcessPitchOptions:
    """Options of `conf/pitch_process.conf`, with Kaldi's names and defaults."""

    pitch_scale: float = option(2.0, "factor on the normalised log-pitch")
    pov_scale: float = option(2.0, "factor on the voicing feature")
    pov_offset: float = option(0.0, "offset of the voicing feature")
    delta_pitch_scale: float = option(10.0, "factor on the delta of the log-pitch")
    delta_pitch_noise_stddev: float = option(0.005, "standard deviation of noise on the delta, before its factor; the seed comes from the "
                                                    "utterance")
    normalization_left_context: int = option(75, "frames before that the mean of the log-pitch is taken over")
    normalization_right_context: int = option(75, "frames behind, likewise")
    delta_window: int = option(2, "frames on either side that the delta looks at")
    add_pov_feature: bool = option(True, "the voicing feature")
    add_normalized_log_pitch: bool = option(True, "the log-pitch less its mean")
    add_delta_pitch: bool = option(True, "the delta of the log-pitch")
    add_raw_log_pitch: bool = option(False, "the log-pitch as it is")

    def __post_init__(self) -> None:
        if not (self.add_pov_feature or self.add_normalized_log_pitch or self.add_delta_pitch or self.add_raw_log_pitch):
            raise UserError("pitch processing without any feature; leave one of the --add- options true.")
        if self.delta_window < 1 or min(self.normalization_left_context, self.normalization_right_context,
                                        self.delta_pitch_noise_stddev) < 0:
            raise UserError("--delta-window must be at least 1, and neither contexts nor noise may be negative.")


def lowpass(t: np.ndarray, cutoff: float, zeros: int) -> np.ndarray:
    """A sinc filter of `cutoff` Hz at times t (seconds) under a Hann window of `zeros` zeros on either side (Kaldi's FilterFunc)."""
    window = np.where(np.abs(t) < zeros / (2 * cutoff), 0.5 * (1 + np.cos(2 * np.pi * cutoff / zeros * t)), 0.0)
    return 2 * cutoff * np.sinc(2 * cutoff * t) * window


class PitchExtractor:
    """Extracts the pitch of utterances: `raw` gives NCCF and Hz, `extract` the processed features."""

    def __init__(self, options: PitchOptions | None = None, process: ProcessPitchOptions | None = None, seed: int = 0) -> None:
        self.options, self.process, self.seed = options or PitchOptions(), process or ProcessPitchOptions(), seed
        rate, width = self.options.resample_frequency, self.options.upsample_filter_width
        reach = width / (2 * rate)
        self._first_lag = math.ceil(rate * (1 / self.options.max_f0 - reach))
        self._last_lag = math.floor(rate * (1 / self.options.min_f0 + reach))
        if self._first_lag < 1:
            raise UserError(f"--max-f0={self.options.max_f0:g} is too high for --resample-frequency={rate:g}.")
        growth = 1 + self.options.delta_pitch
        steps = math.floor(math.log(self.options.max_f0 / self.options.min_f0) / math.log(growth) + 1e-9)
        self.lags = growth ** np.arange(steps + 1) / self.options.max_f0
        measured = np.arange(self._first_lag, self._last_lag + 1) / rate
        apart = self.lags[None] - measured[:, None]
        self._interpolation = np.where(np.abs(apart) <= width / rate, lowpass(apart, rate / 2, width) / rate, 0.0).astype(np.float32)
        self._jump_cost = self.options.penalty_factor * math.log(growth) ** 2

    def resampled(self, samples: np.ndarray) -> np.ndarray:
        """The signal at --resample-frequency, float32, filtered."""
        options = self.options
        source, target = int(options.sample_frequency), int(options.resample_frequency)
        divisor = math.gcd(source, target)
        period_in, period_out = source // divisor, target // divisor  # samples after which the pattern of times repeats
        reach = options.lowpass_filter_width / (2 * options.lowpass_cutoff)
        count = -(-len(samples) * period_out // period_in)
        result = np.zeros(count, dtype=np.float32)
        pad = math.ceil(reach * source) + 1
        padded = np.concatenate([np.zeros(pad, np.float32), samples.astype(np.float32), np.zeros(pad + period_in, np.float32)])
        for phase in range(period_out):
            first, last = (math.ceil(source * (phase / target - reach)), math.floor(source * (phase / target + reach)))
            weights = lowpass(np.arange(first, last + 1) / source - phase / target, options.lowpass_cutoff, options.lowpass_filter_width)
            mine = result[phase::period_out]
            windows = np.lib.stride_tricks.sliding_window_view(padded[pad + first:], last + 1 - first)[::period_in][:len(mine)]
            mine[:] = windows @ (weights / source).astype(np.float32)
        return result

    def raw(self, samples: np.ndarray) -> np.ndarray:
        """Extract [NCCF, pitch in Hz] of each frame, float32 (T, 2), from samples in 16-bit scale.

        There are no rows where the samples are too few for a frame.
        """
        options = self.options
        wave = self.resampled(samples)
        frames = max(0, (len(wave) - options.window) // options.shift + 1)
        if int(options.sample_frequency * options.frame_length / 1000) > len(samples):
            frames = 0
        if frames == 0:
            return np.zeros((0, 2), dtype=np.float32)
        settled = wave[:max(1, len(wave) - math.ceil(options.lowpass_filter_width / (2 * options.lowpass_cutoff)
                                                     * options.resample_frequency))]  # samples whose filter does not reach beyond the end
        power = np.mean(settled * settled, dtype=np.float64) - np.mean(settled, dtype=np.float64) ** 2
        ballast = (power * options.window) ** 2 * options.nccf_ballast
        padded = np.concatenate([wave, np.zeros(self._last_lag + options.window, dtype=np.float32)])
        inner, norm = _correlations(padded, frames, options.shift, options.window, self._first_lag, self._last_lag)
        root = np.sqrt(norm)
        voicing = (inner / np.where(root > 0, root, 1.0)).astype(np.float32)
        steady = np.sqrt(norm + ballast)
        nccf = (inner / np.where(steady > 0, steady, 1.0)).astype(np.float32) @ self._interpolation
        cost = np.float32(1.0) - nccf + np.float32(options.soft_min_f0) * self.lags.astype(np.float32) * nccf
        track = _best_track(cost, self._jump_cost)
        found = np.einsum("tl,lt->t", voicing, self._interpolation[:, track])
        return np.stack([found, 1 / self.lags[track]], axis=1).astype(np.float32)

    def extract(self, utt: str, samples: np.ndarray) -> np.ndarray:
        """Extract the processed features, float32 (T, 1 to 4); the utterance's name seeds the noise on the delta."""
        rng = np.random.default_rng([self.seed, zlib.crc32(utt.encode())])
        return process_pitch(self.raw(samples), self.process, rng)


def process_pitch(raw: np.ndarray, options: ProcessPitchOptions, rng: np.random.Generator) -> np.ndarray:
    """Features for speech recognition, float32 (T, 1 to 4), from [NCCF, Hz] (T, 2)."""
    nccf, log_pitch = np.clip(raw[:, 0].astype(np.float64), -1, 1), np.log(raw[:, 1].astype(np.float64))
    frames, columns = len(raw), []
    if options.add_pov_feature:
        columns.append(options.pov_scale * ((1.0001 - nccf) ** 0.15 - 1.0) + options.pov_offset)
    if options.add_normalized_log_pitch:
        size = np.abs(nccf)
        voiced = 1 / (1 + np.exp(-(-5.2 + 5.4 * np.exp(7.5 * (size - 1)) + 4.8 * size - 2 * np.exp(-10 * size)
                                   + 4.2 * np.exp(20 * (size - 1)))))
        start = np.maximum(np.arange(frames) - options.normalization_left_context, 0)
        end = np.minimum(np.arange(frames) + options.normalization_right_context + 1, frames)
        weight, total = (np.concatenate([[0], np.cumsum(x)]) for x in (voiced, voiced * log_pitch))
        columns.append(options.pitch_scale * (log_pitch - (total[end] - total[start]) / (weight[end] - weight[start])))
    if options.add_delta_pitch and frames:
        delta = add_deltas(log_pitch[:, None].astype(np.float32), 1, options.delta_window)[:, 1]
        columns.append(options.delta_pitch_scale * (delta + options.delta_pitch_noise_stddev * rng.standard_normal(frames)))
    elif options.add_delta_pitch:
        columns.append(np.zeros(0))
    if options.add_raw_log_pitch:
        columns.append(log_pitch)
    return np.stack(columns, axis=1).astype(np.float32)


@kernel(nogil=True, fastmath={"reassoc", "contract"})
def _correlations(wave: np.ndarray, frames: int, shift: int, window: int, first_lag: int, last_lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Inner products of each frame with itself later by each lag, and the products of both parts' energies.

    Both are float32 (frames, lags).
    """
    lags = last_lag - first_lag + 1
    inner, norm = np.empty((frames, lags), np.float32), np.empty((frames, lags), np.float32)
    part = np.empty(window + last_lag, np.float32)
    for t in range(frames):
        start = t * shift
        mean = np.float32(0.0)
        for n in range(window):
            mean += wave[start + n]
        mean /= np.float32(window)
        for n in range(window + last_lag):
            part[n] = wave[start + n] - mean
        energy = np.float32(0.0)
        for n in range(window):
            energy += part[n] * part[n]
        for i in range(lags):
            lag = first_lag + i
            product, later = np.float32(0.0), np.float32(0.0)
            for n in range(window):
                product += part[n] * part[n + lag]
                later += part[n + lag] * part[n + lag]
            inner[t, i] = product
            norm[t, i] = energy * later
    return inner, norm


@kernel(nogil=True)
def _best_track(cost: np.ndarray, jump_cost: float) -> np.ndarray:
    """The lag of each frame on the cheapest track, for costs (frames, lags) float32 plus `jump_cost` times the squared jumps."""
    frames, lags = cost.shape
    total = np.zeros(lags, np.float32)
    there = np.empty(lags, np.float32)
    back = np.empty((frames, lags), np.int32)
    vertex = np.empty(lags, np.int32)  # whose parabola is lowest from `bound` on
    bound = np.empty(lags + 1)
    factor = np.float32(jump_cost)
    for t in range(frames):
        last = 0
        vertex[0], bound[0], bound[1] = 0, -np.inf, np.inf
        for j in range(1, lags):
            while True:
                v = vertex[last]
                cross = ((total[j] + jump_cost * j * j) - (total[v] + jump_cost * v * v)) / (2.0 * jump_cost * (j - v))
                if cross > bound[last]:
                    break
                last -= 1
            last += 1
            vertex[last], bound[last], bound[last + 1] = j, cross, np.inf
        at = 0
        for i in range(lags):
            while bound[at + 1] < i:
                at += 1
            best = np.float32(np.inf)
            for j in range(max(0, vertex[at] - _NEAR), min(lags, vertex[at] + _NEAR + 1)):
                value = np.float32((j - i) * (j - i)) * factor + total[j]
                if value < best:
                    best = value
                    back[t, i] = j
            there[i] = best + cost[t, i]
        total, there = there, total
        total -= total.min()
    track = np.empty(frames, np.int32)
    state = int(np.argmin(total))
    for t in range(frames - 1, -1, -1):
        track[t] = state
        state = back[t, state]
    return track
