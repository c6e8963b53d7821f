//! Every failed request says why: what the card and the network tell is held against what was done to it.

mod card;
mod network;
