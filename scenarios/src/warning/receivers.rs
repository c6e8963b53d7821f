//! Receivers whose pauses come to nothing.

use super::classes::{Classes, priorities};
use super::{Told, Warning, grouped, longest, needed, told};
use crate::format::Scenario;
use crate::format::receiver::Receiver;
use crate::format::topology::{End, Link};
use crate::units::Size;
use std::collections::BTreeMap;

pub(super) fn of(scenario: &Scenario, classes: &Classes) -> Vec<Warning> {
    let network = &scenario.network;
    let mut links: BTreeMap<usize, (&Link, End)> = BTreeMap::new();
    for link in &network.links {
        for (end, other) in [(link.a, link.b), (link.b, link.a)] {
            if let End::Host(n) = end {
                links.insert(n, (link, other));
            }
        }
    }
    let hosts = scenario.receivers.iter().zip(&network.hosts).enumerate();
    let all = hosts.filter_map(|(n, (receiver, name))| {
        let (receiver, &(link, other)) = (receiver.as_ref()?, links.get(&n)?);
        let all = of_host(scenario, classes, n, receiver, link, other);
        Some((name.as_str(), all))
    });
    grouped("receiver", "host", all)
}

fn of_host(
    scenario: &Scenario,
    classes: &Classes,
    host: usize,
    receiver: &Receiver,
    link: &Link,
    other: End,
) -> Vec<Told> {
    let came = || classes.receivers.get(&host).into_iter().flatten();
    let used = match other {
        End::Switch(s) => {
            let switch = &scenario.network.switches[s];
            let obeyed = switch.pfc.map_or(0, |pfc| pfc.priorities);
            if obeyed & receiver.priorities == 0 {
                return vec![told(
                    "pauses",
                    format!(
                        "switch {} obeys none of the receiver's pauses, because the priorities are not \"lossless\" there",
                        switch.name
                    ),
                )];
            }
            Classes::mask(switch, came()) & !(obeyed & receiver.priorities)
        }
        End::Host(_) => {
            let used = came().fold(0, |mask, sent| mask | 1 << sent.priority);
            used & !receiver.priorities
        }
    };
    if used != 0 {
        return vec![told(
            "pauses",
            format!(
                "packets come to it in {}, in which its receiver pauses nobody, so that they can be lost",
                priorities(used)
            ),
        )];
    }
    let room = receiver.buffer.0 - receiver.xoff.0;
    // The frame that crosses xoff is in the buffer as well.
    let longest = longest(scenario, link);
    let needed = needed(link, longest) + longest;
    if room < needed {
        return vec![told(
            "xoff",
            format!(
                "the receiver has {} above xoff, but {} may come from the frame on that makes it ask for a pause, so that packets can be \
                 lost: \"xoff\" must be less, or \"buffer\" more",
                Size(room),
                Size(needed)
            ),
        )];
    }
    Vec::new()
}
