"""Scoring: word error rates, their sweep over language model weights and insertion penalties, and confidence intervals."""
