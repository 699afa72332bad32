"""Neural networks over one flat parameter buffer, in components with explicit forward and backward."""
