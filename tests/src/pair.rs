//! Two cards and a network between them that loses, repeats, reorders and damages.
