# Sourced by the path.sh of some recipes that were written for Kaldi: what stands beside it under tools/ is on PATH.
case ":$PATH:" in
  *":$KALDI_ROOT/tools/sph2pipe_v2.5:"*) ;;
  *) export PATH="$PATH:$KALDI_ROOT/tools/sph2pipe_v2.5" ;;
esac
