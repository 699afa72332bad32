"""Features: MFCC, fbank, CMVN, deltas, splicing, and the pipeline that a model reads them through."""
