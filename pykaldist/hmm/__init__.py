"""Hidden Markov models: topology, transition model, tree, GMMs, training graphs, Viterbi alignment."""
