"""Watch a training while it runs: its workers, its speed, its losses, and when it will be done.

  pykaldist watch exp/dnn                # in the terminal, until the training ends or Ctrl-C
  pykaldist watch --serve true exp/dnn   # a page for the browser, at the address that is printed
  pykaldist watch --once true --json true exp/dnn   # once, for programs

It reads the training's folder and touches nothing in it, so that it works from any machine that sees the folder. The page is served to this
machine alone, and only who has the token in its address gets it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.options import boolean
from pykaldist.report.live import CLEAR, RUNNING, Onlooker, render_view
from pykaldist.report.live_server import LiveServer

PLAIN_INTERVAL_S = 10.0  # between views where the output is not a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, help="folder that steps/nnet/train.sh or steps/nnet/pretrain_dbn.sh writes")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks (default: 1)")
    parser.add_argument("--once", type=boolean, default=False, help="true: look once, and end")
    parser.add_argument("--json", type=boolean, default=False, help="true: print each view as a line of JSON")
    parser.add_argument("--serve", type=boolean, default=False, help="true: serve a page that follows the training, to this machine alone")
    parser.add_argument("--port", type=int, default=0, help="of the page (default: 0, any that is free)")


def run(args: argparse.Namespace) -> None:
    if args.interval <= 0:
        raise UserError(f"--interval {args.interval:g}: expected more than 0 seconds.")
    if args.port and not args.serve:
        raise UserError("--port is used with --serve true alone; leave it out.")
    onlooker = Onlooker(args.exp)
    onlooker.look()
    if args.serve:
        if args.once or args.json:
            raise UserError("--serve true excludes --once and --json; the page's own data are at /view of its address.")
        with LiveServer(onlooker, args.port) as server:
            print(f"watch: {server.address}  (Ctrl-C ends it)", flush=True)
            server.serve_forever()
    follow(onlooker, args.interval, args.once, args.json)


def follow(onlooker: Onlooker, interval: float, once: bool, as_json: bool) -> None:
    """Print views until the training does not run any more."""
    drawn = sys.stdout.isatty() and not as_json
    if once and onlooker.look().state == RUNNING:
        time.sleep(interval)  # a speed needs two looks
    while True:
        view = onlooker.look()
        if as_json:
            print(json.dumps(dataclasses.asdict(view)), flush=True)
        else:
            size = shutil.get_terminal_size((100, 40))
            print((CLEAR if drawn else "") + render_view(view, size.columns, size.lines), flush=True)
        if once or view.state != RUNNING:
            return
        time.sleep(interval if drawn or as_json else max(interval, PLAIN_INTERVAL_S))
