# Sourced by the path.sh of a recipe that was written for Kaldi, whose KALDI_ROOT is this project: its Python environment and programs.
[ -n "${KALDI_ROOT:-}" ] || { echo "common_path.sh: ERROR: KALDI_ROOT has to be set before." >&2; exit 1; }
. "$KALDI_ROOT/path.sh"
case ":$PATH:" in *":$KALDI_ROOT/tools/python:"*) ;; *) export PATH="$PATH:$KALDI_ROOT/tools/python" ;; esac  # python2.7, where there is none
