"""The frame store: packed features and targets, blocks and splits, minibatches."""
