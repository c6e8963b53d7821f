//! Runs a plan: scenario in, report out.

use crate::format::Plan;
use crate::report::Report;
use std::path::PathBuf;

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where captures go; without it nothing is recorded.
    pub out: Option<PathBuf>,
    /// Links to record beside those that the file names.
    pub captures: Vec<String>,
    /// Runs at the same time; 0 for as many as the machine has processors.
    pub threads: usize,
}

/// Why a plan was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The simulator is not part of this build.
    #[error("this build reads and checks scenarios but has no simulator to run them")]
    NoSimulator,
}

/// Is told how many runs of how many are done.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Runs every point of `plan`, which is reported under `name`.
///
/// # Errors
///
/// If it cannot be run at all. An expectation that fails is not an error but a verdict.
pub fn run(
    name: &str,
    plan: &Plan,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, RunError> {
    let _ = (name, plan, options, progress);
    Err(RunError::NoSimulator)
}
