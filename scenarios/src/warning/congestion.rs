//! Set-ups of congestion control that cannot do what they say, and congestion control of which a run shows that
//! it did nothing.

use super::{grouped, names_of};
use crate::format::Scenario;
use crate::format::fault::{Action, Fault};
use crate::format::request::Operation;
use crate::format::switch::{Ecn, Switch};
use crate::report::Run;
use crate::units::{Size, print_span};
use softroce_sim::card::CongestionControl;
use softroce_sim::card::congestion::dcqcn::AlphaUpdate;

use std::collections::BTreeSet;

/// Who sends data to whom, in which priority, and slows down for marks.
struct Data {
    /// Hosts that send any.
    senders: BTreeSet<usize>,
    /// Those of them that hear of marks, with the priority.
    heeding: BTreeSet<(usize, u8)>,
    /// Hosts that receive from those.
    receivers: BTreeSet<usize>,
}

impl Data {
    fn of(scenario: &Scenario) -> Data {
        let mut data = Data {
            senders: BTreeSet::new(),
            heeding: BTreeSet::new(),
            receivers: BTreeSet::new(),
        };
        for load in &scenario.traffic {
            for &(from, to) in &load.pairs {
                let (sender, receiver, priority) = match load.operation {
                    Operation::Read => (to, from, scenario.cards[to].ack_priority),
                    _ => (from, to, scenario.cards[from].priority),
                };
                data.senders.insert(sender);
                if scenario.cards[sender].congestion.heeds_marks() {
                    data.heeding.insert((sender, priority));
                    data.receivers.insert(receiver);
                }
            }
        }
        data
    }

    fn priorities(&self) -> u8 {
        self.heeding.iter().fold(0, |mask, &(_, p)| mask | 1 << p)
    }
}

fn hosts(scenario: &Scenario, hosts: impl IntoIterator<Item = usize>) -> String {
    let names: Vec<String> = hosts
        .into_iter()
        .map(|n| scenario.network.hosts[n].clone())
        .collect();
    let many = if names.len() == 1 { "host" } else { "hosts" };
    format!("{many} {}", names_of(&names))
}

/// What the scenario by itself shows.
pub(super) fn of(scenario: &Scenario) -> Vec<String> {
    let data = Data::of(scenario);
    let heeding: BTreeSet<usize> = data.heeding.iter().map(|h| h.0).collect();
    let mut all = grouped(scenario, |n, switch| match &switch.ecn {
        Some(ecn) => of_switch(scenario, &data, n, switch, ecn),
        None => Vec::new(),
    });
    let marked = |f: &Fault| f.action == Action::MarkEcn;
    let marks = scenario.network.switches.iter().any(|s| s.ecn.is_some());
    if !heeding.is_empty() && !marks && !scenario.faults.iter().any(marked) {
        all.push(format!(
            "{}: congestion = \"dcqcn\", but no switch marks packets (\"ecn-kmin\"), so that nothing ever slows down",
            hosts(scenario, heeding.iter().copied())
        ));
    }
    let silent = data.receivers.iter().copied();
    let silent: Vec<usize> = silent
        .filter(|&n| scenario.cards[n].notification.is_none())
        .collect();
    if !silent.is_empty() {
        all.push(format!(
            "{}: marks are not answered (cnp = false), so that whoever sends there with DCQCN is never told",
            hosts(scenario, silent)
        ));
    }
    all.extend(timers(scenario, &data, &heeding));
    all
}

fn of_switch(
    scenario: &Scenario,
    data: &Data,
    n: usize,
    switch: &Switch,
    ecn: &Ecn,
) -> Vec<String> {
    let mut all = Vec::new();
    if data.heeding.is_empty() {
        all.push(format!(
            "packets are to be marked above {}, but no card that sends has congestion = \"dcqcn\": none of them is \
             ECN-capable",
            ecn.kmin
        ));
        return all;
    }
    let used = data.priorities();
    let unmarked: Vec<String> = (0..8)
        .filter(|p| used & !ecn.priorities & 1 << p != 0)
        .map(|p| p.to_string())
        .collect();
    if !unmarked.is_empty() {
        all.push(format!(
            "nothing is marked in priority {}, in which cards with DCQCN send",
            unmarked.join(", ")
        ));
    }
    let lossless = switch.pfc.map_or(0, |pfc| pfc.priorities);
    let used = used & ecn.priorities;
    let most = switch
        .pfc
        .as_ref()
        .map(|pfc| super::pauses_above(scenario, n, switch, pfc));
    if used & lossless != 0
        && let Some(most) = most
        && ecn.kmin.0 >= most
    {
        all.push(format!(
            "packets are marked above {}, but a port is paused when {} that came in by it wait: where one port fills a \
             queue, PFC comes before ECN, and nobody slows down",
            ecn.kmin,
            Size(most)
        ));
    }
    if used & !lossless != 0 && ecn.kmin.0 >= switch.queue.0 {
        all.push(format!(
            "packets are marked above {}, but a queue holds {}: it drops before it marks",
            ecn.kmin, switch.queue
        ));
    }
    if let Some(buffer) = switch.buffer
        && ecn.kmin.0 >= buffer.0
    {
        all.push(format!(
            "packets are marked above {}, but all ports together have {buffer}",
            ecn.kmin
        ));
    }
    all
}

/// Alpha that falls between one CNP and the next though congestion lasts.
fn timers(scenario: &Scenario, data: &Data, heeding: &BTreeSet<usize>) -> Option<String> {
    let gaps = data.receivers.iter();
    let gap = gaps
        .filter_map(|&n| scenario.cards[n].notification)
        .map(|n| n.interval)
        .max()?;
    let hasty = |&n: &usize| match scenario.cards[n].congestion {
        CongestionControl::Dcqcn(d) => {
            d.alpha_update == AlphaUpdate::AtCnp
                && d.alpha_timer.as_ps() > 0
                && d.alpha_timer <= gap
        }
        _ => false,
    };
    let hasty: Vec<usize> = heeding.iter().copied().filter(hasty).collect();
    if hasty.is_empty() {
        return None;
    }
    Some(format!(
        "{}: \"dcqcn-alpha-timer\" is no longer than the {} between CNPs, so that alpha falls though congestion lasts",
        hosts(scenario, hasty),
        print_span(gap)
    ))
}

/// What a run has shown.
pub(crate) fn after(scenario: &Scenario, run: &Run) -> Vec<String> {
    let data = Data::of(scenario);
    if data.heeding.is_empty() {
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
