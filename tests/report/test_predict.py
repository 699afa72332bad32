"""The tables of docs/gpu.md: those that `pykaldist predict` prints."""

from __future__ import annotations

import pytest

from pykaldist.cli import main

SMALL = ",".join(f"{name}-small" for name in ("su2015-dnn", "chen2016-dnn", "chen2016-dblstm", "chan2015-cnn", "chan2015-rnn",
                                              "ibm2019-lstm"))
COMMANDS = ([], ["--hours", "2000", "--ngpu", "1,8,64"],  # those that the page names
            ["--dtypes", "bf16", "--hours", "300", "--ngpu", "1,8", "--nnets", SMALL])
OTHERS = ["--nnets", "su2015-dnn", "--optimizers", "adam,muon", "--dtypes", "bf16", "--gpus", "h100"]
NOT_PREDICTED = {"layer", "commit", "seed"}  # the first cells of tables of what was counted or measured
H100 = "NVIDIA H100 80GB HBM3"
Table = list[tuple[str, ...]]


def tables(text: str) -> list[Table]:
    """The Markdown tables of a text: their rows of cells, the head first."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [[tuple(cell.strip() for cell in row.strip("| ").split(" |")) for row in (block[0], *block[2:])]
            for block in blocks if block[0].startswith("|")]


@pytest.fixture
def printed(capsys):
    """`printed(*options)`: the tables that `pykaldist predict` prints."""

    def run(*options: str) -> list[Table]:
        assert main(["predict", *options]) == 0
        return tables(capsys.readouterr().out)

    return run


@pytest.fixture
def page(root):
    return tables((root / "docs" / "gpu.md").read_text(encoding="utf-8"))


def rates(found: list[Table]) -> dict[tuple[str, ...], str]:
    """(network, optimiser, arithmetic) -> thousands of frames a second on an H100, as printed."""
    (table,) = [one for one in found if "arithmetic" in one[0] and H100 in one[0]]
    return {row[:3]: row[table[0].index(H100)] for row in table[1:]}


def test_rows_of_a_network_are_those_of_the_page(printed, page):
    """Of its steps, and of frames a second."""
    counted, fast = printed("--nnets", "su2015-dnn", "--optimizers", "sgd", "--hours", "300", "--ngpu", "1")[:2]
    assert len(counted) == 1 + 2 and len(fast) == 1 + 3
    assert {row for table in page for row in table}.issuperset(counted + fast)


@pytest.mark.slow
def test_tables_are_those_of_the_page(printed, page):
    """All that are printed stand there, and all that stand there are printed; what was measured has beside it what is printed."""
    (measured,) = [table for table in page if "share" in table[0]]
    on_page = [table for table in page if table is not measured and table[0][0] not in NOT_PREDICTED]
    found = [printed(*command) for command in COMMANDS]
    for table in (table for command in found for table in command):
        assert table in on_page, table[:2]
    for table in on_page:
        assert any(table in command for command in found), table[:2]
    predicted = rates(found[0]) | rates(printed(*OTHERS))
    for row in measured[1:]:
        before, now, beside, share = row[3:]
        assert beside == predicted[row[:3]], row
        assert share == f"{100 * float(now or before) / float(beside.replace(',', '')):.0f} %", row
