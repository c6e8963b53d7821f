//! softroce: scenarios, their runner and report.
//!
//! | file | what |
//! |---|---|
//! | [`cli`] | the command line |
//! | `arguments` | values of options, refused alike by every command |
//! | [`mod@format`] | the scenario file: TOML in, plain data out |
//! | [`library`] | the scenarios that come with the program |
//! | [`run`] | a scenario in, a report out |
//! | [`report`] | what came out: data, text, JSON, tables, verdicts |
//! | [`metric`] | what a run measures, by name |
//! | [`law`] | formulas to compare with |
//! | `path` | ways between hosts, and how long an empty network takes |
//! | [`device`] | where verbs programs run: a device, or a scenario's network |
//! | `idle` | their loops while nothing comes |
//! | [`inspect`] | captures from any card |
//! | [`perf`] | bandwidth and latency between two verbs programs |
//! | `pingpong` | a first conversation between two verbs programs (Linux) |
//! | `tally` | what a card has counted, as those two report it |
//! | `plain` | text that others wrote, fit for a terminal |
//! | `warning` | set-ups that cannot do what they say |
//! | [`units`] | quantities with units |

mod arguments;
pub mod cli;
pub mod device;
pub mod format;
mod idle;
pub mod inspect;
pub mod law;
pub mod library;
pub mod metric;
mod path;
pub mod perf;
#[cfg(target_os = "linux")]
pub mod pingpong;
mod plain;
pub mod report;
pub mod run;
mod tally;
pub mod units;
mod warning;
