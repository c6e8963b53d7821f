//! Why a plan is not run.

use crate::warning::Place;
use softroce_sim::card::CreateError;
use softroce_sim::fabric::TopologyError;
use softroce_sim::fabric::faults::FaultError;
use softroce_sim::fabric::machine::FlowError;
use std::path::PathBuf;

/// Why a plan was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The network cannot be built.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A card cannot be made.
    #[error("the card of host \"{host}\": {source}")]
    Card {
        /// The host.
        host: String,
        /// Why.
        source: CreateError,
    },
    /// A load cannot be set up.
    #[error("traffic \"{load}\": {source}")]
    Load {
        /// The load.
        load: String,
        /// Why.
        source: FlowError,
    },
    /// A fault makes no sense.
    #[error("fault \"{fault}\": {source}")]
    Fault {
        /// The fault.
        fault: String,
        /// Why.
        source: FaultError,
    },
    /// A fault is for packets of a load, where no loads run.
    #[error("fault \"{0}\" is for packets of one load, and no loads run here")]
    FaultOfLoad(String),
    /// A link to record is not there.
    #[error("no link is called \"{0}\"")]
    UnknownLink(String),
    /// A table of flows or of goodput cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Several files cannot be written, as when the disk is full: each for itself.
    #[error("{}", lines(.0))]
    Files(Vec<RunError>),
    /// A capture cannot be written.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn lines(errors: &[RunError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl RunError {
    /// What is to be told of these, the first of which is the first to have happened: every file that could not
    /// be written, or the one reason why nothing can be run.
    pub(super) fn of(errors: Vec<RunError>) -> Result<(), RunError> {
        let mut files = Vec::new();
        for error in errors {
            match error {
                RunError::Write { .. } | RunError::Capture { .. } => files.push(error),
                RunError::Files(more) => files.extend(more),
                other => return Err(other),
            }
        }
        match files.len() {
            0 => Ok(()),
            1 => files.pop().map_or(Ok(()), Err),
            _ => Err(RunError::Files(files)),
        }
    }

    /// What of the scenario it is about, if it is about one part of it.
    pub(crate) fn place(&self) -> Option<Place> {
        let (section, name, key) = match self {
            RunError::Topology(TopologyError::Switch { switch, .. }) => {
                ("switch", switch, "buffer")
            }
            RunError::Topology(TopologyError::Receiver { host, .. }) => ("receiver", host, "xoff"),
            RunError::Topology(_) => {
                return Some(Place {
                    section: "topology",
                    name: String::new(),
                    key: "kind",
                });
            }
            RunError::Card { host, .. } => ("card", host, "mtu"),
            RunError::Load { load, .. } => ("traffic", load, "name"),
            RunError::Fault { fault, .. } | RunError::FaultOfLoad(fault) => {
                match fault.strip_prefix("loss:") {
                    Some(_) => ("link", fault, "loss"),
                    None => ("fault", fault, "name"),
                }
            }
            RunError::UnknownLink(_)
            | RunError::Write { .. }
            | RunError::Capture { .. }
            | RunError::Files(_) => return None,
        };
        Some(Place {
            section,
            name: name.clone(),
            key,
        })
    }
}
