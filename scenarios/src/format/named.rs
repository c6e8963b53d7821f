//! What a metric is asked of, by the names of a scenario.

use super::diagnostic::hint;
use super::document::Value;
use super::expect::Of;
use super::reader::Reader;
use super::scenario::Scenario;
use super::schema::Kind;
use crate::metric::{Metric, Scope};

/// What `name` is among the things that `metric` can be asked of.
fn find_of(scenario: &Scenario, metric: Metric, name: &str) -> Result<Of, String> {
    let network = &scenario.network;
    let scope = metric.scope();
    let traffic = || scenario.traffic.iter().position(|t| t.name == name);
    let found = match scope {
        Scope::Traffic => traffic().map(Of::Traffic),
        Scope::Card => traffic().map(Of::Traffic).or_else(|| {
            let host = network.hosts.iter().position(|h| h == name);
            host.map(Of::Host)
        }),
        Scope::Link => network.find(name).map(Of::Link),
        Scope::Queue => match name.rsplit_once('/') {
            None => network.find(name).map(Of::Link),
            Some((link, priority)) => {
                let priority = priority.parse().ok().filter(|&p: &u8| p < 8);
                let Some(priority) = priority else {
                    return Err("has no priority from 0 to 7 after its \"/\"".into());
                };
                network.find(link).map(|ways| Of::Queue(ways, priority))
            }
        },
        Scope::Host => network.hosts.iter().position(|h| h == name).map(Of::Host),
        Scope::Fault => scenario
            .faults
            .iter()
            .position(|f| f.name == name)
            .map(Of::Fault),
        Scope::Run => None,
    };
    let links = network.names();
    found.ok_or_else(|| {
        let loads = scenario.traffic.iter().map(|t| t.name.as_str());
        let (what, known): (_, Vec<&str>) = match scope {
            Scope::Traffic => ("a load", loads.collect()),
            Scope::Card => (
                "a load or a host",
                loads
                    .chain(network.hosts.iter().map(String::as_str))
                    .collect(),
            ),
            Scope::Link | Scope::Queue => (
                "a link or a direction",
                links.keys().map(String::as_str).collect(),
            ),
            Scope::Host => ("a host", network.hosts.iter().map(String::as_str).collect()),
            Scope::Fault => (
                "a fault",
                scenario.faults.iter().map(|f| f.name.as_str()).collect(),
            ),
            Scope::Run => {
                return format!("cannot be: \"{metric}\" is of the run as a whole");
            }
        };
        let hint = hint(name, known);
        format!("is not {what}, which \"{metric}\" is of{hint}")
    })
}

/// Reads what `metric` is asked of.
pub(super) fn of(reader: &Reader<'_>, scenario: &Scenario, metric: Metric) -> Option<Of> {
    let name = match &reader.node("of")?.value {
        Value::Text(s) => s,
        _ => {
            reader.say("of", format!("must be {}", Kind::Of));
            return None;
        }
    };
    match find_of(scenario, metric, name) {
        Ok(of) => Some(of),
        Err(why) => {
            reader.say("of", why);
            None
        }
    }
}
