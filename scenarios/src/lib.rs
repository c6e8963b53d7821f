//! softroce: scenarios, their runner and report.
//!
//! | file | what |
//! |---|---|
//! | [`format`] | the scenario file: TOML in, plain data out |
//! | [`library`] | the scenarios that come with the program |
//! | [`report`] | what came out: data, text, JSON, tables, verdicts |
//! | [`metric`] | what a run measures, by name |
//! | [`law`] | formulas to compare with |
//! | [`units`] | quantities with units |

pub mod format;
pub mod law;
pub mod library;
pub mod metric;
pub mod report;
pub mod units;
