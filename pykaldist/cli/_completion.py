"""What a shell completes of `pykaldist`: verbs, and their options and values, as the verbs' own parsers have them."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

from pykaldist.options import boolean

BASH = r"""# Completion of pykaldist's verbs and options for bash, made by `pykaldist completion bash`.
_pykaldist() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "@VERBS@" -- "$word"))
    return
  fi
  case "$verb $before" in
@VALUES@
  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  COMPREPLY=()
  case "$word" in -*) ;; *) return ;; esac  # a file, which bash completes by itself
  case "$verb" in
@OPTIONS@
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _pykaldist pykaldist
"""
ZSH = r"""#compdef pykaldist
# Completion of pykaldist's verbs and options for zsh, made by `pykaldist completion zsh`.
_pykaldist() {
  local -a verbs
  verbs=(
@VERBS@
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
@OPTIONS@
    *) _files ;;
  esac
}
if [ "$funcstack[1]" = _pykaldist ]; then _pykaldist "$@"; else compdef _pykaldist pykaldist; fi
"""


@dataclass
class Completed:
    """An option: its name, the first sentence of its help, and the values that it takes, none where that may be anything."""

    name: str
    help: str
    takes_value: bool
    values: list[str] = field(default_factory=list)


def options_of(verb: str) -> list[Completed]:
    """The options of a verb, with those that `argparse` itself has; what is hidden in its help is left out."""
    parser = argparse.ArgumentParser(prog=verb)
    importlib.import_module(f"pykaldist.cli.{verb.replace('-', '_')}").add_arguments(parser)
    found = []
    for action in parser._actions:
        if not action.option_strings or action.help == argparse.SUPPRESS:
            continue
        values = ["true", "false"] if action.type is boolean else [str(value) for value in action.choices or ()]
        text = " ".join((action.help or "").replace("%%", "%").split())
        found += [Completed(name, text, action.nargs != 0, values) for name in action.option_strings if "=" not in name]
    return found


def bash(verbs: Iterable[str]) -> str:
    """The script for bash."""
    names, values, options = list(verbs), [], []
    for verb in names:
        found = options_of(verb)
        values += [f"    {shlex.quote(f'{verb} {one.name}')}) words={shlex.quote(' '.join(one.values))} ;;" for one in found if one.values]
        options.append(f"    {verb}) words={shlex.quote(' '.join(one.name for one in found))} ;;")
    return (BASH.replace("@VERBS@", " ".join(names)).replace("@VALUES@", "\n".join(values)).replace("@OPTIONS@", "\n".join(options)))


def zsh(verbs: dict[str, str]) -> str:
    """The script for zsh; `verbs` are their names and the first lines of their help."""
    described = [f"    {shlex.quote(f'{verb}:{_sentence(text)}')}" for verb, text in verbs.items()]
    options = []
    for verb in verbs:
        lines = [shlex.quote(_specification(one)) for one in options_of(verb)]
        options.append(f"    {verb})\n      _arguments \\\n        " + " \\\n        ".join([*lines, "'*:file:_files'"]) + " ;;")
    return ZSH.replace("@VERBS@", "\n".join(described)).replace("@OPTIONS@", "\n".join(options))


def _specification(one: Completed) -> str:
    """An option as zsh's _arguments takes it: --name[help]:value:(true false)."""
    text = re.sub(r"([\[\]\\:])", r"\\\1", _sentence(one.help))
    if not one.takes_value:
        return f"{one.name}[{text}]"
    action = f"({' '.join(one.values)})" if one.values else "_files"
    return f"{one.name}[{text}]:value:{action}"


def _sentence(text: str) -> str:
    """The beginning of a help text, short enough for a line."""
    return re.split(r"[;.] | \(default", text)[0][:80]
