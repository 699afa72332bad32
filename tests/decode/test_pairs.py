"""Files that belong together, from a lexicon to a word error rate: what has changed or was mixed up is named, and what is legal goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.hmm.alignments.alignment_dir import record, write_labels
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.model_files import write_model, write_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter

ARPA = ("\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1 <s> -0.3\n-0.7 a -0.2\n-0.9 ab\n-1 </s>\n\n"
        "\\2-grams:\n-0.3 <s> a\n-0.4 a </s>\n\n\\end\\\n")
DECODE = ["decode", "exp/mono/graph", "data/test", "exp/mono/decode"]
SCORE = ["score", "--min-lmwt", "9", "--max-lmwt", "9", "--word-ins-penalty", "0", "data/test", "exp/mono/graph", "exp/mono/decode"]
TRAIN = ["train", "--hid-layers", "1", "--hid-dim", "4", "--num-threads", "1", "--device", "cpu", "--schedule", "fixed", "--learn-rates"]


def features(data: Path, seed: int) -> None:
    """Features of a data directory, in an archive of its own."""
    rng = np.random.default_rng(seed)
    with MatrixWriter(f"mfcc/{data.name}.ark", data / "feats.scp") as writer:
        for utt in DataDir(data).utterances():
            writer.write(utt, rng.normal(size=(60, 3)).astype(np.float32))


def system(folder: str, lang: LangDir, reverse: bool = False, mean: float = 0.0) -> TransitionModel:
    """A system of one Gaussian a pdf, whose pdfs are in the other order with `reverse`."""
    topology = read_topology(lang.path / "topo")
    tree = monophone_tree(lang.phone_sets[::-1] if reverse else lang.phone_sets, topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    rng = np.random.default_rng(5)
    gmm = AmDiagGmm.flat_start(model.num_pdfs, mean + rng.normal(size=3), np.ones(3))
    for name, options in (("cmvn_opts", "--norm-means=false"), ("delta_opts", "--delta-order=0")):
        write_text(Path(folder) / name, options + "\n")
    write_tree(f"{folder}/tree", tree)
    write_model(f"{folder}/final.mdl", model, gmm)
    shutil.copyfile(lang.file("phones.txt"), f"{folder}/phones.txt")
    return model


def make_lang() -> int:
    return main(["prepare-lang", "data/dict", "<UNK>", "data/tmp", "data/lang"]) or \
        main(["format-lm", "data/lang", "data/lm.arpa", "data/dict/lexicon.txt", "data/lang_test"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that has come to its word error rate, and a store of its alignments."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, text in {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "A\nB\nC\n", "optional_silence": "SIL\n",
                           "lexicon": "<UNK> SPN\na A\nab A B\nba B A\ncab C A B\n"}.items():
            write_text(f"data/dict/{name}.txt", text)
        write_text("data/lm.arpa", ARPA)
        assert make_lang() == 0
        for name in ("train", "test", "other"):
            utts = [f"{name}{n}" for n in range(12)]
            write_datadir(Path("data") / name, dict.fromkeys(utts, "none.wav"), dict.fromkeys(utts, "a ab"), {u: u for u in utts})
            features(Path("data") / name, len(name))
        model = system("exp/mono", LangDir("data/lang"))
        train = DataDir("data/train")
        write_labels(Path("exp/mono"), train, dict.fromkeys(train.utterances(), np.resize(np.arange(1, model.num_transition_ids), 60)), 2)
        record(Path("exp/mono"), "steps/train_mono.sh", train)
        assert main(["mkgraph", "data/lang_test", "exp/mono", "exp/mono/graph"]) == 0
        assert main(DECODE) == 0 and main(SCORE) == 0
        assert main(["pack", "--cmvn-opts=--norm-means=false", "data/train", "exp/mono", "exp/dnn/store"]) == 0
    return folder


@pytest.fixture
def recipe(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished recipe, to work in. A copy is as good as the original: it knows where it is as soon as it is used."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    for scp in copy.glob("data/*/feats.scp"):
        scp.write_text(scp.read_text().replace(str(finished), str(copy)))
    monkeypatch.chdir(copy)
    for made in ("data/lang", "data/lang_test", "exp/mono", "exp/mono/graph", "exp/mono/decode", "exp/dnn/store"):
        provenance.check(made)
    return copy


def refused(capsys: pytest.CaptureFixture[str], command: list[str], *words: str) -> None:
    capsys.readouterr()
    assert main(command) == 1
    said = capsys.readouterr().err
    sentence, *commands = said.splitlines()
    assert all(word in sentence for word in words) and all(line.startswith("  e.g.: ") for line in commands), said


def test_what_is_legal_goes_on(recipe: Path) -> None:
    assert make_lang() == 0  # again, to the same
    assert main(DECODE) == 0 and main(SCORE) == 0
    assert main(["decode", "exp/mono/graph", "data/other", "exp/mono/decode_other"]) == 0  # another data set
    shutil.copytree("data/lang", "data/lang_copy")
    assert main([*SCORE[:-2], "data/lang_copy", "exp/mono/decode"]) == 0  # other words.txt, of the same words
    shutil.copytree("exp/mono", "exp/mono_copy")
    assert main(["decode", "exp/mono/graph", "data/test", "exp/mono_copy/decode"]) == 0  # the same model at another place
    shutil.rmtree("data/dict")
    shutil.rmtree("data/lang_test")
    assert main(DECODE) == 0  # what the graph was made of is gone
    assert main([*TRAIN, "0.1", "exp/dnn/store", "exp/dnn"]) == 0
    assert main(["decode", "exp/mono/graph", "data/test", "exp/dnn/decode"]) == 0  # a network on the pdfs of the graph's model
    assert main([*SCORE[:-1], "exp/dnn/decode"]) == 0


def test_a_record_less_folder_is_not_checked(recipe: Path) -> None:
    for path in recipe.rglob("inputs.json"):
        path.unlink()
    write_text("data/dict/lexicon.txt", "<UNK> SPN\na B\n")
    features(Path("data/train"), 99)
    assert main(DECODE) == 0 and main(SCORE) == 0
    assert main(["pack", "--cmvn-opts=--norm-means=false", "data/train", "exp/mono", "exp/store"]) == 0


def test_a_lexicon_edited_after_the_graph_was_made(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text("data/dict/lexicon.txt", Path("data/dict/lexicon.txt").read_text().replace("ab A B", "ab A C"))
    refused(capsys, DECODE, "data/dict/lexicon.txt has changed since utils/mkgraph.sh made exp/mono/graph of it; run utils/mkgraph.sh")
    refused(capsys, ["mkgraph", "data/lang_test", "exp/mono", "exp/mono/graph2"], "lexicon.txt has changed since", "run utils/format_lm.sh")
    refused(capsys, ["format-lm", "data/lang", "data/lm.arpa", "data/dict/lexicon.txt", "data/lang2"], "run utils/prepare_lang.sh again")
    assert make_lang() == 0
    refused(capsys, DECODE, "has changed since utils/mkgraph.sh made exp/mono/graph of it")
    assert main(["mkgraph", "data/lang_test", "exp/mono", "exp/mono/graph"]) == 0
    refused(capsys, SCORE, "exp/mono/graph/HCLG.fst has changed since steps/decode.sh made exp/mono/decode of it; run steps/decode.sh")
    assert main(DECODE) == 0 and main(SCORE) == 0


def test_a_language_model_in_the_place_of_another(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text("data/lm2.arpa", ARPA.replace("-0.9 ab", "-0.2 ab"))
    assert main(["format-lm", "data/lang", "data/lm2.arpa", "data/dict/lexicon.txt", "data/lang_test"]) == 0
    refused(capsys, DECODE, "data/lang_test/G.fst has changed since utils/mkgraph.sh made exp/mono/graph of it")
    (recipe / "exp/mono/graph/inputs.json").unlink()  # it is meant
    assert main(DECODE) == 0


def test_words_of_another_list(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text("data/dict2/lexicon.txt", "<UNK> SPN\naa C\nab A B\nba B A\ncab C A B\n")
    for name in ("silence_phones", "nonsilence_phones", "optional_silence"):
        shutil.copyfile(f"data/dict/{name}.txt", f"data/dict2/{name}.txt")
    assert main(["prepare-lang", "data/dict2", "<UNK>", "data/tmp2", "data/lang2"]) == 0
    refused(capsys, [*SCORE[:-2], "data/lang2", "exp/mono/decode"],
            "data/lang2/words.txt and exp/mono/decode do not belong together: their words differ; use the graph directory")
    shutil.copyfile("data/lang2/words.txt", "exp/mono/graph/words.txt")
    refused(capsys, DECODE, "exp/mono/graph/words.txt has changed since utils/mkgraph.sh made exp/mono/graph")


def test_a_graph_of_another_model_with_as_many_pdfs(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    system("exp/other", LangDir("data/lang"), reverse=True)
    refused(capsys, ["decode", "exp/mono/graph", "data/test", "exp/other/decode"],
            "exp/other/final.mdl and exp/mono/graph do not belong together: their transition-ids differ", "make a graph for exp/other")
    system("exp/other", LangDir("data/lang"), mean=1.0)  # other Gaussians: the same transition-ids
    assert main(["decode", "exp/mono/graph", "data/test", "exp/other/decode"]) == 0


def test_a_model_trained_again_after_decoding(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("exp/mono/graph", "exp/graph")
    (recipe / "exp/mono/inputs.json").unlink()
    system("exp/mono", LangDir("data/lang"), mean=1.0)
    refused(capsys, SCORE, "exp/mono/final.mdl has changed since steps/decode.sh made exp/mono/decode of it; run steps/decode.sh again")
    refused(capsys, DECODE, "exp/mono/final.mdl has changed since utils/mkgraph.sh made exp/mono/graph of it; run utils/mkgraph.sh again")


@pytest.mark.parametrize(("name", "content"), [("cmvn_opts", "--norm-vars=true\n"), ("delta_opts", "--delta-order=1\n")])
def test_options_of_features_edited_after_training(recipe: Path, capsys: pytest.CaptureFixture[str], name: str, content: str) -> None:
    write_text(f"exp/mono/{name}", content)
    refused(capsys, DECODE, f"exp/mono/{name} has changed since steps/train_mono.sh made exp/mono; run steps/train_mono.sh again")


def test_features_replaced_after_the_alignment_and_after_the_store(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = [*TRAIN, "0.1", "exp/dnn/store"]
    assert main([*TRAIN, "0.1,0.1", "exp/dnn/store", "exp/begun"]) == 0
    (recipe / "exp/begun/final.pt").unlink()  # as if it had not come to its end
    before = Path("mfcc/train.ark").read_bytes()
    features(Path("data/train"), 99)
    pack = ["pack", "--cmvn-opts=--norm-means=false", "data/train", "exp/mono", "exp/store2"]
    refused(capsys, pack, "mfcc/train.ark has changed since steps/train_mono.sh made exp/mono of it")
    refused(capsys, [*train, "exp/dnn"], "mfcc/train.ark has changed since steps/nnet/pack.sh made exp/dnn/store of it")
    assert main([*TRAIN, "0.1,0.1", "exp/dnn/store", "exp/begun"]) == 0  # has its data, and goes on
    features(Path("data/train"), len("train"))  # the same again
    assert Path("mfcc/train.ark").read_bytes() == before
    assert main([*train, "exp/dnn"]) == 0 and main(pack) == 0
    shutil.copyfile("exp/store2/dev/manifest.json", "exp/dnn/store/dev/manifest.json")
    shutil.copyfile("exp/mono/cmvn_opts", "exp/dnn/store/delta_opts")
    refused(capsys, [*train, "exp/dnn2"], "exp/dnn/store/delta_opts has changed since steps/nnet/pack.sh made exp/dnn/store;")
    shutil.copyfile("exp/dnn/tree", "exp/dnn/final.mdl")
    refused(capsys, ["decode", "exp/mono/graph", "data/test", "exp/dnn/decode"],
            "exp/dnn/final.mdl has changed since steps/nnet/train.sh made")
