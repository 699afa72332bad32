# Sourced by utils/mkgraph.sh and mkgraph_lookahead.sh: what options they have in common stand for, their usage, and options without a value.
self_loop_scale=0.1
transition_scale=1.0
remove_oov=false

graph_usage() {
  cat <<EOF
  --self-loop-scale <scale>    # of the HMM's self-loop probabilities (default $self_loop_scale; chain models: 1.0)
  --transition-scale <scale>   # of its other transition probabilities (default $transition_scale)
  --remove-oov                 # leave out the paths with the word for unknown words, oov.txt of <lang-dir>
EOF
}

# `flags_of "--remove-oov --mono" "$@"`: sets remove_oov and mono to true where they are among the arguments; the others are left in `given`.
flags_of() {
  local flags=" $1 " argument name
  shift
  given=()
  for argument; do
    name=${argument#--}
    if [[ $flags == *" $argument "* ]]; then printf -v "${name//-/_}" true; else given+=("$argument"); fi
  done
}
