"""Our trainer on Kaldi's own features and alignments: as good as Kaldi's, by frame accuracy and by WER."""

from __future__ import annotations

import json
import re

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.frames.store import pack
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.tables import read_archive
from pykaldist.nnet.arithmetic import check_bf16

KALDIS_BEAMS = ["--acoustic-scale=0.1", "--beam=13", "--lattice-beam=8", "--max-active=7000"]  # of Kaldi's steps/decode.sh


@pytest.mark.slow
@pytest.mark.parametrize(("pretrained", "dtype", "least_accuracy", "most_wer"), [
    (False, "float32", 0.66, 6.6), (True, "float32", 0.67, 6.1), (False, "bf16", 0.66, 6.6), (True, "bf16", 0.67, 6.1)])
def test_dnn_on_fmllr_features(golden, tmp_path, pretrained, dtype, least_accuracy, most_wer):
    """AN4, 4 x 512, one worker, SGD, newbob. Kaldi's nnet1, RBM-pretrained: 66.8 %, 6.08 %. Five minutes each on one core.

    In bfloat16, which wants a CPU that has it, as good as in float32; it decodes in bfloat16 too.
    """
    if dtype == "bf16":
        try:
            check_bf16()
        except UserError as error:
            pytest.skip(str(error))
    an4 = golden / "an4_kaldi"
    tid2pdf = read_transition_model(an4 / "tri3_ali" / "final.mdl").tid2pdf
    pdfs = {utt: tid2pdf[ids] for job in (1, 2) for utt, ids in read_archive(an4 / "tri3_ali" / f"ali.{job}.gz")}
    feats = dict(read_archive(an4 / "fmllr" / "train.ark"))
    for name, listed in (("train", "tr.utts"), ("dev", "cv.utts")):
        utts = [line.split()[0] for line in (an4 / "fmllr" / listed).read_text().splitlines()]
        pack(utts, feats.__getitem__, pdfs.get, int(tid2pdf.max()) + 1, tmp_path / "store" / name)
    shape = ["--hid-layers", "4", "--hid-dim", "512", "--device", "cpu", "--dtype", dtype]
    start = []
    if pretrained:
        assert main(["pretrain-dbn", *shape, str(tmp_path / "store"), str(tmp_path / "dbn")]) == 0
        start = ["--dbn", str(tmp_path / "dbn")]
    assert main(["train", *shape, *start, str(tmp_path / "store"), str(tmp_path)]) == 0
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["cv_acc"] for line in history if line["accepted"]][-1] >= least_accuracy

    assert main(["nnet-forward", "--dtype", dtype, "--no-softmax=true", "--class-frame-counts", str(tmp_path / "ali_train_pdf.counts"),
                 str(tmp_path / "final.pt"), str(an4 / "fmllr" / "test.ark"), str(tmp_path / "loglikes.ark")]) == 0
    decode = tmp_path / "decode"
    decode.mkdir()
    (decode / "acwt").write_text("0.1\n")
    assert main(["latgen-faster-mapped", *KALDIS_BEAMS, str(an4 / "tri3_ali" / "final.mdl"), str(an4 / "graph_tri3" / "HCLG.fst"),
                 str(tmp_path / "loglikes.ark"), str(decode / "lat.1.gz")]) == 0
    assert main(["score", str(an4 / "data" / "test"), str(an4 / "graph_tri3"), str(decode)]) == 0
    best = (decode / "best_wer").read_text()
    assert float(re.match(r"%WER ([\d.]+) ", best)[1]) <= most_wer, best
