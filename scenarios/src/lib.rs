//! softroce: scenarios, their runner and report.

pub mod inspect;
