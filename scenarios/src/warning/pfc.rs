//! Lossless priorities of switches.

use super::classes::{Classes, Sent, priorities};
use super::{Place, Told, Warning, by_switch, grouped, hosts, longest, needed, told};
use crate::format::Scenario;
use crate::format::event::Going;
use crate::format::fault::{Action, Fault};
use crate::format::switch::{Pfc, Switch, Threshold, Trust};
use crate::format::topology::{End, Link};
use crate::units::{Size, print_span};
use softroce_sim::fabric::link::FRAME_OVERHEAD;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn of(scenario: &Scenario, classes: &Classes) -> Vec<Warning> {
    let network = &scenario.network;
    let switches = network.switches.iter().zip(by_switch(scenario)).enumerate();
    let mut all = grouped(
        "switch",
        "switch",
        switches.map(|(n, (switch, links))| {
            let all = match &switch.pfc {
                Some(pfc) => of_switch(scenario, classes, n, (switch, pfc), &links),
                None => Vec::new(),
            };
            (switch.name.as_str(), all)
        }),
    );
    all.extend(unequal(scenario, classes));
    all
}

fn of_switch(
    scenario: &Scenario,
    classes: &Classes,
    n: usize,
    (switch, pfc): (&Switch, &Pfc),
    links: &[&Link],
) -> Vec<Told> {
    let mut all = Vec::new();
    let pool = pool(switch, links);
    let full = matches!((pfc.threshold, pool), (Threshold::Bytes(b), Some(pool)) if b.0 >= pool);
    // What crosses the threshold is in headroom already if the pool was full before.
    let fills = pool.is_some_and(|pool| fills(scenario, classes, (switch, pfc), links, pool));
    let room = |link: &Link| {
        let longest = longest(scenario, link);
        let more = if fills {
            longest + u64::from(FRAME_OVERHEAD)
        } else {
            0
        };
        needed(link, longest) + more
    };
    // The port that wants most is told.
    if let Some(given) = pfc.headroom
        && let Some(link) = links.iter().max_by_key(|link| room(link))
        && given.0 < room(link)
    {
        all.push(told(
            "headroom",
            format!(
                "the headroom of a lossless priority is {given}, but {} may come in by a link of {} and {} after a \
                 pause was asked for, so that packets can be lost: \"headroom\" must be at least that",
                Size(room(link)),
                link.rate,
                print_span(link.delay),
            ),
        ));
    }
    if let (true, Threshold::Bytes(bytes), Some(pool)) = (full, pfc.threshold, pool) {
        all.push(told(
            "pfc-threshold",
            format!(
                "a port is to be paused above {bytes}, but headroom and reserves leave a pool of {} for all of them: \
                 none comes so far, and once the pool is full every port is paused that sends anything, whoever filled \
                 it; \"pfc-threshold\" must be less, or \"buffer\" more",
                Size(pool)
            ),
        ));
    }
    let most = pauses_above(switch, pfc, links);
    // What is lossy takes from the pool as well, and a full pool pauses.
    let others = switch.buffer.is_some() && is_lossy(classes, switch, pfc);
    match classes.outstanding(switch, pfc.priorities) {
        Some(0) => {
            let why = match switch.trust {
                Trust::Priority => String::new(),
                Trust::Dscp => " (it goes by their DSCPs)".to_string(),
            };
            let used = Classes::mask(switch, classes.senders.values().flatten());
            all.push(told(
                "lossless",
                format!(
                    "no load sends data in a lossless priority, so that it pauses nobody for any: to this switch all is in \
                     {}{why}",
                    priorities(used)
                ),
            ));
        }
        Some(bytes) if bytes <= most && !others && !copies(scenario) => all.push(told(
            threshold_key(pfc),
            format!(
                "all loads of lossless priorities together have at most {} outstanding, and a port is paused above {}: \
                 it never is",
                Size(bytes),
                Size(most)
            ),
        )),
        _ => {}
    }
    all.extend(runs_out(scenario, pfc, links));
    all.extend(misread(scenario, classes, n, (switch, pfc), links));
    all
}

/// True if some of what is sent is in a priority that is not lossless.
fn is_lossy(classes: &Classes, switch: &Switch, pfc: &Pfc) -> bool {
    Classes::mask(switch, classes.senders.values().flatten()) & !pfc.priorities != 0
}

/// True if packets are more than were sent: where switches flood, and by faults.
fn copies(scenario: &Scenario) -> bool {
    let doubles = |f: &Fault| matches!(f.injection.action, Action::Duplicate { .. });
    scenario.routes.iter().any(|r| r.going == Going::Flood) || scenario.faults.iter().any(doubles)
}

/// True if the pool can be so full that a frame finds no room in it, though its port is below its threshold.
fn fills(
    scenario: &Scenario,
    classes: &Classes,
    (switch, pfc): (&Switch, &Pfc),
    links: &[&Link],
    pool: u64,
) -> bool {
    let Threshold::Bytes(threshold) = pfc.threshold else {
        return true;
    };
    // A port passes its threshold by less than a frame.
    let frame = links.iter().map(|link| longest(scenario, link)).max();
    let counts = links.len() as u64 * u64::from(pfc.priorities.count_ones());
    let most = counts.saturating_mul(threshold.0.saturating_add(frame.unwrap_or(0)));
    is_lossy(classes, switch, pfc) || most >= pool
}

const fn threshold_key(pfc: &Pfc) -> &'static str {
    match pfc.threshold {
        Threshold::Bytes(_) => "pfc-threshold",
        Threshold::Share(_) => "pfc-share",
    }
}

/// Pauses that are over before they are asked for again.
fn runs_out(scenario: &Scenario, pfc: &Pfc, links: &[&Link]) -> Option<Told> {
    let spec = pfc.spec();
    // Where a pause is shortest for what it takes to ask for it.
    let all = links.iter().map(|link| {
        let rate = link.spec().rate;
        let (pause, again) = (spec.pause(rate), spec.asked_again(rate));
        let frame = rate.span(longest(scenario, link) + u64::from(FRAME_OVERHEAD));
        (pause, again, frame, link)
    });
    let short = all.filter(|&(pause, again, frame, _)| pause < again + frame);
    let (pause, again, frame, link) = short.min_by_key(|&(pause, ..)| pause)?;
    let when = if pause < again {
        "it runs out in between, and whoever was paused goes on though the port is above its threshold".to_string()
    } else {
        format!(
            "if a frame of {} is in its way, the pause runs out, and whoever was paused goes on though the port is above \
             its threshold",
            print_span(frame)
        )
    };
    let key = if pfc.refresh.is_some() {
        "pfc-refresh"
    } else {
        "pfc-quanta"
    };
    Some(told(
        key,
        format!(
            "a pause of {} quanta lasts {} on a link of {} and is asked for again after {}: {when}; with a longer \
             \"pfc-quanta\" or a shorter \"pfc-refresh\" it would last",
            pfc.quanta,
            print_span(pause),
            link.rate,
            print_span(again),
        ),
    ))
}

/// Pauses of a priority that whoever sends does not send in.
fn misread(
    scenario: &Scenario,
    classes: &Classes,
    n: usize,
    (switch, pfc): (&Switch, &Pfc),
    links: &[&Link],
) -> Vec<Told> {
    // By what is sent and the priority it is in where it comes from: from whom.
    let mut wrong: BTreeMap<(Sent, u8), (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
    for link in links {
        let other = if link.a == End::Switch(n) {
            link.b
        } else {
            link.a
        };
        // The priority there of what is sent.
        let before = |sent: Sent| match other {
            End::Host(_) => sent.priority,
            End::Switch(s) => sent.at(&scenario.network.switches[s]),
        };
        let is_wrong = |sent: &Sent| {
            let here = sent.at(switch);
            pfc.priorities & 1 << here != 0 && before(*sent) != here
        };
        let came: BTreeSet<Sent> = match other {
            End::Host(h) => classes.senders.get(&h).cloned().unwrap_or_default(),
            End::Switch(s) if classes.sent().any(|sent| is_wrong(&sent)) => {
                classes.between(scenario, s, n)
            }
            End::Switch(_) => BTreeSet::new(),
        };
        for sent in came.into_iter().filter(is_wrong) {
            let (hosts, switches) = wrong.entry((sent, before(sent))).or_default();
            match other {
                End::Host(h) => hosts.insert(h),
                End::Switch(s) => switches.insert(s),
            };
        }
    }
    let all = wrong.into_iter().map(|((sent, before), (from, switches))| {
        let name = |&s: &usize| scenario.network.switches[s].name.as_str();
        let switches: Vec<&str> = switches.iter().map(name).collect();
        let from = match (from.is_empty(), switches.is_empty()) {
            (false, true) => hosts(scenario, from),
            (true, _) => super::names_of("switch", &switches),
            (false, false) => format!(
                "{} and {}",
                hosts(scenario, from),
                super::names_of("switch", &switches)
            ),
        };
        told(
            "trust",
            format!(
                "what is sent with {sent} is in priority {} here but in priority {before} at {from}, so that the pauses \
                 hold nobody back there, and packets can be lost: \"priority\" of the cards must be an eighth of their \
                 \"dscp\", or \"trust\" the same at all switches",
                sent.at(switch),
            ),
        )
    });
    all.collect()
}

/// What headroom and reserves leave of the buffer for all ports; `None` if it is never full.
fn pool(switch: &Switch, links: &[&Link]) -> Option<u64> {
    switch.buffer?;
    let links: Vec<_> = links.iter().map(|link| link.spec()).collect();
    // A switch that has less than that is refused.
    Some(switch.spec().pool(&links).unwrap_or(0))
}

/// The most that may wait, of what came in by one port, before it is paused.
pub(super) fn pauses_above(switch: &Switch, pfc: &Pfc, links: &[&Link]) -> u64 {
    let pool = pool(switch, links);
    let shared = match (pfc.threshold, pool) {
        (Threshold::Bytes(bytes), pool) => bytes.0.min(pool.unwrap_or(u64::MAX)),
        // Where alpha (P - x) is x.
        (Threshold::Share(_), None) => u64::MAX,
        (Threshold::Share(alpha), Some(pool)) => {
            (pool as f64 * alpha.get() / (1.0 + alpha.get())) as u64
        }
    };
    shared.saturating_add(switch.reserved.0)
}

/// What loads send in a priority that only some switches take for lossless.
fn unequal(scenario: &Scenario, classes: &Classes) -> Vec<Warning> {
    let switches = &scenario.network.switches;
    let mut all: Vec<Warning> = Vec::new();
    let mut crossed = None;
    for sent in classes.sent() {
        let lossless = |s: &Switch| {
            s.pfc
                .is_some_and(|pfc| pfc.priorities & 1 << sent.at(s) != 0)
        };
        let first = switches.first().map(lossless);
        if switches.iter().all(|s| Some(lossless(s)) == first) {
            continue;
        }
        let crossed = crossed.get_or_insert_with(|| classes.crossed(scenario));
        let mut on_ways = (switches.iter().zip(crossed.iter()))
            .filter(|(_, crossed)| crossed.contains(&sent))
            .map(|(switch, _)| switch);
        let with = on_ways.clone().find(|s| lossless(s));
        let (Some(with), Some(without)) = (with, on_ways.find(|s| !lossless(s))) else {
            continue;
        };
        let (here, there) = (sent.at(with), sent.at(without));
        let told = if (here, there) == (sent.priority, sent.priority) {
            format!(
                "priority {here} is lossless at switch {} but not at switch {}",
                with.name, without.name
            )
        } else {
            format!(
                "what is sent with {sent} is lossless at switch {}, as priority {here}, but not at switch {}, as \
                 priority {there}",
                with.name, without.name
            )
        };
        let text = format!("{told}, which drops what it has no room for and obeys no pauses");
        if all.iter().all(|w| w.text != text) {
            let at = Place {
                section: "switch",
                name: without.name.clone(),
                key: "lossless",
            };
            all.push(Warning { text, at });
        }
    }
    all
}
