//! Set-ups of congestion control that cannot do what they say, and congestion control of which a run shows that
//! it did nothing.

use super::classes::{Classes, priorities};
use super::pfc::pauses_above;
use super::{Place, Told, Warning, by_switch, grouped, hosts, told};
use crate::format::Scenario;
use crate::format::fault::{Action, Fault};
use crate::format::switch::{Ecn, Switch, Trust};
use crate::format::topology::Link;
use crate::report::Run;
use crate::units::{Size, print_span};
use softroce_sim::card::CongestionControl;
use softroce_sim::card::congestion::dcqcn::AlphaUpdate;
use softroce_sim::time::Span;
use std::collections::BTreeMap;

/// What the scenario by itself shows.
pub(super) fn of(scenario: &Scenario, classes: &Classes) -> Vec<Warning> {
    let network = &scenario.network;
    let switches = network.switches.iter().zip(by_switch(scenario));
    let mut all = grouped(
        "switch",
        "switch",
        switches.map(|(switch, links)| {
            let all = match &switch.ecn {
                Some(ecn) => of_switch(classes, switch, ecn, &links),
                None => Vec::new(),
            };
            (switch.name.as_str(), all)
        }),
    );
    let marked = |f: &Fault| f.injection.action == Action::MarkEcn;
    let marks = network.switches.iter().any(|s| s.ecn.is_some());
    let heeding = || classes.heeding.keys().copied();
    if let Some(first) = heeding().next()
        && !marks
        && !scenario.faults.iter().any(marked)
    {
        all.push(at_card(
            scenario,
            first,
            "congestion",
            format!(
                "{}: congestion = \"dcqcn\", but no switch marks packets (\"ecn-kmin\"), so that nothing ever slows down",
                hosts(scenario, heeding())
            ),
        ));
    }
    let silent = classes.answering.keys().copied();
    let silent: Vec<usize> = silent
        .filter(|&n| scenario.cards[n].notification.is_none())
        .collect();
    if let Some(&first) = silent.first() {
        all.push(at_card(
            scenario,
            first,
            "cnp",
            format!(
                "{}: marks are not answered (cnp = false), so that whoever sends there with DCQCN is never told",
                hosts(scenario, silent)
            ),
        ));
    }
    all.extend(timers(scenario, classes));
    all
}

fn at_card(scenario: &Scenario, host: usize, key: &'static str, text: String) -> Warning {
    Warning {
        text,
        at: Place {
            section: "card",
            name: scenario.network.hosts[host].clone(),
            key,
        },
    }
}

fn of_switch(classes: &Classes, switch: &Switch, ecn: &Ecn, links: &[&Link]) -> Vec<Told> {
    let mut all = Vec::new();
    if classes.heeding.is_empty() {
        all.push(told(
            "ecn-kmin",
            format!(
                "packets are to be marked above {}, but no card that sends has congestion = \"dcqcn\": none of them is \
                 ECN-capable",
                ecn.kmin
            ),
        ));
        return all;
    }
    let used = Classes::mask(switch, classes.heeding.values().flatten());
    if used & !ecn.priorities != 0 {
        let why = match switch.trust {
            Trust::Priority => "",
            Trust::Dscp => " by their DSCPs",
        };
        all.push(told(
            "ecn-priorities",
            format!(
                "nothing is marked in {}, in which cards with DCQCN send{why}",
                priorities(used & !ecn.priorities)
            ),
        ));
    }
    let lossless = switch.pfc.map_or(0, |pfc| pfc.priorities);
    let used = used & ecn.priorities;
    let most = switch
        .pfc
        .as_ref()
        .map(|pfc| pauses_above(switch, pfc, links));
    if used & lossless != 0
        && let Some(most) = most
        && ecn.kmin.0 >= most
    {
        all.push(told(
            "ecn-kmin",
            format!(
                "packets are marked above {}, but a port is paused when {} that came in by it wait: where one port fills \
                 a queue, PFC comes before ECN, and nobody slows down",
                ecn.kmin,
                Size(most)
            ),
        ));
    }
    if used & !lossless != 0 && ecn.kmin.0 >= switch.queue.0 {
        all.push(told(
            "ecn-kmin",
            format!(
                "packets are marked above {}, but a queue holds {}: it drops before it marks",
                ecn.kmin, switch.queue
            ),
        ));
    }
    if let Some(buffer) = switch.buffer
        && ecn.kmin.0 >= buffer.0
    {
        all.push(told(
            "ecn-kmin",
            format!(
                "packets are marked above {}, but all ports together have {buffer}",
                ecn.kmin
            ),
        ));
    }
    all
}

/// Alpha that falls between one CNP and the next though congestion lasts.
fn timers(scenario: &Scenario, classes: &Classes) -> Vec<Warning> {
    // By sender: the longest gap between the CNPs of one who tells it.
    let mut gaps: BTreeMap<usize, Span> = BTreeMap::new();
    for (&receiver, senders) in &classes.answering {
        let Some(notification) = scenario.cards[receiver].notification else {
            continue;
        };
        for &sender in senders {
            let gap = gaps.entry(sender).or_insert(Span::ZERO);
            *gap = (*gap).max(notification.interval);
        }
    }
    let mut hasty: BTreeMap<Span, Vec<usize>> = BTreeMap::new();
    for (sender, gap) in gaps {
        if let CongestionControl::Dcqcn(d) = scenario.cards[sender].congestion
            && d.alpha_update == AlphaUpdate::AtCnp
            && d.alpha_timer.as_ps() > 0
            && d.alpha_timer <= gap
        {
            hasty.entry(gap).or_default().push(sender);
        }
    }
    let told = hasty.into_iter().map(|(gap, senders)| {
        at_card(
            scenario,
            senders[0],
            "dcqcn-alpha-timer",
            format!(
                "{}: \"dcqcn-alpha-timer\" is no longer than the {} between CNPs, so that alpha falls though congestion lasts",
                hosts(scenario, senders),
                print_span(gap)
            ),
        )
    });
    told.collect()
}

/// What a run has shown.
pub(crate) fn after(scenario: &Scenario, run: &Run) -> Vec<String> {
    if Classes::of(scenario).heeding.is_empty() {
        return Vec::new();
    }
    let sum =
        |f: fn(&crate::report::Counts) -> u64| run.hosts.iter().map(|h| f(&h.counts)).sum::<u64>();
    let queues = run.links.iter().flat_map(|w| &w.priorities);
    let marks: u64 = queues.map(|q| q.marks).sum();
    let came = sum(|c| c.marked_received);
    let (sent, received) = (sum(|c| c.cnps_sent), sum(|c| c.cnps_received));
    let ignored = sum(|c| c.cnps_ignored);
    let longest = run.links.iter().max_by_key(|w| w.queue_max);
    let told = if marks + came == 0 {
        let longest = longest.filter(|w| w.queue_max > 0).map_or_else(
            || "nothing had to wait".to_string(),
            |w| {
                let size = crate::metric::Unit::Size.show(w.queue_max as f64);
                format!("the longest queue was {size}, at {}", w.name)
            },
        );
        format!("DCQCN never came into action: no packet was marked; {longest}")
    } else if sent == 0 {
        format!("DCQCN never came into action: {marks} packets were marked, but no CNP was sent")
    } else if received == 0 {
        format!("DCQCN never came into action: {sent} CNPs were sent, but none came")
    } else if received == ignored {
        format!(
            "DCQCN never came into action: all {received} CNPs came to queue pairs that do not heed them"
        )
    } else {
        return Vec::new();
    };
    vec![told]
}
