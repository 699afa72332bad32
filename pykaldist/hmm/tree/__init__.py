"""The decision trees of phones in context, and the transition model.

Read in this order: `tree.py`, from a window of phones to a pdf; `transition_states.py` and `transition_model.py`, Kaldi's
transition-ids; `h_transducer.py`, HMMs as a transducer; `phone_segments.py`, an alignment split into phones;
`context.py`, the window of each frame; then how a tree is grown: `gauss_stats.py`, `tree_stats.py`, `questions.py`, `build_tree.py`.
"""
