# Sourced by scripts that decode: `graph_fst <graph-dir>` prints the file that its graph is in, or should be.

graph_fst() {
  if [ -f "$1/HCLr.fst" ] && [ ! -f "$1/HCLG.fst" ]; then
    echo "$1/HCLr.fst"  # of utils/mkgraph_lookahead.sh
  else
    echo "$1/HCLG.fst"
  fi
}
