"""A large vocabulary decoded six ways: graph bytes, memory, real-time factor and WER, static and composed while searching.

    tests/bench/run.sh large_vocabulary --recipe egs/an4/s5 --work /scratch/large [--vocabulary 20000] [--kwords 150]

Needs a recipe whose triphones are trained (exp/tri1). Its lexicon gets random words, its transcripts (20 times) are joined by a random text
of the new words, and of both a trigram is estimated. The test set is decoded: with the static graph of the trigram; with the graph of
its unigrams, and of the trigram pruned, each alone and with the trigram put on in the search (steps/decode_biglm.sh); with the pruned
one's lattices rescored (steps/lmrescore_const_arpa.sh); and with no graph of both, but the lexicon's half and the trigram composed in the
search (utils/mkgraph_lookahead.sh). With --lookahead-only nothing is done but that, for vocabularies whose other graphs would be too large.
Memory is that of all processes together. One job.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from scale import ROOT, make_lexicon, make_text, measure

from pykaldist.io.tables import read_lines


def languages(recipe: Path, work: Path, vocabulary: int, kwords: float, prune: float, large_only: bool) -> None:
    """Make lang_large, lang_pruned and lang_unigram, or the first alone, with the language models in lm_*.arpa."""
    words = make_lexicon(recipe, work / "dict", vocabulary)
    own = [line for line in read_lines(recipe / "data/local/dict/lexicon.txt") if not line.startswith("<")]
    with (work / "dict/lexicon.txt").open("a", encoding="utf-8") as stream:
        stream.write("\n".join(own) + "\n")
    make_text(work / "text", words, round(1000 * kwords))
    with (work / "text").open("a", encoding="utf-8") as stream:
        for copy in range(20):
            stream.writelines(f"{copy}-{line}\n" for line in read_lines(recipe / "data/train/text"))
    lexicon = work / "dict/lexicon.txt"
    for name, order in (("large", 3), ("unigram", 1))[:1 if large_only else 2]:
        used = measure(["utils/train_lm.sh", "--order", order, "--oov", "<UNK>", work / "text", lexicon, work / f"lm_{name}.arpa"], work,
                       work / f"lm_{name}.arpa")
        print(f"train_lm of order {order}: {used.cpu:.0f} s of CPU, {used.memory:.0f} MB", flush=True)
    if not large_only:
        pruned = work / "lm_pruned.arpa"
        measure([ROOT / "src/bin/ngram", "-order", 3, "-lm", work / "lm_large.arpa", "-prune", prune, "-write-lm", pruned], work, pruned)
    measure(["utils/prepare_lang.sh", "--phone-symbol-table", recipe / "data/lang/phones.txt", work / "dict", "<UNK>", work / "tmp",
             work / "lang"], work, work / "lang")
    for name in ("large", "unigram", "pruned")[:1 if large_only else 3]:
        lang = work / f"lang_{name}"
        used = measure(["utils/format_lm.sh", work / "lang", work / f"lm_{name}.arpa", lexicon, lang], work, lang)
        print(f"format_lm of the {name} model: {used.cpu:.0f} s of CPU, {used.memory:.0f} MB", flush=True)
    if large_only:
        return
    measure(["utils/build_const_arpa_lm.sh", work / "lm_large.arpa", work / "lang", work / "lang_carpa"], work, work / "lang_carpa")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "egs/an4/s5", help="recipe that has run (default: egs/an4/s5)")
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made, which is kept and gone on with")
    parser.add_argument("--vocabulary", type=int, default=20_000, help="random words (default: 20000)")
    parser.add_argument("--kwords", type=float, default=150.0, help="thousands of words of random text (default: 150)")
    parser.add_argument("--prune", type=float, default=1e-7, help="threshold of the pruned model (default: 1e-7)")
    parser.add_argument("--beam", type=float, default=13.0, help="of all searches (default: 13)")
    parser.add_argument("--lookahead-only", action="store_true", help="no other graph and no other decoding")
    args = parser.parse_args()
    recipe, work = args.recipe.resolve(), args.work.resolve()
    if not work.exists():
        work.mkdir(parents=True)
        for name in ("steps", "utils"):
            (work / name).symlink_to(ROOT / name)
        languages(recipe, work, args.vocabulary, args.kwords, args.prune, args.lookahead_only)
        shutil.copytree(recipe / "exp/tri1", work / "tri1", ignore=shutil.ignore_patterns("graph*", "decode*", "log", "*.gz", "fsts*"))
        for name in () if args.lookahead_only else ("large", "unigram", "pruned"):
            used = measure(["utils/mkgraph.sh", work / f"lang_{name}", work / "tri1", work / f"tri1/graph_{name}"], work,
                           work / f"tri1/graph_{name}")
            print(f"graph of the {name} model: {used.cpu:.0f} s of CPU, {used.memory:.0f} MB", flush=True)
    halves = work / "tri1/graph_lookahead"
    if not (halves / "HCLr.fst").exists():
        used = measure(["utils/mkgraph_lookahead.sh", work / "lang_large", work / "tri1", halves], work, halves)
        print(f"HCLr and Gr of the large model: {used.cpu:.0f} s of CPU, {used.memory:.0f} MB", flush=True)
    grammar = {name: work / f"lang_{name}/G.fst" for name in ("large", "unigram", "pruned")}
    test, options = recipe / "data/test", ["--nj", 1, "--beam", args.beam]
    print(f"{'decoding':34s} {'on disk,MB':>10s} {'memory,MB':>9s} {'CPU, s':>7s} {'RTF':>7s} WER")
    for name, graph, biglm in (("static", "large", False), ("unigrams", "unigram", False), ("unigrams, trigram put on", "unigram", True),
                               ("pruned", "pruned", False), ("pruned, trigram put on", "pruned", True))[:0 if args.lookahead_only else 5]:
        folder, files = work / f"tri1/decode_{graph}{'_biglm' * biglm}", [work / f"tri1/graph_{graph}/HCLG.fst"]
        command: list[object] = ["steps/decode.sh", *options, files[0].parent, test, folder]
        if biglm:
            files += [grammar["large"]]
            command = ["steps/decode_biglm.sh", *options, "--lattice-beam", 8, files[0].parent, grammar[graph], grammar["large"], test,
                       folder]
        row(name, files, command, work, folder)
    folder = work / "tri1/decode_lookahead"
    row("HCLr and Gr composed", [halves / "HCLr.fst", halves / "Gr.fst"], ["steps/decode.sh", *options, halves, test, folder], work, folder)
    if args.lookahead_only:
        return
    files = [work / "tri1/graph_pruned/HCLG.fst", work / "lang_carpa/G.carpa"]
    first, folder = work / "tri1/decode_pruned", work / "tri1/decode_rescored"
    rescoring = ["steps/lmrescore_const_arpa.sh", work / "lang_pruned", work / "lang_carpa", test, first, folder]
    row("pruned, lattices rescored", files, rescoring, work, folder)


def row(name: str, files: list[Path], command: list[object], work: Path, folder: Path) -> None:
    """Run a decoding, and print what it took and what came out."""
    used = measure(command, work, folder)
    logs = [found for path in folder.glob("log/decode.*.log")
            for found in re.findall(r"real-time factor assuming 100 frames/sec is ([\d.]+)", path.read_text(encoding="utf-8"))]
    wer = (folder / "best_wer").read_text(encoding="utf-8").split()[1]
    print(f"{name:34s} {sum(path.stat().st_size for path in files) / 1e6:10.1f} {used.memory:9.0f} {used.cpu:7.1f} "
          f"{logs[0] if logs else '':>7s} {wer}", flush=True)


if __name__ == "__main__":
    main()
