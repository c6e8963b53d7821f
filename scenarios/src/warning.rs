//! Set-ups of flow and congestion control, and routes, that cannot do what they say: said in the report, and no error,
//! because what is wrong with them may be what a scenario is to show.
//!
//! | file | what |
//! |---|---|
//! | this one | what a warning is; alike ones told once |
//! | `classes` | who sends in which priority, and what each switch takes it for |
//! | `pfc` | lossless priorities of switches |
//! | `receivers` | receivers whose pauses come to nothing |
//! | `congestion` | marks and what is made of them |
//! | `routes` | routes of the file that lead in a circle, or nowhere |

mod classes;
mod congestion;
mod pfc;
mod receivers;
mod routes;

pub(crate) use congestion::after;

use crate::format::Scenario;
use crate::format::topology::{End, Link};
use classes::Classes;
use softroce_sim::fabric::headroom;
use softroce_sim::fabric::link::FRAME_OVERHEAD;
use std::collections::BTreeMap;

/// Bytes of an Ethernet frame around its IP packet, with a VLAN tag.
const ETHERNET: u64 = 22;

/// A set-up that cannot do what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    /// What is wrong, and what would be right.
    pub(crate) text: String,
    /// What it is about.
    pub(crate) at: Place,
}

/// A key of a section, for one of those that the section is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) section: &'static str,
    /// Of which switch or host; any if nothing is.
    pub(crate) name: String,
    pub(crate) key: &'static str,
}

/// What there is to say of one switch or host, to follow its name.
struct Told {
    key: &'static str,
    text: String,
}

fn told(key: &'static str, text: impl Into<String>) -> Told {
    let text = text.into();
    Told { key, text }
}

/// All there are, one for switches or hosts that are alike.
pub(crate) fn of(scenario: &Scenario) -> Vec<Warning> {
    let classes = Classes::of(scenario);
    let mut all = pfc::of(scenario, &classes);
    all.extend(receivers::of(scenario, &classes));
    all.extend(congestion::of(scenario, &classes));
    all.extend(routes::of(scenario));
    all
}

/// What is told of several of them, once for those that are alike: `what` they are, in the singular.
fn grouped<'a>(
    section: &'static str,
    what: &str,
    all: impl IntoIterator<Item = (&'a str, Vec<Told>)>,
) -> Vec<Warning> {
    let mut by_text: BTreeMap<(&'static str, String), Vec<&str>> = BTreeMap::new();
    let mut order = Vec::new();
    for (name, all) in all {
        for Told { key, text } in all {
            let names = by_text.entry((key, text)).or_insert_with_key(|text| {
                order.push(text.clone());
                Vec::new()
            });
            names.push(name);
        }
    }
    let all = order.into_iter().map(|key| {
        let names = by_text.remove(&key).unwrap_or_default();
        Warning {
            text: format!("{}: {}", names_of(what, &names), key.1),
            at: Place {
                section,
                name: names.first().copied().unwrap_or_default().to_string(),
                key: key.0,
            },
        }
    });
    all.collect()
}

/// `host h1`, `hosts h1, h2`, or the first few and how many more there are.
fn names_of(what: &str, names: &[&str]) -> String {
    const FIRST: usize = 3;
    let (s, plural) = match what.strip_suffix("ch") {
        Some(_) => ("", "es"),
        None => ("", "s"),
    };
    let many = if names.len() == 1 { s } else { plural };
    match names {
        [] => format!("no {what}"),
        _ if names.len() > FIRST + 1 => format!(
            "{what}{many} {} and {} more",
            names[..FIRST].join(", "),
            names.len() - FIRST
        ),
        _ => format!("{what}{many} {}", names.join(", ")),
    }
}

fn hosts(scenario: &Scenario, hosts: impl IntoIterator<Item = usize>) -> String {
    let name = |n: usize| scenario.network.hosts[n].as_str();
    let names: Vec<&str> = hosts.into_iter().map(name).collect();
    names_of("host", &names)
}

/// The links at each switch.
fn by_switch(scenario: &Scenario) -> Vec<Vec<&Link>> {
    let network = &scenario.network;
    let mut all = vec![Vec::new(); network.switches.len()];
    for link in &network.links {
        for end in [link.a, link.b] {
            if let End::Switch(n) = end {
                all[n].push(link);
            }
        }
    }
    all
}

/// The longest frame that a card of the scenario sends.
fn longest(scenario: &Scenario, link: &Link) -> u64 {
    let cards = scenario.cards.iter().map(|c| c.largest_packet()).max();
    cards.unwrap_or(0).min(link.mtu.0) + ETHERNET
}

/// What may come in by a link after its end has asked for a pause, with the frames that there are.
fn needed(link: &Link, longest: u64) -> u64 {
    let frame = longest + u64::from(FRAME_OVERHEAD);
    headroom(&link.spec(), frame, frame)
}
