"""The words that Vosk recognises in recordings, run by a Python that has the `vosk` package (and needs nothing else).

    python tests/decode/recognise_with_vosk.py <vosk-dir> <folder of utt.raw: 16-bit samples at 16 kHz>

Prints a line an utterance, and the seconds of CPU on stderr.
"""

import json
import sys
import time
from pathlib import Path

import vosk

BYTES = 8000  # a quarter of a second at a time, as a microphone would give it


def main(model_dir: str, folder: str) -> None:
    vosk.SetLogLevel(-1)
    model = vosk.Model(model_dir)
    begin = time.process_time()
    for path in sorted(Path(folder).glob("*.raw")):
        recogniser, audio, words = vosk.KaldiRecognizer(model, 16000), path.read_bytes(), []
        for start in range(0, len(audio), BYTES):
            if recogniser.AcceptWaveform(audio[start:start + BYTES]):  # an endpoint
                words.append(json.loads(recogniser.Result())["text"])
        words.append(json.loads(recogniser.FinalResult())["text"])
        print(path.stem, *" ".join(words).split(), flush=True)
    print(f"{time.process_time() - begin:.2f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
