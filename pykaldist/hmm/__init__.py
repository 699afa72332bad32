"""Hidden Markov models with Gaussian mixtures: from transcripts and a lexicon to alignments.

Read in this order, each folder importing only from those before it:

    lang         the language directory and the topology of the phones' HMMs
    tree         states in context: decision trees, transition-ids, and how trees are grown
    gmm          Gaussian mixtures: likelihoods, statistics, estimation; MLLT
    adaptation   transforms that bring a speaker's features to the model: fMLLR, in a basis too
    alignments   training graphs, Viterbi alignment, and alignment directories
    training     monophones, triphones, LDA+MLLT, speaker-adaptive training
    sgmm         subspace Gaussian mixture models
    import_ali   alignments of other systems
    chain        the graphs of chain (LF-MMI) training
"""
