"""pack: weights, soft targets and target features from Kaldi's archives into a store, through the stage script too."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tracemalloc

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.cli import pack as pack_verb
from pykaldist.errors import UserError
from pykaldist.frames.shards import combine
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, record
from pykaldist.io.datadir import DataDir, restrict, write_datadir
from pykaldist.io.posteriors import Posterior, write_posteriors
from pykaldist.io.tables import MatrixWriter, write_int_vectors

FRAMES = {"s1-a": 9, "s1-b": 12, "s2-a": 7, "s2-b": 10}


@pytest.fixture
def folder(tmp_path):
    """Data of features of 3, an alignment of 4 pdfs, and archives of what can go with them."""
    rng = np.random.default_rng(0)
    data = write_datadir(tmp_path / "data", {u: "x.wav" for u in FRAMES}, None, {u: u[:2] for u in FRAMES})
    pdfs = {u: rng.integers(0, 4, n).astype(np.int32) for u, n in FRAMES.items()}
    for name, dim in (("feats", 3), ("clean", 2)):
        with MatrixWriter(tmp_path / f"{name}.ark", tmp_path / f"{name}.scp") as writer:
            for utt, n in FRAMES.items():
                writer.write(utt, rng.normal(size=(n, dim)).astype(np.float32))
    (tmp_path / "feats.scp").rename(data.path / "feats.scp")
    with MatrixWriter(tmp_path / "weights.ark", tmp_path / "weights.scp") as writer:
        for utt, n in FRAMES.items():
            writer.write(utt, np.arange(n, dtype=np.float32))
    (tmp_path / "ali").mkdir()
    write_int_vectors(tmp_path / "ali" / "ali_pdf.1.gz", pdfs.items())
    (tmp_path / "ali" / "num_pdfs").write_text("4\n")
    for job, utts in (("1", ("s1-a", "s1-b")), ("2", ("s2-a", "s2-b"))):
        soft = [(u, Posterior(2 * np.arange(FRAMES[u] + 1), np.stack([pdfs[u], (pdfs[u] + 1) % 4], 1).ravel(),
                              np.tile(np.float32([0.6, 0.4]), FRAMES[u]))) for u in utts]
        write_posteriors(tmp_path / f"post.{job}.gz", soft)
    (tmp_path / "cv").write_text("s2-b\n")
    return tmp_path


def options(folder):
    return ["--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv"), "--posteriors", f"ark:{folder}/post.*.gz",
            "--target-feats", f"scp:{folder}/clean.scp", "--frame-weights", str(folder / "weights.ark")]


def test_archives_become_a_store(folder, root, capsys):
    paths = [str(folder / "data"), str(folder / "ali")]
    assert main(["pack", *options(folder), *paths, str(folder / "store")]) == 0
    assert "4 pdfs, frame weights, posteriors, up to 2 a frame, target features of 2" in capsys.readouterr().out
    train, dev = FrameStore(folder / "store" / "train"), FrameStore(folder / "store" / "dev")
    assert train.utts == ["s1-a", "s1-b", "s2-a"] and dev.utts == ["s2-b"] and dev.weights.tolist() == list(range(10))
    assert np.array_equal(train.posterior_pdfs, np.stack([train.targets, (train.targets + 1) % 4], 1))
    assert np.allclose(train.posterior_probs, [[0.6, 0.4]]) and train.target_feats.shape == (28, 2)
    script = [str(root / "steps/nnet/pack.sh"), *options(folder), "--max-posteriors", "1", *paths, str(folder / "other")]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, check=True)
    assert "posteriors, up to 1 a frame" in done.stdout
    other = FrameStore(folder / "other" / "train")
    assert np.array_equal(other.posterior_probs, np.ones((28, 1))) and np.array_equal(other.target_feats, train.target_feats)


def test_a_limit_without_posteriors_is_refused(folder, capsys):
    assert main(["pack", "--max-posteriors", "2", str(folder / "data"), str(folder / "ali"), str(folder / "store")]) == 1
    assert "--max-posteriors 2: expected a number of pdfs, and --posteriors" in capsys.readouterr().err


def test_characters_become_label_sequences(folder, capsys):
    words = {"s1-a": "A B", "s1-b": "BA", "s2-a": "ABABABAB", "s2-b": "A"}
    (folder / "data" / "text").write_text("".join(f"{utt} {text}\n" for utt, text in words.items()))
    paths = ["--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv"), str(folder / "data"), str(folder / "ali"),
             str(folder / "store")]
    assert main(["pack", "--ctc", "chars", *paths]) == 0
    assert "5 labels of 3, 1 skipped (s2-a: 7 frames, too few for its 8 labels" in capsys.readouterr().out
    assert (folder / "store" / "tokens.txt").read_text() == "<blk> 0\n<space> 1\nA 2\nB 3\n"
    train = FrameStore(folder / "store" / "train")
    assert train.labels.tolist() == [2, 1, 3, 3, 2] and train.label_offsets.tolist() == [0, 3, 5] and train.manifest.num_tokens == 4
    assert main(["pack", *paths]) == 0
    assert not (folder / "store" / "tokens.txt").exists() and FrameStore(folder / "store" / "train").labels is None
    assert main(["pack", "--ctc", "phones", *paths]) == 1
    assert "has pdfs without transition-ids" in capsys.readouterr().err


def test_phones_of_an_alignment_become_label_sequences(golden, tmp_path, capsys):
    """Kaldi's AN4: the phones of the first utterances' frames, a phone that comes twice in a row being two labels."""
    wanted = {line.split()[0]: [int(phone) for phone, _ in itertools.groupby(line.split()[1:])]
              for line in (golden / "an4_kaldi/tri1/phones20.txt").read_text().splitlines()}
    ali = AlignmentDir(golden / "an4_kaldi/tri1")
    data = write_datadir(tmp_path / "data", {u: "x.wav" for u in wanted}, None, {u: u.split("-")[0] for u in wanted})
    with MatrixWriter(tmp_path / "f.ark", data.path / "feats.scp") as writer:
        for utt in wanted:
            writer.write(utt, np.zeros((len(ali.pdfs(utt)), 2), np.float32))
    (tmp_path / "ali").mkdir()
    for name in ("final.mdl", "tree", "num_jobs", "phones.txt", *(p.name for p in ali.archives)):
        source = golden / "an4_kaldi/tri1" / name
        shutil.copyfile(source if source.is_file() else golden / "an4_kaldi/lang" / name, tmp_path / "ali" / name)
    paths = [str(data.path), str(tmp_path / "ali"), str(tmp_path / "store")]
    assert main(["pack", "--cmvn-opts=--norm-means=false", "--ctc", "phones", "--cv-percent", "10", *paths]) == 0
    twice = 0
    for part in ("train", "dev"):
        store = FrameStore(tmp_path / "store" / part)
        for utt, first, last in zip(store.utts, store.label_offsets, store.label_offsets[1:], strict=False):
            own = store.labels[first:last].tolist()
            assert [phone for phone, _ in itertools.groupby(own)] == wanted[utt]
            twice += len(own) - len(wanted[utt])
    assert twice == 1
    tokens = dict(line.split() for line in (tmp_path / "store" / "tokens.txt").read_text().splitlines())
    assert tokens["<blk>"] == "0" and tokens["SIL"] == "1" and not any(name.startswith("#") for name in tokens)


@pytest.mark.parametrize("ctc", [False, True])
def test_posteriors_and_labels_are_not_held_in_memory(folder, monkeypatch, ctc):
    """Each kind is 2.4 MB here, or more: far less of it is in memory when packing begins."""
    paths = ["--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv"), str(folder / "data"), str(folder / "ali"),
             str(folder / "store")]
    held = []
    packing = pack_verb.pack

    def watched(*args):
        held.append(tracemalloc.get_traced_memory()[0])
        return packing(*args)

    monkeypatch.setattr(pack_verb, "pack", watched)
    frames = 50_000
    if ctc:
        text = folder / "data/text"
        text.write_text("".join(f"{utt} {'AB' * 75_000}\n" for utt in FRAMES))
        options = ["--ctc", "chars"]
    else:
        soft = Posterior(np.arange(frames + 1), np.zeros(frames, np.int32), np.ones(frames, np.float32))
        write_posteriors(folder / "soft.ark", [(utt, soft) for utt in FRAMES])
        options = ["--posteriors", f"ark:{folder}/soft.ark"]
    main(["pack", *paths])  # imports what there is to import
    held.clear()
    tracemalloc.start()
    try:
        main(["pack", *options, *paths])
    finally:
        tracemalloc.stop()
    assert held and held[0] < 1_000_000


def test_an_alignment_of_other_audio_is_refused(folder, capsys):
    """Names and lengths are equal, what is said is not."""
    data = folder / "data"
    (data / "text").write_text("".join(f"{utt} one\n" for utt in FRAMES))
    record(folder / "ali", "steps/align_si.sh", DataDir(data))
    paths = [str(data), str(folder / "ali"), str(folder / "store")]
    words = ["pack", "--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv"), *paths]
    assert main(words) == 0
    (data / "text").write_text("".join(f"{utt} {'two' if utt == 's1-b' else 'one'}\n" for utt in FRAMES))
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr().err
    assert f"{data}/text, s1-b: 1 of 4 transcripts are not those that {folder}/ali has aligned; align this data" in said
    (folder / "ali/texts.crc").unlink()
    assert main(words) == 0


def test_another_data_directory_is_held_out(folder, capsys):
    data = DataDir(folder / "data")
    restrict(data, ["s2-b", "s1-a"], folder / "cv_data")
    paths = ["--cmvn-opts=--norm-means=false", str(folder / "data"), str(folder / "ali"), str(folder / "store")]
    assert main(["pack", "--cv-data", str(folder / "cv_data"), *paths]) == 0
    train, dev = FrameStore(folder / "store" / "train"), FrameStore(folder / "store" / "dev")
    assert train.utts == list(FRAMES) and dev.utts == ["s1-a", "s2-b"]
    assert np.array_equal(dev.feats[:9], train.feats[:9]) and np.array_equal(dev.targets[9:], train.targets[28:])
    (folder / "small").mkdir()
    write_int_vectors(folder / "small" / "ali_pdf.1.gz", [(u, np.zeros(n, np.int32)) for u, n in FRAMES.items()])
    (folder / "small" / "num_pdfs").write_text("2\n")
    assert main(["pack", "--cv-data", str(folder / "cv_data"), "--cv-ali", str(folder / "small"), *paths]) == 1
    assert "small has 2 pdfs" in capsys.readouterr().err
    for options, words in ((["--cv-utts", str(folder / "cv")], "--cv-data and --cv-utts exclude each other"),
                           (["--ctc", "chars"], "--ctc and --cv-data exclude each other"),
                           (["--num-pdfs", "3"], "--num-pdfs 3: expected a positive number, and no alignment")):
        assert main(["pack", "--cv-data", str(folder / "cv_data"), *options, *paths]) == 1
        assert words in capsys.readouterr().err


def test_without_an_alignment(folder, capsys):
    """For RBMs, all utterances; with posteriors, targets are the likeliest pdfs."""
    plain = ["--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv")]
    assert main(["pack", *plain, str(folder / "data"), str(folder / "store")]) == 0
    train, dev = FrameStore(folder / "store" / "train"), FrameStore(folder / "store" / "dev")
    assert train.utts == list(FRAMES) and dev.utts == ["s2-b"] and train.manifest.num_pdfs == 1 and not train.targets.any()
    assert main(["train", "--hid-dim", "4", "--splice", "0", str(folder / "store"), str(folder / "exp")]) == 1
    assert "has one pdf only: it was packed without an alignment" in capsys.readouterr().err
    soft = ["--posteriors", f"ark:{folder}/post.*.gz", "--num-pdfs", "4"]
    assert main(["pack", *plain, str(folder / "data"), str(folder / "ali"), str(folder / "hard")]) == 0
    assert main(["pack", *plain, *soft, str(folder / "data"), str(folder / "store")]) == 0
    train, hard = FrameStore(folder / "store" / "train"), FrameStore(folder / "hard" / "train")
    assert train.utts == hard.utts == ["s1-a", "s1-b", "s2-a"] and np.array_equal(train.targets, hard.targets)
    assert train.manifest.num_pdfs == 4 and train.posterior_probs.shape == (28, 2)
    assert main(["pack", *plain, "--ctc", "phones", str(folder / "data"), str(folder / "store")]) == 1
    assert "--ctc phones needs an alignment" in capsys.readouterr().err


def files(path):
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file() and ".lock" not in p.name}


def same_frames(one, other):
    assert one.utts == other.utts and one.manifest.checksums["statistics.npy"] == other.manifest.checksums["statistics.npy"]
    for utt in range(len(one.utts)):
        assert np.array_equal(one.features(utt), other.features(utt))
    assert np.array_equal(one.counts(), other.counts())


@pytest.mark.parametrize("extra", [[], ["--ctc", "chars", "--store-dtype", "uint8"]])
def test_jobs_pack_what_one_packs(folder, root, capsys, extra):
    (folder / "data" / "text").write_text("".join(f"{utt} A B\n" for utt in FRAMES))
    words = [*options(folder), *extra, str(folder / "data"), str(folder / "ali")]
    assert main(["pack", *words, str(folder / "whole")]) == 0
    subprocess.run([str(root / "steps/nnet/pack.sh"), "--nj", "2", *words, str(folder / "store")], cwd=root, check=True)
    for name in ("train", "dev"):
        whole, joined = FrameStore(folder / "whole" / name), FrameStore(folder / "store" / name)
        joined.verify()
        same_frames(joined, whole)
        assert len(joined.manifest.shards) == (2 if name == "train" else 1)
    assert (folder / "store/cmvn_opts").read_text() == (folder / "whole/cmvn_opts").read_text()
    before = files(folder / "store" / "train")
    assert main(["pack", "--nj", "2", "--job", "2", *words, str(folder / "store")]) == 0  # again
    assert files(folder / "store" / "train") == before
    FrameStore(folder / "store" / "train").verify()
    capsys.readouterr()
    shutil.rmtree(folder / "store" / "train" / "shards" / "1.2")
    assert main(["pack", "--nj", "2", *words, str(folder / "store")]) == 1
    assert "lacks the shard of job 2 of 2 (1 are missing); run pack with --nj 2 --job 2 again" in capsys.readouterr().err


def test_shards_of_different_runs_are_not_joined(folder, capsys):
    """As where a job died early, so that its shard is that of the run before; or where there were more jobs."""
    restrict(DataDir(folder / "data"), list(FRAMES), folder / "other")
    words = {name: [*options(folder), str(folder / name), str(folder / "ali"), str(folder / "store")] for name in ("data", "other")}
    for job in ("1", "2", "3"):
        assert main(["pack", "--nj", "3", "--job", job, *words["data"]]) == 0
    assert main(["pack", "--nj", "2", *words["data"]]) == 1
    assert "the shard of job 1 is one of 3 jobs, not of 2; join with --nj 3" in capsys.readouterr().err
    for job in ("1", "3"):
        assert main(["pack", "--nj", "3", "--job", job, *words["other"]]) == 0
    assert main(["pack", "--nj", "3", *words["other"]]) == 1
    said = capsys.readouterr().err
    assert "the shards of jobs 1 and 2 are not of one run (data" in said and "pack the older one again with --nj 3 --job <job>" in said
    assert main(["pack", "--nj", "3", "--job", "2", *words["other"]]) == 0 == main(["pack", "--nj", "3", *words["other"]])


def test_what_a_killed_run_left_goes(folder):
    words = [*options(folder), str(folder / "data"), str(folder / "ali"), str(folder / "store")]
    left = folder / "store/train/.feats.bin.12345.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of it")
    assert main(["pack", *words]) == 0 and not left.exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_utterances_are_appended(folder, capsys, jobs):
    data = DataDir(folder / "data")
    restrict(data, ["s1-a", "s1-b"], folder / "one")
    restrict(data, ["s2-a", "s2-b"], folder / "two")
    (folder / "cv").write_text("s1-b\ns2-b\n")
    (folder / "cv1").write_text("s1-b\n")
    (folder / "cv2").write_text("s2-b\n")

    def words(cv, part, store):
        return ["--cmvn-opts=--norm-means=false", "--cv-utts", *(str(folder / name) for name in (cv, part, "ali", store))]

    def pack(*more):
        parts = [["--job", str(job)] for job in range(1, jobs + 1)] if jobs > 1 else []
        return max(main(["pack", "--nj", str(jobs), *part, *more]) for part in (*parts, []))

    assert pack(*words("cv", "data", "whole")) == pack(*words("cv1", "one", "store")) == 0
    assert pack("--append", "true", *words("cv2", "two", "store")) == 0
    before = {name: FrameStore(folder / "store" / name).manifest for name in ("train", "dev")}
    for name in ("train", "dev"):
        same_frames(FrameStore(folder / "store" / name), FrameStore(folder / "whole" / name))
        FrameStore(folder / "store" / name).verify()
    assert pack("--append", "true", *words("cv2", "two", "store")) == 0  # the same again: it has them already
    assert {name: FrameStore(folder / "store" / name).manifest for name in ("train", "dev")} == before
    shards = folder / "store/train/shards"
    assert not list(shards.glob("3.*"))
    damaged = shards / f"2.{jobs}"
    damaged = damaged if (damaged / "feats.bin").exists() else shards / "2.1"
    with open(damaged / "feats.bin", "r+b") as stream:
        stream.write(b"\1\2\3")
    with pytest.raises(UserError, match=r"feats\.bin does not match"):
        FrameStore(folder / "store/train").verify()
    assert pack("--append", "true", "--batch", "2", *words("cv2", "two", "store")) == 0  # what was appended first
    FrameStore(folder / "store/train").verify()
    assert {name: FrameStore(folder / "store" / name).manifest for name in ("train", "dev")} == before
    assert main(["pack", "--batch", "2", *words("cv2", "two", "store")]) == 1
    assert "--batch 2: expected --append true" in capsys.readouterr().err
    other = [word.replace("norm-means=false", "norm-vars=true") for word in words("cv2", "two", "store")]
    assert pack("--append", "true", *other) == 1
    assert "was packed with other --cmvn-opts" in capsys.readouterr().err
    assert pack("--append", "true", "--store-dtype", "float16", *words("cv2", "two", "store")) == 1
    assert "was packed with --store-dtype float32; append with the same" in capsys.readouterr().err
    assert main(["pack", "--append", "true", *words("cv2", "two", "nothing")]) == 1
    assert "there is no store in" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["combine-stores", "subset-store"])
def test_a_store_is_not_made_of_itself(folder, capsys, command):
    words = [*options(folder), str(folder / "data"), str(folder / "ali"), str(folder / "store")]
    assert main(["pack", *words]) == 0
    (folder / "list").write_text("s1-a\n")
    more = [str(folder / "list")] if command == "subset-store" else []
    before, store = files(folder / "store"), str(folder / "store")
    assert main([command, store, store] if not more else [command, store, *more, store]) == 1
    assert "is one of the stores that are read; write to another folder" in capsys.readouterr().err and files(folder / "store") == before
    with pytest.raises(UserError, match="would be made of itself"):
        combine(folder / "store/train", [folder / "store/train"])
    assert files(folder / "store") == before


@pytest.mark.usefixtures("all_plain_lines")
def test_stores_are_combined_and_cut_without_a_copy(folder, capsys):
    data = DataDir(folder / "data")
    restrict(data, ["s1-a", "s2-a"], folder / "one")
    restrict(data, ["s1-b", "s2-b"], folder / "two")
    restrict(data, ["s1-a", "s1-b"], folder / "cv_data")
    for name, held_out in (("one", "s2-a"), ("two", "s2-b"), ("data", "s2-a\ns2-b")):
        (folder / "cv").write_text(held_out + "\n")
        words = ["--cmvn-opts=--norm-means=false", "--cv-utts", str(folder / "cv"), str(folder / name), str(folder / "ali")]
        assert main(["pack", *words, str(folder / f"{name}_store")]) == 0
    capsys.readouterr()
    assert main(["combine-stores", str(folder / "all"), str(folder / "one_store"), str(folder / "two_store")]) == 0
    said = capsys.readouterr()
    first, _, last = said.out.splitlines()
    assert first == f"{folder}/all/train: 2 utterances, 21 frames in 2 shards"
    assert last.startswith(f"{folder}/all: 2 stores combined; ") and last.endswith("MB written")
    assert "stores of train: 2/2 (100 %) store" in said.err and "stores of dev: 2/2 (100 %) store" in said.err
    for part in ("train", "dev"):
        same_frames(FrameStore(folder / "all" / part), FrameStore(folder / "data_store" / part))
    assert not list((folder / "all").rglob("*.bin")) and (folder / "all" / "cmvn_opts").is_file()
    (folder / "list").write_text("s1-b and more\n")
    assert main(["subset-store", str(folder / "all"), str(folder / "list"), str(folder / "some")]) == 0
    assert FrameStore(folder / "some/train").utts == ["s1-b"] and FrameStore(folder / "some/dev").utts == ["s2-a", "s2-b"]
    (folder / "two_store" / "cmvn_opts").write_text("--norm-vars=true\n")
    (folder / "two_store" / "inputs.json").unlink()
    assert main(["combine-stores", str(folder / "all"), str(folder / "one_store"), str(folder / "two_store")]) == 1
    assert "two_store/cmvn_opts is not that of" in capsys.readouterr().err
