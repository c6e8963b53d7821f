//! Set-ups of flow and congestion control that cannot do what they say: said in the report, and no error, because what is
//! wrong with them may be what a scenario is to show.

mod congestion;

pub(crate) use congestion::after;

use crate::format::Scenario;
use crate::format::pattern::Pattern;
use crate::format::request::Operation;
use crate::format::switch::{Pfc, Switch, Threshold};
use crate::format::topology::{End, Link};
use crate::format::traffic::Traffic;
use crate::units::{Ratio, Size};
use softroce_sim::fabric::link::FRAME_OVERHEAD;
use softroce_sim::fabric::{LinkSpec, Rate, headroom};
use std::collections::BTreeMap;

/// Bytes of an Ethernet frame around its IP packet, with a VLAN tag.
const ETHERNET: u64 = 22;

/// All there are, one for switches that are alike.
pub(crate) fn of(scenario: &Scenario) -> Vec<String> {
    let mut all = grouped(scenario, |n, switch| match &switch.pfc {
        Some(pfc) => of_switch(scenario, n, switch, pfc),
        None => Vec::new(),
    });
    all.extend(unequal(scenario));
    all.extend(receivers(scenario));
    all.extend(congestion::of(scenario));
    all
}

/// What there is to say of each switch, once for those that are alike.
fn grouped(scenario: &Scenario, told: impl Fn(usize, &Switch) -> Vec<String>) -> Vec<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut order = Vec::new();
    for (n, switch) in scenario.network.switches.iter().enumerate() {
        for text in told(n, switch) {
            if !by_text.contains_key(&text) {
                order.push(text.clone());
            }
            by_text.entry(text).or_default().push(switch.name.clone());
        }
    }
    let all = order.into_iter().map(|text| {
        let names = by_text.remove(&text).unwrap_or_default();
        format!("{} {}: {text}", switches(&names), names_of(&names))
    });
    all.collect()
}

fn switches(names: &[String]) -> &'static str {
    if names.len() == 1 {
        "switch"
    } else {
        "switches"
    }
}

fn names_of(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > 4 => format!("{first} ... {last}"),
        _ => names.join(", "),
    }
}

/// The longest frame that a card of the scenario sends.
fn longest(scenario: &Scenario, link: &Link) -> u64 {
    let cards = scenario.cards.iter().map(|c| c.largest_packet()).max();
    cards.unwrap_or(0).min(link.mtu.0) + ETHERNET
}

/// What may come in by a link after its end has asked for a pause, with the frames that there are.
fn needed(scenario: &Scenario, link: &Link) -> u64 {
    let frame = longest(scenario, link) + u64::from(FRAME_OVERHEAD);
    let rate = Rate::from_bps(link.rate.0).unwrap_or(Rate::from_gbps(100));
    headroom(&LinkSpec::new(rate, link.delay), frame, frame)
}

fn at(link: &Link, end: End) -> bool {
    link.a == end || link.b == end
}

fn of_switch(scenario: &Scenario, n: usize, switch: &Switch, pfc: &Pfc) -> Vec<String> {
    let links = || {
        let all = scenario.network.links.iter();
        all.filter(|link| at(link, End::Switch(n)))
    };
    let mut all = Vec::new();
    // The port that wants most is told.
    if let Some(given) = pfc.headroom
        && let Some(link) = links().max_by_key(|link| needed(scenario, link))
        && given.0 < needed(scenario, link)
    {
        all.push(format!(
            "the headroom of a lossless priority is {given}, but {} may come in by a link of {} and {} after a pause \
             was asked for, so that packets can be lost",
            Size(needed(scenario, link)),
            link.rate,
            crate::units::print_span(link.delay),
        ));
    }
    let pool = pool(scenario, n, switch, pfc);
    if let (Threshold::Bytes(bytes), Some(pool)) = (pfc.threshold, pool)
        && bytes.0 >= pool
    {
        all.push(format!(
            "a port is paused above {bytes}, but headroom and reserves leave a pool of {} for all of them: it \
             fills up before any is paused",
            Size(pool)
        ));
    }
    let most = pauses_above(scenario, n, switch, pfc);
    match outstanding(scenario, pfc.priorities) {
        Some(0) => all.push(
            "no load sends in a lossless priority, so that it never pauses anybody".to_string(),
        ),
        Some(bytes) if bytes <= most => all.push(format!(
            "all loads of lossless priorities together have at most {} outstanding, and a port is paused above {}: it \
             never is",
            Size(bytes),
            Size(most)
        )),
        _ => {}
    }
    all
}

/// What headroom and reserves leave of the buffer for all ports; `None` if it is never full.
fn pool(scenario: &Scenario, n: usize, switch: &Switch, pfc: &Pfc) -> Option<u64> {
    let links = || {
        let all = scenario.network.links.iter();
        all.filter(|link| at(link, End::Switch(n)))
    };
    let ports = links().count() as u64;
    let priorities = u64::from(pfc.priorities.count_ones());
    // Without a number headroom is what the links need, for their longest frames and one more.
    let own = |link: &Link| {
        let frame = link.mtu.0 + ETHERNET + u64::from(FRAME_OVERHEAD);
        let rate = Rate::from_bps(link.rate.0).unwrap_or(Rate::from_gbps(100));
        headroom(&LinkSpec::new(rate, link.delay), frame, frame) + frame
    };
    let rooms: u64 = links()
        .map(|link| pfc.headroom.map_or_else(|| own(link), |h| h.0))
        .fold(0, u64::saturating_add)
        .saturating_mul(priorities);
    let reserves = switch.reserved.0.saturating_mul(8 * ports);
    // A switch that has less than that is refused.
    switch
        .buffer
        .map(|buffer| buffer.0.saturating_sub(rooms.saturating_add(reserves)))
}

/// The most that may wait, of what came in by one port, before it is paused.
fn pauses_above(scenario: &Scenario, n: usize, switch: &Switch, pfc: &Pfc) -> u64 {
    let pool = pool(scenario, n, switch, pfc);
    match (pfc.threshold, pool) {
        (Threshold::Bytes(bytes), pool) => bytes.0.min(pool.unwrap_or(u64::MAX)),
        // Where alpha (P - x) is x.
        (Threshold::Share(Ratio { .. }), None) => u64::MAX,
        (Threshold::Share(alpha), Some(pool)) => {
            (pool as f64 * alpha.get() / (1.0 + alpha.get())) as u64
        }
    }
}

/// The most bytes of frames that the loads in some priorities have outstanding, receivers that stand still
/// included; `None` if that is not known.
fn outstanding(scenario: &Scenario, priorities: u8) -> Option<u64> {
    let mut sum = 0u64;
    for load in &scenario.traffic {
        for &(from, to) in &load.pairs {
            let card = match load.operation {
                Operation::Read => &scenario.cards[to],
                _ => &scenario.cards[from],
            };
            let priority = match load.operation {
                Operation::Read => card.ack_priority,
                _ => card.priority,
            };
            if priorities & 1 << priority != 0 {
                let bytes = of_pair(load, card.mtu)?;
                sum = sum.saturating_add(bytes);
            }
        }
    }
    Some(sum)
}

fn of_pair(load: &Traffic, mtu: u16) -> Option<u64> {
    if load.pattern != Pattern::Pairs && load.pattern != Pattern::Incast {
        return None;
    }
    let packets = load.size.0.div_ceil(u64::from(mtu)).max(1);
    // Headers are at most 100 bytes.
    let message = load.size.0.saturating_add(packets.saturating_mul(100));
    let depth = u64::from(load.depth).saturating_mul(load.qps.into());
    Some(message.saturating_mul(depth))
}

/// A priority that loads use and that only some switches take for lossless.
fn unequal(scenario: &Scenario) -> Option<String> {
    let switches = &scenario.network.switches;
    let used = |p: u8| outstanding(scenario, 1 << p) != Some(0);
    (0..8).filter(|&p| used(p)).find_map(|p| {
        let lossless = |s: &&Switch| s.pfc.is_some_and(|pfc| pfc.priorities & 1 << p != 0);
        let with = switches.iter().find(lossless)?;
        let without = switches.iter().find(|s| !lossless(s))?;
        Some(format!(
            "priority {p} is lossless at switch {} but not at switch {}, which drops what it has no room for and obeys \
             no pauses",
            with.name, without.name
        ))
    })
}

/// Receivers whose pauses come to nothing.
fn receivers(scenario: &Scenario) -> Vec<String> {
    let network = &scenario.network;
    let mut all = Vec::new();
    for (n, receiver) in scenario.receivers.iter().enumerate() {
        let host = End::Host(n);
        let Some(receiver) = receiver else {
            continue;
        };
        let Some(link) = network.links.iter().find(|link| at(link, host)) else {
            continue;
        };
        let name = &network.hosts[n];
        let other = if link.a == host { link.b } else { link.a };
        if let End::Switch(s) = other {
            let obeyed = network.switches[s].pfc.map_or(0, |pfc| pfc.priorities);
            if obeyed & receiver.priorities == 0 {
                all.push(format!(
                    "host {name}: switch {} obeys none of its pauses, because the priorities are not lossless there",
                    network.switches[s].name
                ));
                continue;
            }
        }
        let room = receiver.buffer.0 - receiver.xoff.0;
        if room < needed(scenario, link) {
            all.push(format!(
                "host {name}: its receiver has {} above xoff, but {} may come after it has asked for a pause, so that \
                 packets can be lost",
                Size(room),
                Size(needed(scenario, link))
            ));
        }
    }
    all
}
