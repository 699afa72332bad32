"""Neural networks, made of components with explicit forward and backward passes over one flat parameter buffer."""
