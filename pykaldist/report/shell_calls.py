"""The commands of a shell script, read without running any: for `utils/check_recipe.sh`.

This reads what recipes are written in: words and quotes, lists and pipes, comments, here-documents, commands within `$( )`, backquotes and
the pipes of rspecifiers (`"ark:copy-feats ... |"`). Variables are not expanded: a word keeps its `$name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")", "\n")
_REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|<>|>\||&>>|&>|[<>]&|<|>)")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "exec", "eval", "command", "nohup", "sudo",
                       "env", "builtin"))
_NO_COMMAND = frozenset(("for", "case", "select", "function", "fi", "done", "esac", "}", "in", "[[", "[", "test"))
_ASSIGNMENT = re.compile(r"\w+(?:\[[^]]*\])?\+?=")
_PIPE = re.compile(r"^(?:ark|scp)[\w,]*:\s*(?:\|\s*(?P<to>.+)|(?P<source>.+)\|\s*)$", re.DOTALL)
_RUNNER = re.compile(r"^(?:\$\{?\w*cmd\w*\}?|(?:.*/)?(?:run|queue|slurm|ssh|pbs|retry)\.pl|(?:.*/)?run\.sh)$")
_FUNCTION = re.compile(r"^\s*(?:function\s+)?([\w.-]+)\s*\(\)|^\s*function\s+([\w.-]+)", re.MULTILINE)


@dataclass
class Word:
    """A word of a command: its text without quotes, whether any of it was quoted, and the commands within it."""

    text: str = ""
    quoted: bool = False
    inner: list[str] = field(default_factory=list)


@dataclass
class Command:
    """A simple command: the line that it begins in, its name, and the words behind it."""

    line: int
    name: str
    words: list[Word]


def functions(text: str) -> set[str]:
    """The names of the functions that a script defines."""
    return {first or second for first, second in _FUNCTION.findall(text)}


def commands(text: str, line: int = 1) -> Iterator[Command]:
    """The simple commands of a script's text, those within others behind them; `line` is the number of its first line.

    What a job runner (`$train_cmd JOB=1:4 log command ...`, `utils/run.pl`) runs is a command too. Definitions, tests and the words of
    `for` and `case` are none.
    """
    for at, words in _simple(text, line):
        yield from _with_inner(at, words)


def _with_inner(line: int, words: list[Word]) -> Iterator[Command]:
    for word in words:
        if pipe := _PIPE.match(word.text) if word.quoted else None:
            yield from commands(pipe["to"] or pipe["source"], line)
        for inner in word.inner:
            yield from commands(inner, line)
    while words and (words[0].text in _KEYWORDS or _ASSIGNMENT.match(words[0].text)):
        if (set_to := _ASSIGNMENT.match(words[0].text)) and words[0].quoted and _is_runner(words[0].text[set_to.end():]):
            yield from commands(words[0].text[set_to.end():], line)  # train_cmd="queue.pl --mem 4G"
        words = words[1:]
    if words and words[0].text in ("export", "declare", "local", "readonly"):
        yield from _with_inner(line, words[1:])
    elif words and words[0].text not in _NO_COMMAND:
        yield Command(line, words[0].text, words[1:])
        if _RUNNER.match(words[0].text):
            for command in _run_by(words[1:]):
                yield from _with_inner(line, command)
        elif words[0].text in ("bash", "sh", "python", "python3", "perl") and len(words) > 1:
            yield from _with_inner(line, words[1:])


def _is_runner(text: str) -> bool:
    return bool(text.split()) and not text.startswith("$") and bool(_RUNNER.match(text.split()[0]))


def _run_by(words: list[Word]) -> list[list[Word]]:
    """What a job runner runs: the words behind its options, its range of jobs and the log, divided at pipes that are its own.

    Its redirections are left out.
    """
    i = 0
    while i < len(words) and (words[i].text.startswith("-") or re.match(r"\w+=[\d$]", words[i].text)):
        takes_value = words[i].text.startswith("-") and "=" not in words[i].text and words[i].text not in ("-V", "-v", "-sync")
        i += 2 if takes_value else 1
    run: list[list[Word]] = [[]]
    skip = False
    for word in words[i + 1:]:
        redirection = _REDIRECTION.match(word.text)
        if skip or redirection:
            skip = redirection is not None and redirection.end() == len(word.text)
        elif word.text in ("|", ";", "&&", "||"):
            run.append([])
        else:
            run[-1].append(word)
    return run


def _simple(text: str, line: int) -> Iterator[tuple[int, list[Word]]]:
    """The words of each simple command with the line that it begins in."""
    words: list[Word] = []
    begun, pos, skip = line, 0, False
    opened, within = 0, False  # parentheses, of subshells and definitions
    waiting: list[tuple[str, bool]] = []  # here-documents that begin behind this line: their ends, whether tabs are stripped
    while pos < len(text):
        char = text[pos]
        if text.startswith("\\\n", pos):
            pos, line = pos + 2, line + 1
        elif char in " \t\r":
            pos += 1
        elif char == "#":
            pos = _find(text, "\n", pos)
        elif redirection := _REDIRECTION.match(text, pos):
            if redirection[0] in ("<", ">") and text.startswith("(", redirection.end()):  # <(command) is a word
                word, pos = _word(text, pos)
                words.append(word)
                continue
            pos, skip = redirection.end(), True
            if redirection[0].endswith(("<<", "<<-")) and "<<<" not in redirection[0]:
                while text[pos:pos + 1] in (" ", "\t"):
                    pos += 1
                word, pos = _word(text, pos)
                waiting.append((word.text, redirection[0].endswith("-")))
                skip = False
        elif operator := next((op for op in _OPERATORS if text.startswith(op, pos)), None):
            opened += (operator == "(") - (operator == ")" and opened > 0)
            if words and not (operator == ")" and opened == 0 and not within):  # which ends a pattern of `case`
                yield begun, words
            within = opened > 0
            words, skip, pos = [], False, pos + len(operator)
            if operator == "\n":
                line += 1
                for end, tabs in waiting:
                    while pos < len(text):
                        stop = _find(text, "\n", pos)
                        body, pos, line = text[pos:stop], min(stop + 1, len(text)), line + 1
                        if (body.lstrip("\t") if tabs else body) == end:
                            break
                waiting = []
        else:
            if not words:
                begun = line
            word, word_end = _word(text, pos)
            line += text.count("\n", pos, word_end)
            pos = word_end
            if not skip:
                words.append(word)
            elif word.inner:
                words.append(Word(inner=word.inner))
            skip = False
    if words:
        yield begun, words


def _find(text: str, what: str, pos: int) -> int:
    found = text.find(what, pos)
    return len(text) if found < 0 else found


def _word(text: str, pos: int) -> tuple[Word, int]:
    """The word that begins at `pos`, and where it ends."""
    word = Word()
    start = pos
    while pos < len(text):
        char = text[pos]
        if char == "\\":
            word.text += "" if text[pos + 1:pos + 2] == "\n" else text[pos + 1:pos + 2]
            pos += 2
        elif char == "'":
            end = _find(text, "'", pos + 1)
            word.text, word.quoted, pos = word.text + text[pos + 1:end], True, end + 1
        elif char == '"':
            pos = _double(text, pos + 1, word)
        elif text.startswith(("$(", "${", "`"), pos) or (pos == start and text.startswith(("<(", ">("), pos)):
            pos = _expansion(text, pos, word)
        elif char in " \t\r\n;|&()<>":
            break
        else:
            word.text += char
            pos += 1
    return word, max(pos, start + 1)


def _double(text: str, pos: int, word: Word) -> int:
    """The rest of a word's part in double quotes; returns where it ends."""
    word.quoted = True
    while pos < len(text) and text[pos] != '"':
        if text[pos] == "\\":
            kept = text[pos + 1:pos + 2]
            word.text += "" if kept == "\n" else kept if kept in '"\\$`' else "\\" + kept
            pos += 2
        elif text.startswith(("$(", "${", "`"), pos):
            pos = _expansion(text, pos, word)
        else:
            word.text += text[pos]
            pos += 1
    return pos + 1


def _expansion(text: str, pos: int, word: Word) -> int:
    """`$( )`, `$(( ))`, `${ }`, backquotes or `<( )` from `pos`; what is run in it becomes the word's inner command."""
    if text[pos] == "`":
        end = pos + 1
        while end < len(text) and text[end] != "`":
            end += 2 if text[end] == "\\" else 1
        word.inner.append(text[pos + 1:end].replace("\\`", "`"))
    else:
        opening = text[pos + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth, end, quote = 1, pos + 2, ""
        while end < len(text):
            char = text[end]
            if char == "\\":
                end += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"" and opening == "(":
                quote = char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    break
            end += 1
        if opening == "(" and not text.startswith("$((", pos):
            word.inner.append(text[pos + 2:end])
    word.text += text[pos:end + 1] if text[pos] == "$" and text[pos + 1] == "{" else "$()"
    return min(end + 1, len(text))
