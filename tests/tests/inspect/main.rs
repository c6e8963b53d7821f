//! What `softroce inspect` says of captures: those of the kernel's driver, held against what their
//! descriptions say was injected; forged ones that break one rule each; and hostile files.

mod forge;
mod given_up;
mod hostile;
mod kernel;
mod rules;
mod situations;
mod virtual_link;
