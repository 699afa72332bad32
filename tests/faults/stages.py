"""What is disturbed: every stage script of the default recipe (egs/prompts/s5), and training by several processes, on a corpus of tones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from zoo import ROOT

RATE = 8000
STATE = ("data", "exp", "mfcc")  # folders of a recipe that its stages write
SHAPE = ["--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "64", "--device", "cpu", "--num-threads", "1"]
TRAIN = [*SHAPE, "--schedule", "fixed", "--learn-rates", "0.002,0.002,0.002", "--checkpoint-minutes", "0"]


@dataclass
class Case:
    """A command that is disturbed.

    `exact`: run twice it gives the same. `tried`: False where it only makes what others need. `timeout`: of a job in which nothing moves.
    """

    name: str
    words: list[str]
    exact: bool = True
    tried: bool = True
    processes: int = 1
    timeout: int = 0


def job(strategy: str, processes: int, fabric: str, exact: bool = True, epochs: int = 3, name: str = "train", timeout: int = 60) -> Case:
    period = ["--average-period", "4"] if strategy in ("ma", "bmuf") else []
    return Case(f"{name} {strategy}, {processes} processes, {fabric}",
                ["steps/nnet/train.sh", "--retries", "0", *TRAIN, "--learn-rates", ",".join(["0.002"] * epochs), "--timeout", str(timeout),
                 "--ngpu", str(processes), "--nproc", str(processes), "--fabric", fabric,
                 "--strategy", strategy, *period, "--lr-scale", "none", "exp/dnn/store",
                 f"exp/{name}_{strategy}_{fabric}"], exact, processes=processes, timeout=timeout)


def killed_jobs() -> list[Case]:
    """Training that is long enough to be killed in it: a strategy of each kind over MPI and gloo, on what `cases` makes for it."""
    found = [case for case in cases() if case.processes == 1]
    found = found[: 1 + next(n for n, case in enumerate(found) if case.name == "pack.sh")]
    for case in found:
        case.tried = False
    for strategy in ("ma", "bmuf", "asgd", "adpsgd"):
        for fabric in ("mpi", "gloo"):
            found.append(job(strategy, 2, fabric, strategy in ("ma", "bmuf"), epochs=6, name="long", timeout=20))
    return found


def cases() -> list[Case]:
    """In the recipe's order: each stands on what those before it have made."""
    few = ["--num-iters", "3", "--max-iter-inc", "2", "--realign-iters", "1 2"]
    found = [
        Case("prepare_data.sh", ["local/prepare_data.sh", "--corpus", "../corpus", "--languages", "en"]),
        Case("prepare_lang.sh", ["utils/prepare_lang.sh", "data/local/dict", "<UNK>", "data/local/lang", "data/lang"]),
        Case("train_lm.sh", ["utils/train_lm.sh", "--order", "3", "data/train/text", "data/lang/words.txt", "data/local/lm.arpa.gz"]),
        Case("format_lm.sh", ["utils/format_lm.sh", "data/lang", "data/local/lm.arpa.gz", "data/local/dict/lexicon.txt",
                              "data/lang_test"]),
    ]
    for part in ("train", "test"):
        tried = part == "train"
        found += [Case("make_mfcc.sh", ["steps/make_mfcc.sh", "--nj", "2", f"data/{part}", f"exp/make_mfcc/{part}", "mfcc"], tried=tried),
                  Case("fix_data_dir.sh", ["utils/fix_data_dir.sh", f"data/{part}"], tried=tried),
                  Case("compute_cmvn_stats.sh", ["steps/compute_cmvn_stats.sh", f"data/{part}", f"exp/make_mfcc/{part}", "mfcc"],
                       tried=tried)]
    found += [
        Case("train_mono.sh", ["steps/train_mono.sh", "--nj", "2", *few, "--totgauss", "60", "data/train", "data/lang", "exp/mono"]),
        Case("align_si.sh", ["steps/align_si.sh", "--nj", "2", "data/train", "data/lang", "exp/mono", "exp/mono_ali"]),
        Case("train_deltas.sh", ["steps/train_deltas.sh", "--nj", "2", *few, "40", "80", "data/train", "data/lang", "exp/mono_ali",
                                 "exp/tri1"]),
        Case("align_si.sh tri1", ["steps/align_si.sh", "--nj", "2", "data/train", "data/lang", "exp/tri1", "exp/tri1_ali"], tried=False),
        Case("mkgraph.sh", ["utils/mkgraph.sh", "data/lang_test", "exp/tri1", "exp/tri1/graph"]),
        Case("decode.sh", ["steps/decode.sh", "--nj", "2", "--skip-scoring", "true", "exp/tri1/graph", "data/test", "exp/tri1/decode"]),
        Case("pack.sh", ["steps/nnet/pack.sh", "--delta-opts", "--delta-order=2", "--cv-percent", "20", "data/train", "exp/tri1_ali",
                         "exp/dnn/store"]),
        Case("pretrain_dbn.sh", ["steps/nnet/pretrain_dbn.sh", *SHAPE, "exp/dnn/store", "exp/dbn"]),
        Case("train.sh", ["steps/nnet/train.sh", *TRAIN, "--dbn", "exp/dbn", "--serial-warmup", "1", "--ngpu", "4", "--fabric", "virtual",
                          "--strategy", "bmuf", "--optimizer", "ngsgd", "exp/dnn/store", "exp/dnn"]),
        Case("decode.sh, network", ["steps/decode.sh", "--nj", "1", "--device", "cpu", "--acwt", "0.15", "--skip-scoring", "true",
                                    "exp/tri1/graph", "data/test", "exp/dnn/decode"]),
        Case("score_kaldi.sh", ["steps/score_kaldi.sh", "--min-lmwt", "8", "--max-lmwt", "10", "data/test", "exp/tri1/graph",
                                "exp/tri1/decode"]),
        Case("score_kaldi.sh, network", ["steps/score_kaldi.sh", "--min-lmwt", "8", "--max-lmwt", "10", "data/test", "exp/tri1/graph",
                                   "exp/dnn/decode"], tried=False),
        Case("run.sh, report", ["./run.sh", "--stage", "8", "--languages", "en"]),
        job("ma", 2, "mpi"), job("bmuf", 3, "gloo"), job("asgd", 2, "gloo", exact=False), job("adpsgd", 4, "mpi", exact=False),
    ]
    return found


def write_corpus(folder: Path) -> None:
    """Prompts in English, as Asterisk's packages have them: a list, and tones for phones."""
    import numpy as np
    import soundfile

    words = ["one", "two", "three", "four", "five", "six", "seven"]
    lexicon = {}
    for line in (ROOT / "egs/prompts/s5/local/lexicon.txt").read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        lexicon.setdefault(word, phones)
    rng = np.random.Generator(np.random.PCG64(11))
    lines = []
    for number in range(40):
        said = [words[number]] if number < len(words) else [words[k] for k in rng.integers(0, len(words), 3)]
        sounds = [np.zeros(800)]
        for word in said:
            for phone in lexicon[f"en:{word}"]:
                digest = hashlib.sha256(phone.encode()).digest()
                t = np.arange(int(rng.integers(500, 800))) / RATE
                sounds.append(sum(0.1 * np.sin(2 * np.pi * (250 + 12 * byte) * t) for byte in digest[:2]))
            sounds.append(np.zeros(300))
        wave = np.concatenate(sounds)
        name = f"digits/{number + 1}"
        path = folder / "en" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.round(2**15 * (wave + rng.uniform(-0.02, 0.02, len(wave)))).astype(np.int16), RATE)
        lines.append(f"{name}: {' '.join(said)}\n")
    (folder / "core-sounds-en.txt").write_text("".join(lines), encoding="utf-8")


def write_recipe(folder: Path) -> None:
    """The recipe's own files, with links into the project."""
    source = ROOT / "egs/prompts/s5"
    folder.mkdir(parents=True)
    for name in ("conf", "local", "run.sh", "cmd.sh", "RESULTS.md"):
        (shutil.copytree if (source / name).is_dir() else shutil.copy2)(source / name, folder / name)
    for name in ("steps", "utils", "path.sh"):
        (folder / name).symlink_to(ROOT / name)


TIMES = re.compile(r'"(seconds|time|date|started|elapsed|commit|\w+_seconds|pid|host)": *[^,}\n]+')


def digest(path: Path) -> str:
    """A checksum of what a file says, without the times in it, and the commit, which may change beside a campaign."""
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        content = TIMES.sub("", content.decode(errors="replace")).encode()
    if path.suffix == ".gz":
        import gzip
        import zlib

        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            content = b"damaged gzip" + content
    return hashlib.blake2b(content, digest_size=10).hexdigest()


def is_log(path: Path) -> bool:
    return path.suffix == ".log" or "log" in path.parts


def is_scrap(path: Path) -> bool:
    """What no reader takes for a result: hidden files, locks, temporary ones."""
    return any(part.startswith(".") for part in path.parts)


def tree(folder: Path) -> dict[str, str]:
    """Every result below a recipe's folder, with its checksum; logs and scrap are none."""
    found = {}
    for part in STATE:
        for path in sorted((folder / part).rglob("*")):
            relative = path.relative_to(folder)
            if path.is_file() and not is_log(relative) and not is_scrap(relative):
                found[str(relative)] = digest(path)
    return found


def scrap(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for part in STATE for path in (folder / part).rglob("*")
            if path.is_file() and path.name.startswith(".") and path.suffix == ".tmp"]


def lines_of(path: Path) -> list[str]:
    return [json.dumps({k: v for k, v in json.loads(line).items() if k != "seconds"}, sort_keys=True)
            for line in path.read_text().splitlines()]
