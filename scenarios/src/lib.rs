//! softroce: scenarios, their runner and report.
