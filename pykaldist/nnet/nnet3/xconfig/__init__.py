"""Networks as recipes describe them, in layers: `line`, `descriptors`, `layer`, the kinds of layers, `layers`, `convert`."""
