"""Time, CPU, peak memory and disk of stages on more and more data, with the exponents of their growth.

    tests/bench/run.sh scale --recipe egs/an4/s5 --hours 0.2 1 [--stages train_mono align_si]
    tests/bench/run.sh scale --recipe egs/an4/s5 --hours 1 10 100 --end-to-end --rows scale.jsonl --plot scale.png

Needs a recipe whose GMMs are trained (exp/mono to exp/tri3). Its training data are copied until there are H hours, of as many new speakers
as that takes: short utterances of a speaker are joined to longer ones, and each copy's features get a little noise. The recipe's own models
align the copies, so that a stage is measured without those before it; import_ali, pack, build_chain_tree and prepare_chain take copies of
its alignment. pretrain_dbn and train are RBMs and a DNN of 2 x 256 on the store of pack, whose frames come in groups of a million.
gmm_diag_ubm is steps/train_diag_ubm.sh, train_diag_ubm that of steps/online/nnet2. make_mfcc reads joined recordings. prepare_chain is what
steps/nnet3/chain/train.py does before it trains: store, chunks and numerators. Language models (train_lm, format_lm, const_arpa) and
mkgraph have sizes of their own: texts of so many thousand words (--lm-kwords) over a lexicon of random pronunciations (--vocabulary);
validate and fix are of data directories of so many thousand utterances without features (--kutts).

With --end-to-end the stages follow each other as in a recipe, each on what the one before has made, from copied audio (every copy of a
speaker at a speed of its own) to the word error rate of a network on the recipe's test set. As in Kaldi's recipes for so much speech, the
first systems are trained on a part of it: so many hours as ON_PART says. With --rows and --work a run that was ended goes on behind the
last stage that was measured.

Peak memory is that of all processes of a stage together, looked at 5 times a second, and at least that of the largest one; disk is what the
stage leaves, scratch what it needed in nameless files meanwhile. With exponent p a quantity grows as size^p (least squares of the
logarithms). An hour of features takes 20 MB, an hour of audio 115 MB, the scratch files up to 150 MB. So for 100 h choose a folder with
room, and a few stages: `--hours 10 100 --stages train_sat align_fmllr --work /scratch/scale`, and for 1,000 h cmvn, pack, and GMMs that
keep no features: `--stages train_mono align_mono --keep-feats false`, or, without the hours of the alignment before it, `--stages
train_deltas --keep-feats false --copied-alignments`. --rows keeps what was measured in a file, to which later runs add;
exponents and the plot are of all that is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import numpy as np

from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir, write_spk2utt, write_table
from pykaldist.io.tables import MatrixWriter, read_lines, write_int_vectors
from pykaldist.report.figures import pyplot, save

ROOT = Path(__file__).resolve().parents[2]
FRAMES_AN_HOUR = 360_000
ARCHIVE = 500  # utterances
NOISE = 0.05  # standard deviations
WORDS = 4_000_000  # of a text that are drawn together
SPEEDS = (0.9, 1.1)  # of the copies' audio
ON_PART = {"train_mono": 2.0, "train_deltas": 5.0, "train_lda_mllt": 10.0, "train_sat": 10.0}  # hours, end to end


@dataclass
class Usage:
    """What a stage took: seconds of wall clock and of CPU, and MB of memory, of nameless files and of what it left."""

    wall: float
    cpu: float
    memory: float
    scratch: float = 0.0
    disk: float = 0.0


class Watch(threading.Thread):
    """Looks at a process and all that it starts, until `over` is set; `memory` and `scratch` are the most that was seen (bytes)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.memory, self.scratch, self.over = pid, 0, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            pids = family(self.pid)
            self.memory = max(self.memory, *memory(pids))
            self.scratch = max(self.scratch, sum(nameless(pids).values()))


def family(root: int) -> list[int]:
    """A process, and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                parents.setdefault(int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def memory(pids: list[int]) -> tuple[int, int]:
    """The bytes of memory that processes have together, and the most that one of them ever had.

    A process that starts another one shares its memory with it for a moment (vfork), which is counted once.
    """
    spaces = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            size, rss, most = (1024 * int(fields.get(name, "0").split()[0]) for name in ("VmSize", "VmRSS", "VmHWM"))
            spaces[size, most] = rss
    return sum(spaces.values()), max((most for _, most in spaces), default=0)


def nameless(pids: list[int]) -> dict[int, int]:
    """The bytes on disk of the open files without a name, by inode."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(fd).endswith("(deleted)"):
                        state = fd.stat()
                        found[state.st_ino] = 512 * state.st_blocks
    return found


def measure(command: list[object], work: Path, out: Path) -> Usage:
    """Run a stage, which leaves the folder `out`; ends with its log where it fails."""
    text = [str(word) for word in command]
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(text, cwd=work, stdout=log, stderr=subprocess.STDOUT)
        watch = Watch(process.pid)
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.over.set()
        watch.join()
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{' '.join(text)}\n{log.read()}scale.py: ERROR: that stage failed.")
    left = sum(512 * path.stat().st_blocks for path in out.rglob("*") if path.is_file()) if out.is_dir() else out.stat().st_size
    return Usage(wall, used.ru_utime + used.ru_stime, watch.memory / 1e6, watch.scratch / 1e6, left / 1e6)


def copies(data: DataDir, seconds: float, joined: float) -> Iterator[tuple[str, str, list[str]]]:
    """Utterances (name, speaker, what is joined in them) of `seconds` in all and `joined` each, of copies of all speakers in turn."""
    lengths = {utt: float(length) for utt, length in data.table("utt2dur").items()}
    for copy in count():
        for speaker, utts in data.spk2utt.items():
            name, parts, number = f"c{copy:05d}-{speaker}", [], 0
            for utt in utts:
                parts.append(utt)
                if sum(lengths[part] for part in parts) >= joined or utt == utts[-1]:
                    yield f"{name}-{number:04d}", name, parts
                    seconds -= sum(lengths[part] for part in parts)
                    parts, number = [], number + 1
                    if seconds <= 0:
                        return


def write_tables(folder: Path, data: DataDir, utts: list[tuple[str, str, list[str]]]) -> None:
    """Write the transcripts and speakers of copies."""
    write_table(folder / "utt2spk", {utt: speaker for utt, speaker, _ in utts})
    write_table(folder / "text", {utt: " ".join(word for part in parts for word in data.text[part]) for utt, _, parts in utts})
    write_spk2utt(DataDir(folder))


def make_features(source: DataDir, folder: Path, hours: float, joined: float) -> None:
    """Make a data directory of `hours` of features."""
    folder.mkdir(parents=True)
    utts, rng = list(copies(source, 3600 * hours, joined)), np.random.default_rng(0)
    noise = np.float32(NOISE * source.feats[next(iter(source.feats))].std(axis=0))
    for number, first in enumerate(range(0, len(utts), ARCHIVE)):
        with MatrixWriter(folder / f"feats.{number:05d}.ark", folder / f"feats.{number:05d}.scp") as writer:
            for utt, _, parts in utts[first:first + ARCHIVE]:
                feats = np.concatenate([source.feats[part] for part in parts])
                writer.write(utt, feats + noise * rng.standard_normal(feats.shape, dtype=np.float32))
    lines = [line for path in sorted(folder.glob("feats.*.scp")) for line in read_lines(path)]
    write_table(folder / "feats.scp", dict(line.split(maxsplit=1) for line in lines))
    write_tables(folder, source, utts)


def copy_alignment(source: DataDir, ali: Path, folder: Path, hours: float, joined: float) -> None:
    """Make an alignment of what `make_features` makes, of the alignment of the recipe's training data."""
    labels = dict(AlignmentDir(ali).items())
    folder.mkdir(parents=True)
    for name in ("final.mdl", "tree", "phones.txt", "cmvn_opts", "delta_opts", "splice_opts", "final.mat", "full.mat"):
        if (ali / name).is_file():
            shutil.copy(ali / name, folder)
    (folder / "num_jobs").write_text("1\n")
    write_int_vectors(folder / "ali.1.gz", ((utt, np.concatenate([labels[part] for part in parts]))
                                            for utt, _, parts in copies(source, 3600 * hours, joined) if labels.keys() >= set(parts)))


def make_audio(source: DataDir, folder: Path, hours: float, joined: float) -> None:
    """Make a data directory of `hours` of recordings; each speaker of it has a speed of his own."""
    folder.mkdir(parents=True)
    utts, audio, rng = list(copies(source, 3600 * hours, joined)), {}, np.random.default_rng(0)
    speeds: dict[str, float] = {}
    for utt, path in source.wav_scp.items():
        audio[utt], rate = read_audio(path, pipes=True)
    for utt, speaker, parts in utts:
        speed = speeds.setdefault(speaker, rng.uniform(*SPEEDS))
        samples = np.concatenate([audio[part] for part in parts])
        at = np.arange(0, len(samples) - 1, speed)
        with wave.open(str(folder / f"{utt}.wav"), "wb") as stream:
            stream.setparams((1, 2, rate, 0, "NONE", ""))
            stream.writeframes(np.interp(at, np.arange(len(samples)), samples).astype("<i2").tobytes())
    write_table(folder / "wav.scp", {utt: str(folder / f"{utt}.wav") for utt, _, _ in utts})
    write_tables(folder, source, utts)


def make_tables(folder: Path, utts: int) -> None:
    """Make a data directory of `utts` utterances of 30 words that has neither audio nor features."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"speaker{n // 100:07d}-utterance{n:09d}" for n in range(utts)]
    write_table(folder / "utt2spk", {utt: utt.split("-")[0] for utt in names})
    write_table(folder / "text", {utt: " ".join(f"word{n}" for n in rng.integers(0, 20_000, 30)) for utt in names})
    write_table(folder / "wav.scp", {utt: f"/corpora/audio/{utt.split('-')[0]}/{utt}.flac" for utt in names})
    write_spk2utt(DataDir(folder))


def make_lexicon(recipe: Path, folder: Path, words: int) -> list[str]:
    """Make a dictionary directory of `words` random pronunciations with the recipe's phones; returns the words."""
    shutil.copytree(recipe / "data/local/dict", folder)
    rng = np.random.default_rng(0)
    phones = read_lines(folder / "nonsilence_phones.txt")
    rest = [line for line in read_lines(folder / "lexicon.txt") if line.startswith("<")]
    names = [f"W{n:06d}" for n in range(words)]
    spoken = [f"{name} {' '.join(rng.choice(phones, rng.integers(3, 10)))}" for name in names]
    (folder / "lexicon.txt").write_text("\n".join([*rest, *spoken]) + "\n", encoding="utf-8")
    return names


def make_text(path: Path, words: list[str], length: int) -> None:
    """Write `length` words in sentences of 20: half of them one of the word before's 20 usual followers, the others by Zipf's law."""
    rng = np.random.default_rng(1)
    share = 1.0 / (np.arange(len(words)) + 10.0)
    with path.open("w", encoding="utf-8") as stream:
        for first in range(0, length, WORDS):
            many = min(WORDS, length - first)
            chosen, usual, follower = rng.choice(len(words), many, p=share / share.sum()), rng.random(many) < 0.5, rng.integers(0, 20, many)
            usual[0] = False
            places = np.arange(many)
            behind = places - np.maximum.accumulate(np.where(usual, 0, places))  # how many usual ones there are up to each word
            for n in range(1, int(behind.max()) + 1):
                now = np.flatnonzero(behind == n)
                chosen[now] = (chosen[now - 1] * 7919 + follower[now] * 104_729) % len(words)
            for n in range(0, many, 20):
                stream.write(f"s{first + n:010d} {' '.join([words[w] for w in chosen[n:n + 20].tolist()])}\n")


def exponent(sizes: list[float], values: list[float]) -> float | None:
    """The exponent p of the power law values ~ sizes^p that fits best; None where there are not two sizes."""
    if len(set(sizes)) < 2 or min(values) <= 0:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class Scale:
    """The measurements: `stages` of the recipe on copies of its data, in the folder `work`; each prints a line as soon as it is over."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.args, self.work, self.recipe = args, work, args.recipe.resolve()
        self.source = DataDir(self.recipe / "data/train")
        self.rows: dict[str, list[tuple[float, str, Usage]]] = {}
        self.before = [json.loads(line) for line in read_lines(args.rows)] if args.rows and args.rows.is_file() else []
        for row in self.before:
            self.rows.setdefault(row["stage"], []).append((row["size"], row["unit"], Usage(**row["usage"])))
        for path in (ROOT / "steps", ROOT / "utils", self.recipe / "exp"):  # network.xconfig has paths in exp/
            if not (work / path.name).is_symlink():
                (work / path.name).symlink_to(path)

    def add(self, stage: str, size: float, unit: str, usage: Usage, of: str = "") -> None:
        """Note what a stage took; `of` is the folder of an end-to-end run."""
        self.rows.setdefault(stage, []).append((size, unit, usage))
        print(f"{stage:15s} {size:9.4g} {unit:10s} {usage.wall:8.1f} {usage.cpu:8.1f} {usage.memory:8.0f} {usage.scratch:8.1f} "
              f"{usage.disk:8.1f}", flush=True)
        if self.args.rows:
            with self.args.rows.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"stage": stage, "size": size, "unit": unit, "of": of, "usage": asdict(usage)}) + "\n")

    def hours(self, hours: float) -> None:
        """The stages whose size is hours of speech."""
        work, recipe, nj = self.work / f"{hours:g}h", self.recipe, self.args.nj
        exp, lang, jobs = recipe / "exp", recipe / "data/lang", ("--nj", nj)
        gmm_jobs = (*jobs, "--jobs", self.args.jobs, "--keep-feats", self.args.keep_feats)
        training = (*gmm_jobs, *(("--num-iters", self.args.num_iters) if self.args.num_iters else ()))
        size = (self.args.num_leaves, self.args.tot_gauss)
        stages: dict[str, tuple[list[object], Path]] = {
            "make_mfcc": (["steps/make_mfcc.sh", *jobs, "--mfcc-config", recipe / "conf/mfcc.conf", work / "audio", work / "log",
                           work / "mfcc"], work / "mfcc"),
            "cmvn": (["steps/compute_cmvn_stats.sh", work / "data", work / "log", work / "cmvn"], work / "cmvn"),
            "train_mono": (["steps/train_mono.sh", *training, work / "data", lang, work / "mono"], work / "mono"),
            "align_mono": (["steps/align_si.sh", *gmm_jobs, work / "data", lang, exp / "mono", work / "mono_ali"], work / "mono_ali"),
            "train_deltas": (["steps/train_deltas.sh", *training, *size, work / "data", lang, work / "mono_ali", work / "tri1"],
                             work / "tri1"),
            "align_si": (["steps/align_si.sh", *gmm_jobs, work / "data", lang, exp / "tri1", work / "tri1_ali"], work / "tri1_ali"),
            "train_lda_mllt": (["steps/train_lda_mllt.sh", *training, *size, work / "data", lang, work / "tri1_ali", work / "tri2"],
                               work / "tri2"),
            "align_lda": (["steps/align_si.sh", *gmm_jobs, work / "data", lang, exp / "tri2", work / "tri2_ali"], work / "tri2_ali"),
            "train_sat": (["steps/train_sat.sh", *training, *size, work / "data", lang, work / "tri2_ali", work / "tri3"], work / "tri3"),
            "train_quick": (["steps/train_quick.sh", *training, *size, work / "data", lang, work / "tri2_ali", work / "quick"],
                            work / "quick"),
            "train_ubm": (["steps/train_ubm.sh", *gmm_jobs, 400, work / "data", lang, work / "tri2_ali", work / "ubm_full"],
                          work / "ubm_full"),
            "train_sgmm2": (["steps/train_sgmm2.sh", *gmm_jobs, *SGMM, self.args.num_leaves, self.args.num_leaves, work / "data", lang,
                             work / "tri2_ali", work / "ubm_full/final.ubm", work / "sgmm2"], work / "sgmm2"),
            "align_fmllr": (["steps/align_fmllr.sh", *gmm_jobs, work / "data", lang, exp / "tri3", work / "tri3_ali"], work / "tri3_ali"),
            "make_fmllr_feats": (["steps/nnet/make_fmllr_feats.sh", *jobs, "--transform-dir", work / "tri3_ali", work / "data-fmllr",
                                  work / "data", exp / "tri3", work / "log", work / "fmllr"], work / "fmllr"),
            "import_ali": (["steps/import_ali.sh", *jobs, work / "copied_ali", work / "data", lang, work / "imported"], work / "imported"),
            "gmm_diag_ubm": (["steps/train_diag_ubm.sh", *jobs, 100, work / "data", lang, work / "tri1_ali", work / "dubm"], work / "dubm"),
            "get_fmllr_basis": (["steps/get_fmllr_basis.sh", *jobs, work / "data", lang, work / "tri1_ali"], work / "tri1_ali"),
            "make_denlats": (["steps/make_denlats.sh", *jobs, "--beam", 8, "--lattice-beam", 4, work / "data", lang, exp / "tri1",
                              work / "denlats"], work / "denlats"),
            "train_mmi": (["steps/train_mmi.sh", "--num-iters", 2, *jobs, work / "data", lang, work / "tri1_ali", work / "denlats",
                           work / "mmi"], work / "mmi"),
            "train_mpe": (["steps/train_mpe.sh", "--num-iters", 2, *jobs, work / "data", lang, work / "tri1_ali", work / "denlats",
                           work / "mpe"], work / "mpe"),
            "train_mmi_fmmi": (["steps/train_mmi_fmmi.sh", "--schedule", "fmmi mmi", *jobs, work / "data", lang, work / "tri1_ali",
                                work / "dubm", work / "denlats", work / "fmmi"], work / "fmmi"),
            "pack": (["steps/nnet/pack.sh", "--store-dtype", "float16", work / "data", work / "copied_ali", work / "store"],
                     work / "store"),
            "pretrain_dbn": (["steps/nnet/pretrain_dbn.sh", *NETWORK, work / "store", work / "dbn"], work / "dbn"),
            "train": (["steps/nnet/train.sh", *NETWORK, *TRAINING, "--num-epochs", self.args.num_epochs, work / "store", work / "dnn"],
                      work / "dnn"),
            "train_diag_ubm": (["steps/online/nnet2/train_diag_ubm.sh", *jobs, "--online-cmvn-config", recipe / "conf/online_cmvn.conf",
                                work / "hires", 64, exp / "nnet3/pca_transform", work / "ubm"], work / "ubm"),
            "train_ivector_extractor": (["steps/online/nnet2/train_ivector_extractor.sh", *jobs, "--ivector-dim", 50, "--num-iters", 2,
                                         work / "hires", exp / "nnet3/diag_ubm", work / "extractor"], work / "extractor"),
            "extract_ivectors": (["steps/online/nnet2/extract_ivectors_online.sh", *jobs, work / "hires", exp / "nnet3/extractor",
                                  work / "ivectors"], work / "ivectors"),
            "build_chain_tree": (["steps/nnet3/chain/build_tree.sh", *jobs, "--jobs", self.args.jobs, "--frame-subsampling-factor", 3,
                                  "--context-opts", "--context-width=2 --central-position=1", 250, work / "data",
                                  recipe / "data/lang_chain", work / "copied_ali", work / "tree"], work / "tree"),
            "prepare_chain": ([sys.executable, "-m", "pykaldist", "prepare-chain", "train", *CHAIN_OPTIONS, "--feat-dir", work / "hires",
                               "--tree-dir", exp / "chain/tree", "--lat-dir", work / "copied_ali", "--dir", work / "chain"],
                              work / "chain")}
        wanted = [name for name in stages if name in self.args.stages]
        needed = {*wanted, *(before for name in wanted for before in NEEDS.get(name, ()))}
        if self.args.copied_alignments:
            for name, ali in ALIGNMENTS.items():
                if name in needed and name not in wanted:
                    needed.remove(name)
                    copy_alignment(self.source, exp / ali, work / ali, hours, self.args.joined)
        if needed - {"make_mfcc"} - HIRES:
            make_features(self.source, work / "data", hours, self.args.joined)
            needed.add("cmvn")
        if needed & {"import_ali", "pack", "build_chain_tree", "prepare_chain"}:
            copy_alignment(self.source, exp / "tri3_ali", work / "copied_ali", hours, self.args.joined)
        if needed & HIRES:
            make_features(DataDir(recipe / "data/train_hires"), work / "hires", hours, self.args.joined)
            measure(["steps/compute_cmvn_stats.sh", work / "hires", work / "log", work / "cmvn_hires"], self.work, work / "cmvn_hires")
        if "prepare_chain" in needed:
            shutil.copytree(exp / "chain/tdnn/configs", work / "chain/configs")
        if "make_mfcc" in needed:
            make_audio(self.source, work / "audio", hours, self.args.joined)
        for name, (command, out) in stages.items():
            if name in needed:
                self.add(name, hours, "h", measure(command, self.work, out))
        if not self.args.keep:
            shutil.rmtree(work)

    def end_to_end(self, hours: float) -> None:
        """All stages one after the other, from `hours` of audio to word error rates on the recipe's test set."""
        work, recipe, jobs = self.work / f"{hours:g}h_whole", self.recipe, ("--nj", self.args.nj)
        lang, lang_test, test = recipe / "data/lang", recipe / "data/lang_test", recipe / "data/test"
        size, done = (self.args.num_leaves, self.args.tot_gauss), list[Usage]()
        if not (work / "data/spk2utt").is_file():
            shutil.rmtree(work, ignore_errors=True)
            make_audio(self.source, work / "data", hours, self.args.joined)
        utts = len(DataDir(work / "data").utt2spk)
        before_this = {(row["stage"], row["of"]): Usage(**row["usage"]) for row in self.before}

        def stage(name: str, out: str, *command: object, hours: float = hours) -> None:
            if (work / out).exists() and (name, str(work)) in before_this:
                done.append(before_this[name, str(work)])
                return
            done.append(measure(list(command), self.work, work / out))
            self.add(name, hours, "h", done[-1], str(work))

        def part(name: str) -> tuple[Path, float]:
            """The data that a system is trained on, and its hours."""
            folder, most = work / f"data_{ON_PART[name]:g}h", ON_PART[name]
            if most >= hours:
                return work / "data", hours
            if not folder.exists():
                measure(["utils/subset_data_dir.sh", work / "data", round(utts * most / hours), folder], self.work, folder)
            return folder, most

        stage("make_mfcc", "mfcc", "steps/make_mfcc.sh", *jobs, "--mfcc-config", recipe / "conf/mfcc.conf", work / "data", work / "log",
              work / "mfcc")
        stage("cmvn", "cmvn", "steps/compute_cmvn_stats.sh", work / "data", work / "log", work / "cmvn")
        before = ""
        for name, exp in (("train_mono", "mono"), ("train_deltas", "tri1"), ("train_lda_mllt", "tri2"), ("train_sat", "tri3")):
            data, used = part(name)
            if before:
                stage(f"align_{before}", f"{before}_ali", "steps/align_si.sh", *jobs, data, lang, work / before, work / f"{before}_ali",
                      hours=used)
            stage(name, exp, f"steps/{name}.sh", *jobs, *(size if before else ()), data, lang,
                  *([work / f"{before}_ali"] if before else []), work / exp, hours=used)
            before = exp
        stage("align_fmllr", "tri3_ali", "steps/align_fmllr.sh", *jobs, work / "data", lang, work / "tri3", work / "tri3_ali")
        stage("mkgraph", "tri3/graph", "utils/mkgraph.sh", lang_test, work / "tri3", work / "tri3/graph")
        stage("decode_fmllr", "tri3/decode", "steps/decode_fmllr.sh", *jobs, work / "tri3/graph", test, work / "tri3/decode")
        stage("make_fmllr_feats", "fmllr", "steps/nnet/make_fmllr_feats.sh", *jobs, "--transform-dir", work / "tri3_ali",
              work / "data-fmllr", work / "data", work / "tri3", work / "log", work / "fmllr")
        measure(["steps/nnet/make_fmllr_feats.sh", *jobs, "--transform-dir", work / "tri3/decode", work / "test-fmllr", test, work / "tri3",
                 work / "log", work / "fmllr_test"], self.work, work / "fmllr_test")
        stage("pack", "dnn/store", "steps/nnet/pack.sh", "--cmvn-opts=--norm-means=false", "--store-dtype", "float16", "--cv-percent", 1,
              work / "data-fmllr", work / "tri3_ali", work / "dnn/store")
        stage("train", "dnn", "steps/nnet/train.sh", *NETWORK, *TRAINING, "--num-epochs", self.args.num_epochs, work / "dnn/store",
              work / "dnn")
        stage("decode", "dnn/decode", "steps/decode.sh", *jobs, "--device", "cpu", work / "tri3/graph", work / "test-fmllr",
              work / "dnn/decode")
        self.add("all", hours, "h", Usage(sum(one.wall for one in done), sum(one.cpu for one in done), max(one.memory for one in done),
                                          max(one.scratch for one in done), sum(one.disk for one in done)))
        for decoded in ("tri3/decode", "dnn/decode"):
            print(f"{hours:g} h, {decoded}: {(work / decoded / 'best_wer').read_text().strip()}", flush=True)
        if not self.args.keep:
            shutil.rmtree(work)

    def language(self, kwords: float) -> None:
        """Language models' stages by n-grams, mkgraph by the arcs of its graph, for a text of `kwords` thousand words."""
        from pykaldist.io.fst import Fst

        stages, work = set(self.args.stages), self.work / f"{kwords:g}k"
        work.mkdir()
        words = make_lexicon(self.recipe, work / "dict", self.args.vocabulary)
        make_text(work / "text", words, round(1000 * kwords))
        usage = measure(["utils/train_lm.sh", "--order", 3, work / "text", work / "dict/lexicon.txt", work / "lm.arpa"], self.work,
                        work / "lm.arpa")
        with (work / "lm.arpa").open(encoding="utf-8") as stream:
            head = [line for line, _ in zip(stream, range(8), strict=False)]
        millions = sum(int(line.split("=")[1]) for line in head if line.startswith("ngram ")) / 1e6
        self.add("train_lm", millions, "M n-grams", usage)
        if stages & {"format_lm", "const_arpa", "mkgraph"}:
            phones = self.recipe / "data/lang/phones.txt"
            measure(["utils/prepare_lang.sh", "--phone-symbol-table", phones, work / "dict", "<UNK>", work / "tmp", work / "lang"],
                    self.work, work / "lang")
        for name, wanted, out, command in (
                ("format_lm", {"format_lm", "mkgraph"}, "lang_test", ["utils/format_lm.sh", work / "lang", work / "lm.arpa",
                                                                      work / "dict/lexicon.txt"]),
                ("const_arpa", {"const_arpa"}, "lang_carpa", ["utils/build_const_arpa_lm.sh", work / "lm.arpa", work / "lang"])):
            if stages & wanted:
                self.add(name, millions, "M n-grams", measure([*command, work / out], self.work, work / out))
        if "mkgraph" in stages:
            usage = measure(["utils/mkgraph.sh", work / "lang_test", self.recipe / "exp/tri1", work / "graph"], self.work, work / "graph")
            self.add("mkgraph", Fst.read(work / "graph/HCLG.fst").num_arcs / 1e6, "M arcs", usage)
        if not self.args.keep:
            shutil.rmtree(work)

    def tables(self, kutts: float) -> None:
        """validate and fix, for `kutts` thousand utterances."""
        work = self.work / f"{kutts:g}k_utts"
        make_tables(work, round(1000 * kutts))
        for name, command in (("validate", ["utils/validate_data_dir.sh", "--no-feats", work]), ("fix", ["utils/fix_data_dir.sh", work])):
            if name in self.args.stages:
                self.add(name, kutts / 1000, "M utts", measure(command, self.work, work))
        if not self.args.keep:
            shutil.rmtree(work)

    def exponents(self) -> None:
        """Print how wall clock, CPU, memory and disk grow."""
        print("\nstage          sizes                  exponents of: wall      CPU   memory     disk")
        for stage, rows in self.rows.items():
            sizes = [size for size, _, _ in rows]
            found = [exponent(sizes, [getattr(usage, name) for _, _, usage in rows]) for name in ("wall", "cpu", "memory", "disk")]
            if found[0] is not None:
                print(f"{stage:14s} {f'{min(sizes):.3g} to {max(sizes):.3g} {rows[0][1]}':30s} "
                      + " ".join(f"{p:8.2f}" if p is not None else " " * 8 for p in found))

    def plot(self, path: Path) -> None:
        """Draw memory and CPU time of the stages whose size is hours of speech."""
        plt = pyplot(path)
        figure, axes = plt.subplots(1, 2, figsize=(12, 5.5))
        for axis, name, text in zip(axes, ("memory", "cpu"), ("peak memory of all processes, MB", "CPU, s"), strict=True):
            axis.set_prop_cycle(color=plt.cm.tab20.colors)  # the usual colours are ten
            for stage, rows in self.rows.items():
                points = sorted((size, getattr(usage, name)) for size, unit, usage in rows if unit == "h")
                if len({size for size, _ in points}) > 1:
                    axis.loglog(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=stage)
            axis.set_xlabel("hours of speech")
            axis.set_ylabel(text)
            axis.grid(True, alpha=0.3)
        axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        save(plt, figure, path)


NEEDS = {"train_deltas": ("align_mono",), "train_lda_mllt": ("align_si",), "train_sat": ("align_lda",),
         "make_fmllr_feats": ("align_fmllr",), "gmm_diag_ubm": ("align_si",), "get_fmllr_basis": ("align_si",),
         "train_quick": ("align_lda",), "train_ubm": ("align_lda",), "train_sgmm2": ("align_lda", "train_ubm"),
         "train_mmi": ("align_si", "make_denlats"), "train_mpe": ("align_si", "make_denlats"),
         "train_mmi_fmmi": ("align_si", "make_denlats", "gmm_diag_ubm"),
         "pretrain_dbn": ("pack",), "train": ("pack",)}
ALIGNMENTS = {"align_mono": "mono_ali", "align_si": "tri1_ali", "align_lda": "tri2_ali"}  # by the names of their folders
DISCRIMINATIVE = {"gmm_diag_ubm", "make_denlats", "train_mmi", "train_mmi_fmmi", "train_mpe"}
SUBSPACE = {"train_ubm", "train_sgmm2"}
IVECTORS = {"train_diag_ubm", "train_ivector_extractor", "extract_ivectors"}
HIRES = {"prepare_chain", *IVECTORS}
CHAIN = {"build_chain_tree", *HIRES}
ASKED_FOR = CHAIN | DISCRIMINATIVE | SUBSPACE  # stages that are measured when they are named
CHAIN_OPTIONS = ("--chain.lm-opts=--num-extra-lm-states=2000", "--feat.cmvn-opts", "--norm-means=true --norm-vars=false",
                 "--chain.xent-regularize", "0.1", "--egs.chunk-width", "150,110,90,60", "--egs.opts", "--frames-overlap-per-eg 0")
SGMM = ("--num-iters", 3, "--num-iters-alimdl", 1, "--realign-iters", "2", "--spkvec-iters", "2")
NETWORK = ("--device", "cpu", "--hid-layers", 2, "--hid-dim", 256, "--randomizer-size", 1_000_000)
TRAINING = ("--optimizer", "ngsgd", "--schedule", "exponential", "--learn-rate", 0.008, "--final-learn-rate", 0.0008)
LANGUAGE, TABLES = {"train_lm", "format_lm", "const_arpa", "mkgraph"}, {"validate", "fix"}
STAGES = ("make_mfcc", "cmvn", "train_mono", "align_mono", "train_deltas", "align_si", "train_lda_mllt", "align_lda", "train_sat",
          "align_fmllr", "make_fmllr_feats", "import_ali", "pack", "pretrain_dbn", "train", "get_fmllr_basis", "train_quick",
          *sorted(DISCRIMINATIVE), *sorted(SUBSPACE), *sorted(CHAIN), "train_lm", "format_lm", "const_arpa", "mkgraph", "validate", "fix")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "egs/an4/s5", help="recipe that has run (default: egs/an4/s5)")
    parser.add_argument("--hours", type=float, nargs="+", default=[0.2, 1.0], help="hours of speech (default: 0.2 1)")
    parser.add_argument("--lm-kwords", type=float, nargs="+", default=[20.0, 100.0], help="thousands of words of text (default: 20 100)")
    parser.add_argument("--vocabulary", type=int, default=5000, help="words of the lexicon for mkgraph and language models (default: 5000)")
    parser.add_argument("--kutts", type=float, nargs="+", default=[20.0, 100.0], help="thousands of utterances (default: 20 100)")
    parser.add_argument("--joined", type=float, default=12.0, help="seconds to which utterances are joined (default: 12)")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=[name for name in STAGES if name not in ASKED_FOR],
                        help=f"stages to measure (default: all but {', '.join(sorted(DISCRIMINATIVE))}, which decode the training data, "
                             f"{', '.join(sorted(SUBSPACE))}, which take long, and {', '.join(sorted(CHAIN))}, "
                             "which need the recipe's local/chain/run_tdnn.sh, and for i-vectors "
                             "local/nnet3/run_ivector_common.sh)")
    parser.add_argument("--end-to-end", action="store_true", help="each stage on what the one before has made, from audio to word errors")
    parser.add_argument("--num-epochs", type=int, default=1, help="epochs of the network's training, end to end (default: 1)")
    parser.add_argument("--rows", type=Path, help="file with a JSON object a measurement, which this run adds to")
    parser.add_argument("--plot", type=Path, help="picture to draw of them")
    parser.add_argument("--nj", type=int, default=1, help="jobs (default: 1)")
    parser.add_argument("--jobs", choices=("threads", "array"), default="threads",
                        help="what they are in GMM training and alignment, but not end to end (default: threads)")
    parser.add_argument("--keep-feats", choices=("auto", "true", "false"), default="auto",
                        help="whether GMM stages keep features on disk (default: auto, trainings do)")
    parser.add_argument("--copied-alignments", action="store_true", help="trainings start from copies of the recipe's alignments")
    parser.add_argument("--num-iters", type=int, help="iterations of each training (default: all; a few show memory and the time of one)")
    parser.add_argument("--num-leaves", type=int, default=1800, help="leaves of the trees, at most (default: 1800)")
    parser.add_argument("--tot-gauss", type=int, default=9000, help="Gaussians of each system of triphones (default: 9000)")
    parser.add_argument("--work", type=Path, help="folder for data and systems; new, but for --end-to-end (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="leave them there")
    args = parser.parse_args()
    needed = [("data/test/cmvn.scp", "run.sh --stop-stage 1") if args.end_to_end else ("exp/tri3/final.mdl", "run.sh --stop-stage 2")]
    if {"build_chain_tree", "prepare_chain"} & set(args.stages):
        needed.append(("exp/chain/tdnn/configs/final.config", "local/chain/run_tdnn.sh --stop-stage 2"))
    if IVECTORS & set(args.stages):
        needed += [("data/train_hires/feats.scp", "local/chain/run_tdnn.sh --stop-stage 2"),
                   ("exp/nnet3/extractor/final.ie", "local/nnet3/run_ivector_common.sh")]
    for path, command in needed:
        if not (args.recipe / path).is_file():
            raise SystemExit(f"scale.py: ERROR: {args.recipe / path} does not exist; run the recipe's {command} first.")
    with contextlib.ExitStack() as stack:
        if args.work:
            args.work.mkdir(parents=True, exist_ok=args.end_to_end)
        work = (args.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        scale = Scale(args, work)
        print("stage                size               wall, s   CPU, s memory,MB scratch,MB disk,MB")
        for hours in args.hours:
            if args.end_to_end:
                scale.end_to_end(hours)
            elif set(args.stages) - LANGUAGE - TABLES:
                scale.hours(hours)
        for kwords in args.lm_kwords:
            if LANGUAGE & set(args.stages) and not args.end_to_end:
                scale.language(kwords)
        for kutts in args.kutts:
            if TABLES & set(args.stages) and not args.end_to_end:
                scale.tables(kutts)
        scale.exponents()
        if args.plot:
            scale.plot(args.plot)


if __name__ == "__main__":
    main()
