"""Scoring: WER, the sweep over LMWT and insertion penalty, details."""
