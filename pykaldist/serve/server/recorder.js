"use strict";
// The microphone's samples as 16-bit integers, in pieces of about a tenth of a second.
registerProcessor("recorder", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = new Int16Array(Math.floor(sampleRate / 10));
    this.filled = 0;
  }

  process([input]) {
    for (const sample of input[0] || []) {
      this.piece[this.filled++] = Math.max(-1, Math.min(1, sample)) * 32767;
      if (this.filled === this.piece.length) {
        this.port.postMessage(this.piece.buffer.slice(0));
        this.filled = 0;
      }
    }
    return true;
  }
});
