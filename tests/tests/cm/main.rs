//! The communication manager: in the place of the Linux kernel's, and over queue pair 1 of two cards.

mod cards;
mod replay;
