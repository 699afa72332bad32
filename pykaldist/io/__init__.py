"""Kaldi's files: tables, data directories, language directories, models; audio; atomic writing."""
