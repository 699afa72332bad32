"""Print a script by which a shell completes verbs, options and their values.

  pykaldist completion bash > ~/.local/share/bash-completion/completions/pykaldist
  pykaldist completion zsh > ~/.zfunc/_pykaldist      # with `fpath+=(~/.zfunc)` before compinit in ~/.zshrc

It is made from the verbs' own parsers, which takes some seconds; make it again after an update.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(args: argparse.Namespace) -> None:
    from pykaldist.cli import verbs
    from pykaldist.cli._completion import bash, zsh

    print(bash(verbs()) if args.shell == "bash" else zsh(verbs()), end="")
