"""How many chunks a minibatch has, by Kaldi's rules."""

from __future__ import annotations

import pytest

from pykaldist.errors import UserError
from pykaldist.frames.minibatch_rule import MinibatchRule


def test_rules():
    assert [MinibatchRule(text).chunks(150) for text in ("64", "256,128,64", "1:128")] == [64, 256, 128]
    rule = MinibatchRule("150=128,64/300=100,64,32/600=50,32,16")
    assert [rule.chunks(length) for length in (20, 140, 224, 226, 299, 700)] == [128, 128, 128, 100, 100, 50]


@pytest.mark.parametrize("wrong", ["", "a", "150=", "0", "150=64/300=0"])
def test_what_is_no_rule_is_refused(wrong):
    with pytest.raises(UserError, match=r"--trainer\.num-chunk-per-minibatch"):
        MinibatchRule(wrong, "--trainer.num-chunk-per-minibatch")
