"""Latency and memory of `transcribe --serve` with many clients at once, who speak in real time.

    tests/bench/run.sh transcribe_server MODEL DATA [--clients 1,10,50] [--seconds 20] [--piece 0.25]

Each client says utterances of the data directory one after the other, a piece of --piece seconds each --piece seconds, and waits for each
piece's answer. Latency is from a piece's last sample until its answer; the end's, from the last sample until the last result, with all
words. Clients are in another process; CPU and memory (RssAnon) are the server's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from websockets.sync.client import connect

from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir


def speak(url: str, samples: np.ndarray, rate: int, piece: float, seconds: float, begin: float, latencies: list[float],
          ends: list[float]) -> None:
    """One client; adds its latencies to `latencies`, and that of its end to `ends`."""
    size, content = round(piece * rate), samples.astype("<i2")
    with connect(url, open_timeout=60) as client:
        client.send(json.dumps({"config": {"sample_rate": rate}}))
        time.sleep(max(0.0, begin - time.time()))
        for number in range(round(seconds / piece)):
            due = begin + (number + 1) * piece  # when its last sample is said
            time.sleep(max(0.0, due - time.time()))
            at = number * size % (len(content) - size)
            client.send(content[at:at + size].tobytes())
            client.recv(60)
            latencies.append(time.time() - due)
        client.send('{"eof": 1}')
        client.recv(60)
        ends.append(time.time() - due)


def clients(args: argparse.Namespace, count: int) -> tuple[list[float], list[float]]:
    """Speak as so many clients; the latencies, and those of the ends."""
    data = DataDir(args.data)
    samples, rate = [], 0
    for utt in data.utterances()[:20]:
        audio, rate = read_audio(data.wav_scp[utt])
        samples.append(audio)
    whole = np.concatenate(samples)
    latencies: list[float] = []
    ends: list[float] = []
    begin = time.time() + 2.0
    threads = [threading.Thread(target=speak, args=(args.url, np.roll(whole, -number * rate), rate, args.piece, args.seconds,
                                                    begin + args.piece * number / count, latencies, ends)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies, ends


def of_process(pid: int) -> tuple[float, float]:
    """MB of memory of its own, and seconds of CPU, of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(found[1]) / 1000, (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--clients", default="1,10,50", help="numbers of clients (default: 1,10,50)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that each speaks (default: 20)")
    parser.add_argument("--piece", type=float, default=0.25, help="seconds of a message (default: 0.25)")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.url:
        print(json.dumps(clients(args, int(args.clients))))
        return
    command = [sys.executable, "-m", "pykaldist", "transcribe", "--serve", "true", "--port", "0", "--max-clients", "200", str(args.model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = next(found[1] for line in server.stdout if (found := re.search(r"(http://\S+)", line))).replace("http", "ws", 1)
            print("clients  latency (s): median   95 %  worst   end: median  worst   CPU s / s of speech   MB (of which a client)")
            base = of_process(server.pid)[0]
            for count in args.clients.split(","):
                before = of_process(server.pid)[1]
                speaker = subprocess.Popen([sys.executable, __file__, str(args.model), str(args.data), "--clients", count, "--url", url,
                                            "--seconds", str(args.seconds), "--piece", str(args.piece)], stdout=subprocess.PIPE, text=True)
                most, said = 0.0, None
                while said is None:
                    most = max(most, of_process(server.pid)[0])
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        said = speaker.communicate(timeout=0.2)[0]
                found, ends = map(np.array, json.loads(said))
                spent = of_process(server.pid)[1] - before
                print(f"{count:>7} {np.median(found):20.3f} {np.quantile(found, 0.95):6.3f} {found.max():6.3f} {np.median(ends):13.3f} "
                      f"{ends.max():6.3f} {spent / (args.seconds * int(count)):21.4f} {most:6.0f} ({(most - base) / int(count):.1f})",
                      flush=True)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
