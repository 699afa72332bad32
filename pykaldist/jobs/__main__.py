"""The job runners' command: `python pykaldist/jobs run.pl ARGUMENTS...`, likewise queue.pl and the others; and what they start.

    python pykaldist/jobs guard PID MARK PARENT        waits until a script has ended, however that came, then ends all with its mark
    python pykaldist/jobs task FILE NUMBER             what a scheduler runs: a job, or one of an array, as FILE says
"""

from __future__ import annotations

import os
import sys
import types

if not __package__:  # run as a folder; pykaldist/__init__.py, which sets variables that jobs would inherit, is left out
    package = types.ModuleType("pykaldist")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["pykaldist"] = package

from pykaldist.jobs import guard, local, wrapper


def main(argv: list[str]) -> int:
    """Do what the command line says; returns the exit status."""
    name, words = argv[0], argv[1:]
    if name == "guard":
        guard.guard(int(words[0]), words[1], int(words[2]))
        return 0
    try:
        if name == "run.pl":
            return local.run(wrapper.parse(words, name), name)
        if name == "ssh.pl":
            from pykaldist.jobs import ssh

            return ssh.run(wrapper.parse(words, name))
        if name == "retry.pl":
            from pykaldist.jobs import retry

            return retry.run(words)
        from pykaldist.jobs import cluster

        return cluster.task(words[0], words[1]) if name == "task" else cluster.run(wrapper.parse(words, name), name)
    except ValueError as error:
        print(f"{name}: ERROR: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{name}: ERROR: {error.strerror}: {error.filename}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
