//! softroce: scenarios, their runner and report.
//!
//! | file | what |
//! |---|---|
//! | [`format`] | the scenario file: TOML in, plain data out |
//! | [`metric`] | what a run measures, by name |
//! | [`units`] | quantities with units |

pub mod format;
pub mod metric;
pub mod units;
