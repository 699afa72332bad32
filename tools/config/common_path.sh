# Sourced by the path.sh of a recipe that was written for Kaldi, whose KALDI_ROOT is this project: its Python environment and programs.
[ -n "${KALDI_ROOT:-}" ] || { echo "common_path.sh: ERROR: KALDI_ROOT has to be set before." >&2; exit 1; }
. "$KALDI_ROOT/path.sh"
case ":$PATH:" in *":$PYKALDIST_ROOT/tools/flac:"*) ;; *) export PATH="$PATH:$PYKALDIST_ROOT/tools/flac" ;; esac  # where there is no other flac
