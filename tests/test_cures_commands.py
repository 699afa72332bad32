"""The command lines under an error: those that made a folder, or a script's example with the folders that are known."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pykaldist import cli, cures
from pykaldist.cures import with_commands
from pykaldist.io import provenance
from pykaldist.jobs.wrapper import COMMANDS, complaint
from tests.test_cures import messages

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe's folder with empty files, by which the folders are known for what they are."""
    monkeypatch.chdir(tmp_path)
    for name in ("data/dev/utt2spk", "data/eval/wav.scp", "data/lang_tg/L.fst", "exp/sat/final.mdl", "exp/sat/ali.1.gz",
                 "exp/sat/graph_tg/HCLG.fst", "exp/sat/decode_dev/lat.1.gz", "exp/dnn/final.nnet", "exp/dnn/store/train/manifest.json",
                 "exp/dnn_ali/ali.1.gz", "exp/dnn_ali/final.mdl"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return tmp_path


@pytest.mark.parametrize(("sentence", "argv", "lines"), [
    pytest.param("exp/sat/graph_tg has no pdfs; make it again with utils/mkgraph.sh.", [],
                 ["utils/mkgraph.sh data/lang_test exp/sat exp/sat/graph_tg"], id="the model above a graph"),
    pytest.param("make it again with utils/mkgraph.sh.", ["data/lang_tg", "exp/dnn", "exp/dnn/graph"],
                 ["utils/mkgraph.sh data/lang_tg exp/dnn exp/dnn/graph"], id="all from the command line, one folder by its name alone"),
    pytest.param("data/new/feats.scp does not exist; run steps/make_mfcc.sh first.", ["data/dev"],
                 ["steps/make_mfcc.sh --nj 4 data/new exp/make_mfcc/train mfcc"], id="the sentence goes before the command line"),
    pytest.param("exp/sat/decode_dev is damaged; decode again (steps/decode.sh, steps/decode_fmllr.sh).", ["--data=data/dev"],
                 ["steps/decode.sh --nj 4 exp/sat/graph_tg data/dev exp/sat/decode_dev",
                  "steps/decode_fmllr.sh --nj 4 exp/sat/graph_tg data/dev exp/sat/decode_dev"], id="two scripts, and an option's value"),
    pytest.param("score data/dev first (steps/score_kaldi.sh).", ["exp/sat/decode_dev"],
                 ["steps/score_kaldi.sh --min-lmwt 7 data/dev exp/sat/graph_tg exp/sat/decode_dev"], id="a graph in place of lang"),
    pytest.param("exp/dnn/store is damaged; pack again (steps/nnet/pack.sh).", ["data/dev", "data/eval", "exp/dnn_ali"],
                 ["steps/nnet/pack.sh --cv-percent 10 data-fbank/train exp/dnn_ali exp/dnn/store"], id="which data is not known"),
    pytest.param("train it (steps/nnet3/train_dnn.py).", ["data/dev", "exp/dnn_ali", "data/lang_tg"],
                 ["steps/nnet3/train_dnn.py --cmd run.pl --feat-dir data/train_hires --ali-dir exp/dnn_ali --lang data/lang_tg "
                  "--dir exp/nnet3/tdnn --trainer.num-epochs 4 --trainer.optimization.num-jobs-initial 2 "
                  "--trainer.optimization.num-jobs-final 4"],
                 id="options that are folders"),
    pytest.param("exp/sat/cmvn_opts has changed; run steps/train_mono.sh again.", ["data/eval", "data/lang_tg"],
                 ["steps/train_mono.sh --nj 2 data/train data/lang_tg exp/sat"], id="training is not on the data that was decoded"),
    pytest.param("align again (steps/nnet3/align.sh).", ["data/dev", "data/lang_tg"],
                 ['steps/nnet3/align.sh --nj 4 --use-gpu false --scale-opts "--transition-scale=1.0 --acoustic-scale=1.0 '
                  '--self-loop-scale=1.0" data/dev data/lang_tg exp/chain/tdnn exp/chain/tdnn_ali'], id="an option of several words"),
    pytest.param("run steps/compute_cmvn_stats.sh data/dev again.", [], [], id="the sentence has the arguments"),
    pytest.param("see steps/none.sh, no script.", [], [], id="no such script"),
    pytest.param("no cure here.", ["data/dev"], [], id="no script"),
])
def test_examples_with_the_folders_that_are_known(recipe: Path, sentence: str, argv: list[str], lines: list[str]) -> None:
    assert with_commands(sentence, argv).splitlines() == [sentence, *(f"  e.g.: {line}" for line in lines)]


def test_a_folder_with_a_space_stays_one_word(recipe: Path) -> None:
    (recipe / "data/new set").mkdir()
    (recipe / "data/new set/utt2spk").touch()
    assert with_commands("run steps/make_mfcc.sh first.", ["data/new set"]).endswith("--nj 4 'data/new set' exp/make_mfcc/train mfcc")


def test_every_script_that_a_message_names_has_its_command(recipe: Path) -> None:
    named = {match[1]: text for text in messages().values() for match in cures._SCRIPT.finditer(text)
             if not cures._has_arguments(text[match.end() :])}
    assert len(named) > 40
    for script in named:
        said = with_commands(f"run {script}.")
        assert re.search(rf"^  e\.g\.: .*{re.escape(script)} ", said, re.MULTILINE), said


def test_the_command_that_made_a_folder_is_the_cure(recipe: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    made = "steps/decode.sh --beam 11 exp/sat/graph_tg data/dev exp/sat/decode_dev"
    monkeypatch.setenv(provenance.COMMAND, made)
    provenance.record("exp/sat/decode_dev", "steps/decode.sh", [], ["lat.1.gz"])
    Path("exp/sat/decode_dev/lat.1.gz").write_text("damaged")
    said = f"exp/sat/decode_dev/lat.1.gz is damaged; decode again (steps/decode.sh).\n  command: {made}"
    assert with_commands(said.splitlines()[0]) == said
    assert cli.main(["score", "data/dev", "exp/sat/graph_tg", "exp/sat/decode_dev"]) == 1  # as a verb prints it
    assert f"\n  command: {made}\n" in capsys.readouterr().err
    monkeypatch.chdir("exp")  # from elsewhere
    assert with_commands("sat/decode_dev is damaged (steps/decode.sh).").endswith(f"\n  command: cd {recipe} && {made}")


def test_a_folder_that_another_script_made_is_no_command_of_this_one(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provenance.COMMAND, "steps/decode_fmllr.sh exp/sat/graph_tg data/dev exp/sat/decode_dev")
    provenance.record("exp/sat/decode_dev", "steps/decode.sh")  # it called decode.sh, whose own command line is another
    assert (provenance.read("exp/sat/decode_dev") or pytest.fail()).command == ""
    assert "  e.g.: steps/decode.sh" in with_commands("exp/sat/decode_dev: decode again (steps/decode.sh).")


def test_scripts_tell_their_command_line_as_it_can_be_pasted(tmp_path: Path) -> None:
    script = tmp_path / "some stage.sh"
    script.write_text('nj=4\n. parse_options.sh\necho "$PYKALDIST_COMMAND"\n')
    arguments = [str(script), "--nj", "2", "data/a b", "it's", "$x"]
    env = {"PATH": f"{ROOT / 'utils'}:/usr/bin:/bin", "PYKALDIST_TOLD": "true"}
    told = subprocess.run(["bash", *arguments], env=env, capture_output=True, text=True, check=True).stdout
    read = subprocess.run(["bash", "-c", f"printf '%s\\n' {told}"], capture_output=True, text=True, check=True).stdout
    assert read.splitlines() == arguments


def test_a_job_that_failed_is_told_with_its_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    last = "ERROR: second (steps/decode.sh).\n  command: one\n  e.g.: two"
    log.write_text(f"# decode\nERROR: first.\n  command: old\ndone\n{last}\n# ended\n")
    assert complaint(str(log)) == last
    assert all(line.startswith(cures.INDENT) for line in COMMANDS)
