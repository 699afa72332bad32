"""Recognition of audio as it comes: the words, lattices and times of the whole recording, its endpoints, its options."""

from __future__ import annotations

import argparse
import io
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pykaldist.cli import main
from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.decode.chunks import ChunkOptions, Nnet3Options
from pykaldist.decode.decoder import BestPath, DecoderOptions, LatticeDecoder
from pykaldist.decode.endpoint import RULES, Endpointing, EndpointRule, add_endpoint_options, endpointing_from
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.online_dir import PrepareOptions, prepare_online_dir, read_online_conf
from pykaldist.decode.paths import best_path
from pykaldist.decode.silence_weights import SilenceWeighting
from pykaldist.decode.streaming import FirstUtterance, Heard, Recogniser, Recognition
from pykaldist.errors import UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.feats.stream import FeatureStream
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import read_extractor
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers

from .conftest import run, succeed
from .test_ivectors import DIM
from .test_vosk import with_unused_ivectors, write_extractor

DECODING = DecoderOptions(15.0, 8.0, 7000, 200, 1.0)
SILENCE = range(1, 11)
UTT = "fcaw-an406-fcaw-b"


@pytest.fixture(scope="module")
def system(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's model that carries its shift inside, with its graph."""
    folder, chain = tmp_path_factory.mktemp("s5") / "exp/tdnn", golden / "chain_an4"
    (folder / "graph/phones").mkdir(parents=True)
    shutil.copyfile(chain / "final_global_mean.mdl", folder / "final.mdl")
    (folder / "frame_subsampling_factor").write_text("3\n")
    shutil.copyfile(chain / "HCLG.fst", folder / "graph/HCLG.fst")
    shutil.copyfile(chain / "decode/words.txt", folder / "graph/words.txt")
    shutil.copyfile(golden / "an4_kaldi/lang/phones/silence.csl", folder / "graph/phones/silence.csl")
    return folder


@pytest.fixture(scope="module")
def extractor(golden: Path) -> Extractor:
    return Extractor(read_conf(MfccOptions, golden / "chain_an4/mfcc_hires.conf"))


@pytest.fixture(scope="module")
def samples(golden: Path, shared: Path) -> np.ndarray:
    return read_audio(str(shared / DataDir(golden / "an4_kaldi/data/test").wav_scp[UTT]))[0]


def recogniser(system: Path, extractor: Extractor, endpointing: Endpointing | None) -> Recogniser:
    return Recogniser(system, system / "graph", extractor, DECODING, endpointing)


def heard_of(recogniser: Recogniser, samples: np.ndarray, chunk: int) -> list[Heard]:
    recognition = Recognition(recogniser)
    heard = [one for start in range(0, len(samples), chunk) for one in recognition.accept(samples[start:start + chunk])]
    return [*heard, *recognition.finish()]


@pytest.mark.parametrize("chunk", [1, 160, 401, 5000])
def test_features_of_pieces_are_those_of_the_whole(extractor: Extractor, samples: np.ndarray, chunk: int) -> None:
    samples = samples[:4000]
    stream = FeatureStream(extractor)
    found = np.concatenate([stream.accept(samples[start:start + chunk]) for start in range(0, len(samples), chunk)])
    np.testing.assert_allclose(found, extractor.extract([("", samples)])[0], atol=1e-3)
    with pytest.raises(UserError, match="--dither=1"):
        FeatureStream(Extractor(MfccOptions(dither=1.0)))


@pytest.fixture(scope="module")
def lstm(system: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system with an LSTM behind a TDNN layer, whose parameters are random."""
    folder = tmp_path_factory.mktemp("lstm") / "exp"
    shutil.copytree(system, folder)
    model = Nnet3Model.read(folder / "final.mdl")
    layers = read_layers(["input dim=40 name=input", "relu-renorm-layer name=t input=Append(-1,0,1) dim=16",
                          "fast-lstmp-layer name=l cell-dim=16 recurrent-projection-dim=8 non-recurrent-projection-dim=8 delay=-3",
                          f"output-layer name=output input=Append(-3,0) dim={model.nnet.dim('output')} param-stddev=1"])
    nnet = initialised(config_lines(layers)["final"], torch.Generator().manual_seed(1))
    output = nnet.components["output.affine"]
    output.values["LinearParams"] = np.random.default_rng(1).normal(size=output.linear.shape).astype(np.float32)
    plan = Plan(nnet, subsampling=3)
    replace(model, nnet=nnet, left_context=plan.left_context, right_context=plan.right_context).write(folder / "final.mdl")
    return folder


def test_an_lstm_recognises_audio_as_it_comes(lstm: Path, extractor: Extractor, samples: np.ndarray) -> None:
    """Its outputs, and the lattice, are those of the whole recording, whether its features are there or still come."""
    feats = extractor.extract([("", samples)])[0]
    expected = Nnet3Forward(Nnet3Model.read(lstm / "final.mdl").nnet, subsampling=3)(feats)
    model = load_acoustic_model(lstm, forwarding=ForwardOptions("looped"), nnet3=Nnet3Options(chunks=ChunkOptions(20)))
    np.testing.assert_allclose(model.loglikes(feats), expected, atol=1e-4)
    anew = load_acoustic_model(lstm, nnet3=Nnet3Options(chunks=ChunkOptions(20))).loglikes(feats)
    assert np.abs(anew - expected).max() > 1e-2
    whole = LatticeDecoder(Fst.read(lstm / "graph/HCLG.fst"), model.tid2pdf, DECODING).decode(expected)
    *_, last = heard_of(recogniser(lstm, extractor, None), samples, 1600)
    assert whole is not None and last.lattice is not None
    path, best = best_path(last.lattice, 1.0), best_path(whole, 1.0)
    assert list(path.words) == list(best.words) and path.acoustic + path.graph == pytest.approx(best.acoustic + best.graph, abs=0.1)


def test_a_search_in_parts_is_the_search_at_once(system: Path) -> None:
    model = load_acoustic_model(system)
    decoder = LatticeDecoder(Fst.read(system / "graph/HCLG.fst"), model.tid2pdf, DECODING)
    loglikes = np.random.default_rng(0).normal(size=(70, 248)).astype(np.float32)
    whole = decoder.decode(loglikes)
    other = decoder.begin()
    parts = decoder.begin()
    with pytest.raises(RuntimeError, match="its decoder has begun another"):
        other.advance(loglikes)
    for begin, end in ((0, 1), (1, 1), (1, 40), (40, 70)):
        parts.advance(loglikes[begin:end])
    path = parts.best_path()
    found = parts.lattice()
    assert whole is not None and found is not None and path is not None
    for name in ("offset", "word", "graph", "acoustic", "target", "final", "transition_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert len(path.transition_ids) == 70 and path.final_relative_cost >= 0


def test_the_best_path_so_far_is_the_lattice_s_where_no_final_costs_count(system: Path) -> None:
    fst = Fst.read(system / "graph/HCLG.fst")
    fst.final[:] = np.inf  # so that every token of the last frame counts as final
    decoder = LatticeDecoder(fst, load_acoustic_model(system).tid2pdf, DECODING)
    for seed in range(3):
        loglikes = np.random.default_rng(seed).normal(size=(60, 248)).astype(np.float32)
        decoding = decoder.begin()
        decoding.advance(loglikes)
        path, lattice = decoding.best_path(), decoding.lattice()
        assert path is not None and lattice is not None
        expected = best_path(lattice, 1.0)
        assert path.words == list(expected.words) and path.transition_ids.tolist() == list(expected.transition_ids)
        assert math.isinf(path.final_relative_cost)


def test_words_and_lattice_are_those_of_the_whole_recording(system: Path, extractor: Extractor, samples: np.ndarray) -> None:
    model = load_acoustic_model(system)
    decoder = LatticeDecoder(Fst.read(system / "graph/HCLG.fst"), model.tid2pdf, DECODING)
    whole = decoder.decode(model.loglikes(extractor.extract([("", samples)])[0]))
    *partial, last = heard_of(recogniser(system, extractor, None), samples, 1600)
    assert whole is not None and last.lattice is not None
    path, expected = best_path(last.lattice, 1.0), best_path(whole, 1.0)
    assert list(path.words) == list(expected.words)
    assert path.acoustic + path.graph == pytest.approx(expected.acoustic + expected.graph, abs=1e-2)
    assert (last.begin, last.end) == (0.0, pytest.approx(0.03 * whole.num_frames))
    assert last.words == ["RUBOUT", "G", "M", "E", "F", "THIRTY", "NINE"]
    # The first result comes with 300 ms of audio, and each is of all but the newest 165 ms: 12 frames of context, and 25 ms of a window.
    assert partial[0].end >= 2 * 0.1 - 0.165 and len(partial) >= len(samples) // 1600 - 2
    assert all(one.lattice is None for one in partial) and ["RUBOUT", "G"] in [one.words for one in partial]


def test_utterances_end_by_the_rules_and_times_go_on(system: Path, extractor: Extractor, samples: np.ndarray) -> None:
    quiet = np.random.default_rng(0).normal(scale=3, size=32000).astype(np.float32)
    ended = [one for one in heard_of(recogniser(system, extractor, Endpointing(SILENCE)), np.concatenate([samples, quiet] * 2), 1600)
             if one.lattice is not None and one.words]
    assert [one.words[0] for one in ended] == ["RUBOUT", "RUBOUT"] and ended[0].words[-1] == "NINE"
    second = (len(samples) + len(quiet)) / 16000
    assert len(samples) / 16000 < ended[0].end < second and ended[0].end <= ended[1].begin < ended[1].end
    assert ended[0].lattice is not None and ended[0].lattice.num_frames == pytest.approx(ended[0].end / 0.03)


@pytest.mark.parametrize(("speech", "silence", "cost", "ends"), [
    (0, 165, math.inf, False), (0, 167, math.inf, True),  # rule 1: 5 s
    (10, 16, 1.9, False), (10, 17, 1.9, True), (10, 17, 2.1, False),  # rule 2: 0.5 s, cost 2
    (0, 17, 1.9, False),  # nothing was said
    (10, 33, 7.9, False), (10, 34, 7.9, True), (10, 34, 8.1, False),  # rule 3: 1 s, cost 8
    (10, 66, math.inf, False), (10, 67, math.inf, True),  # rule 4: 2 s
    (666, 0, math.inf, False), (667, 0, math.inf, True)])  # rule 5: 20 s
def test_kaldis_five_rules(speech: int, silence: int, cost: float, ends: bool) -> None:
    path = BestPath(np.array([20] * speech + ([1, 2] * silence)[:silence]), [], cost)  # whose transition-ids are their phones
    assert Endpointing({1, 2}).trailing_silence(path, np.arange(30)) == silence
    assert Endpointing({1, 2}).detected(path, np.arange(30), 0.03) is ends


def test_options_of_endpointing_are_kaldis() -> None:
    parser = argparse.ArgumentParser()
    add_endpoint_options(parser)
    assert endpointing_from(parser.parse_args([]), "1:2:10") == Endpointing({1, 2, 10}, RULES)
    given = parser.parse_args(["--endpoint.silence-phones=3", "--endpoint.rule2.min-trailing-silence=0.8",
                               "--endpoint.rule1.must-contain-nonsilence", "true"])
    found = endpointing_from(given, "1:2")
    assert found.silence_phones == {3} and found.rules[1].min_trailing_silence == 0.8 and found.rules[0].must_contain_nonsilence
    with pytest.raises(UserError, match="expected phone numbers"):
        endpointing_from(parser.parse_args(["--endpoint.silence-phones", "SIL"]), "1")


def test_the_command_prints_what_it_hears(system: Path, golden: Path, samples: np.ndarray, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    command = ["transcribe", "--feats-config", str(golden / "chain_an4/mfcc_hires.conf"), "--acwt", "1.0"]
    raw = samples.astype("<i2").tobytes() + b"\0"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    assert main([*command, "--stream", str(system), "-"]) == 0
    *partial, last = capsys.readouterr().out.splitlines()
    assert last == "- 0.00-3.99 RUBOUT G M E F THIRTY NINE"  # of 398 frames, every third
    assert len(partial) > 5 and all(line.startswith("- 0.00-") and line.endswith(" ...") for line in partial)
    for option in (["-"], ["--chunk-length", "0.2", "x.wav"], ["--endpoint.rule5.min-utterance-length", "9", "x.wav"]):
        assert main([*command, str(system), *option]) == 1
        assert "is for recognition while the audio comes; add --stream" in capsys.readouterr().err


@pytest.mark.slow
def test_scripts_decode_as_if_the_audio_came(system: Path, golden: Path, shared: Path, root: Path, tmp_path: Path) -> None:
    """By chunks of features, and from audio, with the words of the whole utterances."""
    recipe = system.parent.parent
    for name in ("steps", "utils"):
        (recipe / name).symlink_to(root / name)
    (recipe / "path.sh").write_text(f". {root}/path.sh\n")
    shutil.copyfile(golden / "chain_an4/mfcc_hires.conf", recipe / "mfcc.conf")
    shutil.copyfile(golden / "chain_an4/decode/tree", system / "tree")
    test = DataDir(golden / "an4_kaldi/data/test")
    utts = test.utterances()[:8]
    write_datadir(recipe / "data", {u: str(shared / test.wav_scp[u]) for u in utts}, {u: " ".join(test.text[u]) for u in utts},
                  {u: test.utt2spk[u] for u in utts})
    succeed(recipe, "steps/make_mfcc.sh", "--nj", "1", "--mfcc-config", "mfcc.conf", "data")
    succeed(recipe, "steps/online/nnet3/prepare_online_decoding.sh", "--mfcc-config", "mfcc.conf", str(golden / "an4_kaldi/lang"),
            "exp/tdnn", "exp/online")
    options = ("--nj", "1", "--acwt", "1.0", "--post-decode-acwt", "10.0", "--lattice-beam", "8.0")
    succeed(recipe, "steps/nnet3/decode.sh", *options, "exp/tdnn/graph", "data", "exp/tdnn/decode")
    succeed(recipe, "steps/nnet3/decode_looped.sh", *options, "--frames-per-chunk", "20", "exp/tdnn/graph", "data", "exp/tdnn/looped")
    succeed(recipe, "steps/online/nnet3/decode.sh", *options, "exp/tdnn/graph", "data", "exp/online/decode")
    whole = {utt: best_path(lattice, 0.1) for utt, lattice in read_lattices(recipe / "exp/tdnn/decode/lat.1.gz")}
    assert list(whole) == utts
    for folder in ("exp/tdnn/looped", "exp/online/decode"):
        for utt, lattice in read_lattices(recipe / folder / "lat.1.gz"):
            path = best_path(lattice, 0.1)
            assert (path.words, path.acoustic) == (whole[utt].words, pytest.approx(whole[utt].acoustic, abs=0.1))
    done = run(recipe, "steps/online/nnet3/decode.sh", "--do-speex-compressing", "true", "exp/tdnn/graph", "data", "exp/online/other")
    assert done.returncode == 1 and "--do-speex-compressing true is not here" in done.stderr
    done = run(recipe, "steps/online/nnet3/decode.sh", "--silence-weight", "-1", "exp/tdnn/graph", "data", "exp/online/other")
    assert done.returncode == 1 and "--ivector-silence-weighting.silence-weight -1: expected a number from 0 to 1." in done.stderr


def test_i_vectors_come_with_the_audio(system: Path, extractor: Extractor, samples: np.ndarray, golden: Path, tmp_path: Path) -> None:
    """One that changes nothing leaves the words; one of another dimension, or none, is refused."""
    folder = tmp_path / "tdnn"
    shutil.copytree(system, folder, ignore=shutil.ignore_patterns("decode", "looped"))
    with_unused_ivectors(folder)
    found = read_extractor(write_extractor(tmp_path / "extractor", golden, DIM), OnlineOptions(), PosteriorOptions())
    own = Recogniser(folder, folder / "graph", extractor, DECODING, None, ivectors=found)
    assert heard_of(own, samples, 1600)[-1].words == ["RUBOUT", "G", "M", "E", "F", "THIRTY", "NINE"]
    rules = EndpointRule(False, 0.0, min_utterance_length=len(samples) / 16000),  # each utterance is about as long as the recording
    own = Recogniser(folder, folder / "graph", extractor, DECODING, Endpointing(range(1, 11), rules), ivectors=found,
                     weighting=SilenceWeighting(range(1, 11), 0.0), frames_per_chunk=24)
    first, *more = [one for one in heard_of(own, np.tile(samples, 2), 1600) if one.lattice is not None]
    assert first.words[:7] == ["RUBOUT", "G", "M", "E", "F", "THIRTY", "NINE"] and more and more[0].begin == first.end
    with pytest.raises(UserError, match="takes i-vectors of 3 dimensions, and there are no i-vectors"):
        Recogniser(folder, folder / "graph", extractor, DECODING, None)
    with pytest.raises(UserError, match="takes no i-vectors, and there are i-vectors of 3 dimensions"):
        Recogniser(system, system / "graph", extractor, DECODING, None, ivectors=found)


def test_online_cmvn_comes_with_the_audio(system: Path, extractor: Extractor, samples: np.ndarray, golden: Path, tmp_path: Path) -> None:
    """A directory for online decoding has all of it; the words of pieces are those of the whole, and recordings of a speaker go on."""
    folder, target, lang = tmp_path / "tdnn", tmp_path / "online", golden / "an4_kaldi/lang"
    shutil.copytree(system, folder, ignore=shutil.ignore_patterns("decode", "looped"))
    shutil.copyfile(golden / "chain_an4/decode/tree", folder / "tree")
    feats = extractor.extract([("", samples)])[0]
    shift = feats.mean(0)
    with open(folder / "global_cmvn.stats", "wb") as stream:
        KaldiWriter(stream, binary=False).matrix(cmvn_stats([feats - shift]))
    (folder / "online_cmvn").touch()
    (folder / "cmvn_opts").write_text("--config=conf/online_cmvn.conf\n")
    (tmp_path / "online.conf").write_text("--global-frames=50\n--speaker-frames=300\n")
    options = PrepareOptions("mfcc", golden / "chain_an4/mfcc_hires.conf", online_cmvn_config=tmp_path / "absent")
    with pytest.raises(UserError, match="absent does not exist"):
        prepare_online_dir(lang, None, folder, target, options)
    options.online_cmvn_config = tmp_path / "online.conf"
    prepare_online_dir(lang, None, folder, target, options)
    conf = read_online_conf(target / "conf/online.conf")
    assert conf.cmvn is not None
    for cmvn in (conf.cmvn, None):  # said by the caller, or by the directory
        own = Recogniser(target, system / "graph", extractor, DECODING, None, cmvn=cmvn)
        pieces, whole = (heard_of(own, samples, chunk)[-1] for chunk in (1600, len(samples)))
        assert pieces.words == whole.words and pieces.lattice is not None and whole.lattice is not None
        assert best_path(pieces.lattice, 1.0).acoustic == pytest.approx(best_path(whole.lattice, 1.0).acoustic, rel=1e-3)
    decoder = FirstUtterance(own, 1600)
    decoder.new_speaker()
    costs = []
    for new in (False, False, True):
        if new:
            decoder.new_speaker()
        lattice = decoder.decode(samples)
        assert lattice is not None
        costs.append(best_path(lattice, 1.0).acoustic)
    assert costs[0] == pytest.approx(costs[2], rel=1e-6) and abs(costs[0] - costs[1]) > 0.1


def test_what_does_not_fit_is_refused(system: Path, extractor: Extractor, golden: Path) -> None:
    with pytest.raises(UserError, match=r"the features have 13 dimensions, the network of .* takes 40"):
        recogniser(system, Extractor(MfccOptions()), None)
    with pytest.raises(UserError, match="is no nnet3 network"):
        Recogniser(system, system / "graph", extractor, DECODING, None, model=golden / "chain_an4/decode/0.trans_mdl")
