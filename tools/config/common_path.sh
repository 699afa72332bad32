# Sourced by the path.sh of a recipe that was written for Kaldi, whose KALDI_ROOT is this project: its Python environment and programs.
[ -n "${KALDI_ROOT:-}" ] || { echo "common_path.sh: ERROR: KALDI_ROOT has to be set before." >&2; exit 1; }
. "$KALDI_ROOT/path.sh"
case $PATH in "$KALDI_ROOT/tools/python2:"*) ;; *) export PATH="$KALDI_ROOT/tools/python2:$PATH" ;; esac  # python, with the print of Python 2
for __tools in flac python; do  # flac, and python2.7, where there are none
  case ":$PATH:" in *":$KALDI_ROOT/tools/$__tools:"*) ;; *) export PATH="$PATH:$KALDI_ROOT/tools/$__tools" ;; esac
done
unset __tools
