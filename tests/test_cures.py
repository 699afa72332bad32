"""Messages for users end in what helps: where that is a command, one that can be pasted.

All messages of UserError, and of what is derived from it, are read from the sources; constants in them are put in their place, and values
stand as {expressions}. A cure that says to make, train, pack, decode or install something has to say by which script, verb, option or
program. Scripts and verbs that are named have to be there.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from pykaldist.cli import verbs

ROOT = Path(__file__).resolve().parents[1] / "pykaldist"

# what can be pasted: an option, a script, a verb, a program's call, a variable, a command in quotation marks
COMMAND = re.compile(r"--(?:[a-z]|\{)|[\w}]\.(?:sh|py|pl)\b|\bpykaldist [a-z{]|(?:pip|apt-get) install |`[^`]+`|PYKALDIST_\w"
                     r"|\bCutSet\.|numpy\.save|\b(?:iconv|ffmpeg|lhotse|rm|cp) [-{(M]|ulimit -n|dmesg|echo >> |command -v "
                     r"|-n 2 hostname|\{known\.made_by\}")
OF_ONE_DASH = re.compile(r"(?<![\w-])-\{?[a-z]+")  # options of other toolkits' programs
ONE_DASH = ("programs/srilm", "programs/kenlm", "io/sphere", "io/flac")
WORK = re.compile(r"\b(?:make|run|train|align|decode|score|pack|extract|pretrain|install|fetch|unpack|convert|combine|estimate|prepare|"
                  r"compile|restore|copy|resample|rescore|download|sort)\b(?! (?:of|in|from|into another|director|data))", re.IGNORECASE)

# Work that none of these commands does: why, and parts of the messages.
WITHOUT = {
    "where audio, texts and licensed corpora come from is known to those who brought them here": (
        "fetch it again", "etch {", "fetch both again", "fetch the", "make it or fetch it", "unpack the", "unpack {"),
    "with what users made their own files is not known here": (
        "convert the audio again", "make the segments again", "is no readable CTM", "({error}); make it again",
        "make it first, or run in the"),
    "the command is the one that was given": (
        "the same command", "run the command again", "the next run goes on"),
    "something else is to be given": (
        "give both, or neither", "train on the store that", "copy these here", "copy the store", "the text of the data",
        "the text has no words"),
    "what is to be done depends on the user's models": (
        "rescore with models of the words", "train a better model"),
    "what may go is for the user to say": (
        "make room on that disk",),
    "a line of a file of the study": (
        "sequence training needs one", "which table {table} needs"),
}
# Messages that say what does not fit, and no more: which part of it is to be changed depends on what the user wants.
TELLING = {
    "it is not supported": (
        "not trained", "not computed", "not exported", "cannot be converted", "subtracts a mean already", "which all stay",
        "recognises audio as it comes", "needs itself at its own frame"),
    "numbers or names that do not fit": (
        "which are counted from 0", "not negative", "of a numerator of", "must be at least 1", "language directory that was made from",
        "needs a value", "different frame shifts", "has no volume for", "has no place for", "the silence phone too",
        "all jobs would share", "weights of a mixture", "class counts have", "words, 1 to", "have no {selection}", "of statistics of",
        "cannot be left out", "inputs, the network before", "from 1 up", "exclude each other", "features of shape",
        "come before the first", "is no UTF-8", "from standard input", "lhotse cannot read"),
    "an entry of a file, which is to be corrected": (
        "which is neither in", "has neither pdf-class nor", "a transition probability", "is not in {", "has no line for", "has no run {"),
    "what was given is empty, or lacks something": (
        "no features to take", "has no words", "has no word of", "has no matrices", "has no transcripts", "has no symbols", "is empty.",
        "no word of the text", "hold no word", "without silence phones", "a reference and a hypothesis", "nothing came out",
        "at least one phone", "has not {", "were asked for"),
    "the sentence around it has the cure": (
        "{url}", "is no sound archive", "recordings cannot be used", "too few to hold some out", "failed"),
    "a cluster's file says so": (
        "cluster {",),
}
VALUES_ALONE = re.compile(r"[\W\d_]*(?:(?:utterance|lattice of|speaker|line|field|after the edits|cannot be made an FST|iteration"
                          r"|the log-likelihood is|is of another version)[\W\d_]*)*")


def name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def shown(node: ast.expr, texts: dict[str, ast.expr]) -> str:
    """A message as it stands in a source: with the constants in `texts`, and {expression} for each value that a run puts in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(shown(part, texts) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return shown(node.value, texts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return shown(node.left, texts) + shown(node.right, texts)
    if isinstance(node, ast.IfExp):
        return shown(node.body, texts) + " " + shown(node.orelse, texts)
    called = name(node.func if isinstance(node, ast.Call) else node)
    if called in texts:
        return shown(texts[called], {key: value for key, value in texts.items() if key != called})
    return "{" + ast.unparse(node) + "}"


def assigned(nodes: list[ast.stmt]) -> dict[str, ast.expr]:
    """The texts that statements give names to."""
    return {target.id: node.value for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
            for target in node.targets if isinstance(target, ast.Name)}


@cache
def messages() -> dict[str, str]:
    """Each message, by file and line."""
    nodes = {path: list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in sorted(ROOT.rglob("*.py"))}
    above = {node.name: {name(base) for base in node.bases} for each in nodes.values() for node in each if isinstance(node, ast.ClassDef)}
    classes = {"UserError"}
    while more := {one for one, bases in above.items() if bases & classes} - classes:
        classes |= more
    modules = {path: assigned(each[0].body) for path, each in nodes.items() if isinstance(each[0], ast.Module)}
    shared = {key: value for own in modules.values() for key, value in own.items() if key.isupper()}
    for node in nodes[ROOT / "errors.py"]:
        if isinstance(node, ast.FunctionDef) and isinstance(last := node.body[-1], ast.Return) and isinstance(last.value, ast.JoinedStr):
            shared[node.name] = last.value
    found = {}
    for path, each in nodes.items():
        calls = [node for node in each if isinstance(node, ast.Call) and name(node.func) in classes and node.args]
        if calls:
            local = {key: text for key, text in assigned(each).items() if key in ("cure", "again", "made")}
            texts = {**shared, **modules[path], **local}
            found |= {f"{path.relative_to(ROOT)}:{node.lineno}": "".join(shown(one, texts) for one in node.args) for node in calls}
    return found


def pasted(where: str, text: str) -> bool:
    """Whether a message has something to paste."""
    return COMMAND.search(text) is not None or (where.startswith(ONE_DASH) and OF_ONE_DASH.search(text) is not None)


def bare(text: str) -> str:
    """A message without what stands in {expressions}."""
    while (shorter := re.sub(r"\{[^{}]*\}", "", text)) != text:
        text = shorter
    return text


def explained(text: str, reasons: dict[str, tuple[str, ...]]) -> bool:
    return any(part in text for parts in reasons.values() for part in parts)


def unused(reasons: dict[str, tuple[str, ...]], texts: list[str]) -> list[str]:
    """Parts of messages that no message has, so that they are to go."""
    return [part for parts in reasons.values() for part in parts if not any(part in text for text in texts)]


def test_a_cure_that_is_work_names_its_command() -> None:
    found = {where: text for where, text in messages().items() if not pasted(where, text) and WORK.search(bare(text).rsplit(";", 1)[-1])}
    assert {where: text for where, text in found.items() if not explained(text, WITHOUT)} == {}
    assert unused(WITHOUT, list(found.values())) == []


def test_a_message_has_a_cure_or_says_what_to_change() -> None:
    found = {where: text for where, text in messages().items()
             if not (pasted(where, text) or any(part in text for part in ("expected", ", line {")) or ";" in bare(text)
                     or VALUES_ALONE.fullmatch(bare(text)))}
    assert {where: text for where, text in found.items() if not explained(text, TELLING)} == {}
    assert unused(TELLING, list(found.values())) == []


def of_scripts() -> dict[str, str]:
    """The errors of shell scripts, and the commands of missing.sh, by file and line."""
    root, found = ROOT.parent, {}
    for path in sorted(path for folder in ("steps", "utils", "egs", "tools") for path in (root / folder).rglob("*.sh") if path.is_file()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := re.search(r"(?:ERROR: |missing_command=)(.*)", line):
                found[f"{path.relative_to(root)}:{number}"] = match[1]
    return found


def test_scripts_and_verbs_that_a_message_names_are_there() -> None:
    known, lost, errors = verbs(), [], of_scripts()
    assert len(errors) > 40
    for where, text in {**messages(), **errors}.items():
        lost += [f"{where}: {script}" for script in re.findall(r"(?<![\w/}])(?:steps|utils|egs)/[\w./*-]+\.(?:sh|py|pl)\b", text)
                 if not (ROOT.parent / script).is_file()]
        lost += [f"{where}: pykaldist {verb}" for verb in re.findall(r"\bpykaldist ([a-z]+(?:-[a-z]+)*)(?= |`|\.|\)|$)", text)
                 if verb not in known and verb not in ("file", "start")]  # "no pykaldist file", "let pykaldist start"
    assert lost == []
