# Sourced by the scripts that decode: `score_decoded [options] <data-dir> <graph-dir> <decode-dir>` scores lattices as the recipe does.
score_decoded() {
  local script=local/score.sh
  [ -x $script ] || script=$PYKALDIST_ROOT/steps/score_kaldi.sh
  "$script" "$@"
}
