//! Which captures are made, and what their files are called.

use super::watch::Recording;
use super::{Options, RunError};
use crate::format::Scenario;
use crate::format::fault::Capture;
use std::path::PathBuf;

/// The captures of one run of the scenario `name`, which has `place` among so many points: those that
/// the file names, then those that the options name. A link that is recorded in full already is not
/// recorded again.
pub(super) fn of(
    name: &str,
    scenario: &Scenario,
    place: Option<(usize, usize)>,
    options: &Options,
) -> Result<Vec<Recording>, RunError> {
    let Some(dir) = &options.out else {
        return Ok(Vec::new());
    };
    let mut captures = scenario.captures.clone();
    for link in &options.captures {
        let ways = scenario.network.find(link);
        let ways = ways.ok_or_else(|| RunError::UnknownLink(link.clone()))?;
        if captures
            .iter()
            .any(|c| c.ways == ways && c.packets.is_none())
        {
            continue;
        }
        let wanted = link.replace("->", "-to-").replace(':', "-");
        let taken = |name: &str| captures.iter().any(|c| c.name == name);
        let mut free = wanted.clone();
        let mut copy = 1;
        while taken(&free) {
            copy += 1;
            free = format!("{wanted}-{copy}");
        }
        captures.push(Capture {
            name: free,
            ways,
            packets: options.capture_packets,
        });
    }
    let prefix = prefix(name, place);
    Ok(captures
        .into_iter()
        .map(|capture| {
            let file = format!("{prefix}-{}.pcapng", capture.name);
            Recording {
                path: dir.join(&file),
                file,
                ways: capture.ways,
                packets: capture.packets,
            }
        })
        .collect())
}

/// What files of one run are called in front.
fn prefix(name: &str, place: Option<(usize, usize)>) -> String {
    match place {
        None => name.to_string(),
        Some((n, of)) => format!("{name}-{:0width$}", n + 1, width = of.to_string().len()),
    }
}

/// What the tables of one run are called in front, with their folder; nothing if there is none.
pub(super) fn tables(
    name: &str,
    place: Option<(usize, usize)>,
    options: &Options,
) -> Option<PathBuf> {
    let dir = options.out.as_ref()?;
    Some(dir.join(prefix(name, place)))
}
