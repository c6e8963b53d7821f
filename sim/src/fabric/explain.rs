//! Why a request failed, from all sides: what its card says, what the network lost, what the peer's card
//! refused.

use super::counters::DropCause;
use super::host::Host;
use super::link::ChannelId;
use super::losses::{Kind, Loss, Why};
use super::machine::Machine;
use super::network::Network;
use super::observer::Observer;
use super::topology::HostId;
use crate::card::explain::{Cause, Failure, Step, Subject};
use crate::time::{Span, Time};
use crate::wire::Psn;
use std::fmt::Write;

/// A failure from all sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The host whose card says it.
    pub host: HostId,
    /// What the card says.
    pub failure: Failure,
    /// What was lost of the request and its answers while it was tried, in order.
    pub lost: Vec<LostTry>,
    /// The peer's side: why it refused, or what had put it into error before.
    pub peer: Option<(HostId, Failure)>,
    /// It gave up waiting, and neither a loss nor the peer tells why: what it waited for was late.
    pub late: bool,
}

/// A packet whose loss cost a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostTry {
    /// When; if packets in a row were lost with it, when the first of them was.
    pub time: Time,
    /// which try it was of, from 1, the first one since an answer last came.
    pub round: u32,
    /// What it was.
    pub kind: Kind,
    /// Its PSN.
    pub psn: Psn,
    /// Where: before, on or at the end of this channel.
    pub channel: ChannelId,
    /// Why.
    pub why: Why,
    /// The fault that did it, by its position among those of the channel.
    pub fault: Option<usize>,
}

/// Takes the failures that the cards of a network have to tell of, and explains them, in the order of
/// their times. A peer's refusal that another failure tells of is not told once more. Gives with them how
/// many failures the cards did not keep.
pub fn explain<O: Observer>(network: &mut Network<Machine, O>) -> (Vec<Explanation>, u64) {
    let mut failures = Vec::new();
    let mut beyond = 0;
    let hosts = network.hosts().len();
    for host in (0..hosts).map(HostId::new) {
        let card = network.host_mut(host).card_mut();
        while let Some(failure) = card.next_failure() {
            failures.push((host, failure));
        }
        beyond += card.lost_failures();
    }
    failures.sort_by_key(|(host, failure)| (failure.at, *host));
    (join(network, failures), beyond)
}

/// Explains failures of cards in a network, which are in the order of their times.
pub fn join<H: Host, O: Observer>(
    network: &Network<H, O>,
    failures: Vec<(HostId, Failure)>,
) -> Vec<Explanation> {
    let mut told = vec![false; failures.len()];
    let mut all = Vec::new();
    for (host, failure) in &failures {
        let peer = peers_side(failure, &failures);
        if let Some(peer) = peer {
            told[peer] |= failures[peer].1.status.is_none();
        }
        let peer = peer.map(|peer| failures[peer].clone());
        let lost = lost(network, failure);
        let gave_up = matches!(failure.cause, Cause::RetriesExceeded { .. });
        all.push(Explanation {
            host: *host,
            failure: failure.clone(),
            late: gave_up && lost.is_empty() && peer.is_none(),
            lost,
            peer,
        });
    }
    let mut told = told.into_iter();
    all.retain(|_| !told.next().unwrap_or(false));
    all
}

/// The failure of the peer's queue pair that a failure goes back to.
fn peers_side(failure: &Failure, all: &[(HostId, Failure)]) -> Option<usize> {
    let theirs = |other: &Failure| {
        Some(other.own) == failure.peer
            && other.peer == Some(failure.own)
            && other.at <= failure.at
            && match failure.cause {
                Cause::Refused { code, .. } => other.cause.nak() == Some(code),
                Cause::RetriesExceeded { .. } => true,
                _ => false,
            }
    };
    match failure.cause {
        Cause::Refused { .. } => all.iter().rposition(|(_, other)| theirs(other)),
        // What came first put it into error.
        _ => all.iter().position(|(_, other)| theirs(other)),
    }
}

/// What was lost in each try of a request that got no answer, or none in time.
fn lost<H: Host, O: Observer>(network: &Network<H, O>, failure: &Failure) -> Vec<LostTry> {
    let psn = match failure.cause {
        Cause::RetriesExceeded { psn, .. } => psn,
        // The tries whose answer came cost nothing; of others the timer tells.
        Cause::RnrRetriesExceeded { psn, .. } | Cause::Refused { psn, .. }
            if timer(failure).is_some() =>
        {
            psn
        }
        _ => return Vec::new(),
    };
    let (Some(peer), Subject::Send(_)) = (failure.peer, failure.subject) else {
        return Vec::new();
    };
    let requests = network.losses(failure.own.0, peer);
    let answers = network.losses(peer.0, failure.own);
    let mut all = Vec::new();
    for (n, (from, until)) in rounds(failure).into_iter().enumerate() {
        let round = n as u32 + 1;
        let within = |loss: &&Loss| from <= loss.time && loss.time < until;
        let of = |loss: &Loss, psn: Psn| LostTry {
            time: loss.time,
            round,
            kind: loss.kind,
            psn,
            channel: loss.channel,
            why: loss.why,
            fault: loss.fault,
        };
        // The first of what has no answer; behind it, that which would have asked for one.
        let request = requests
            .iter()
            .filter(within)
            .filter(|loss| loss.kind == Kind::Request)
            .filter_map(|loss| Some((loss.first_from(psn)?, loss)))
            .min_by_key(|(first, _)| first.after(psn));
        if let Some((first, loss)) = request {
            all.push(of(loss, first));
            if first == psn {
                continue;
            }
        }
        let answer = answers
            .iter()
            .filter(within)
            .filter_map(|loss| {
                let first = match loss.kind {
                    Kind::Ack | Kind::Nak | Kind::RnrNak => loss.first_from(psn)?,
                    Kind::ReadResponse => loss.covers(psn).then_some(psn)?,
                    Kind::Request | Kind::Cnp => return None,
                };
                Some((first, loss))
            })
            .min_by_key(|(first, loss)| (first.after(psn), loss.kind));
        if let Some((first, loss)) = answer {
            all.push(of(loss, first));
        }
    }
    all
}

/// When each try began and ended. The first began before the first sign of trouble, by no more than the
/// timer and the time that a timer had run for then.
fn rounds(failure: &Failure) -> Vec<(Time, Time)> {
    let timeout = match failure.cause {
        Cause::RetriesExceeded { timeout, .. } => timeout,
        _ => timer(failure),
    };
    let timeout = timeout.unwrap_or(Span::from_ps(u64::MAX));
    let first = failure.began().or(failure.tries.first().map(|t| t.at));
    let first = first.map_or(0, |at| at.as_ps().saturating_sub(timeout.as_ps()));
    let resends = failure.tries.iter().filter(|t| t.step == Step::Resend);
    let mut begins: Vec<Time> = resends.map(|t| t.at).collect();
    begins.insert(0, Time::from_ps(first));
    let ends = begins.clone().into_iter().skip(1).chain([Time::NEVER]);
    begins.into_iter().zip(ends).collect()
}

/// The timer, if it ran out in one of the tries.
fn timer(failure: &Failure) -> Option<Span> {
    failure.tries.iter().find_map(|t| match t.step {
        Step::Timeout(after) => Some(after),
        _ => None,
    })
}

impl Explanation {
    /// One line. `host` names hosts, `channel` directions of links, `fault` the fault at a position among
    /// those of a channel.
    pub fn line(
        &self,
        host: impl Fn(HostId) -> String,
        channel: impl Fn(ChannelId) -> String,
        fault: impl Fn(ChannelId, usize) -> Option<String>,
    ) -> String {
        let mut line = self.failure.to_string();
        for group in groups(&self.lost) {
            let LostTry {
                kind,
                psn,
                channel: way,
                why,
                fault: position,
                ..
            } = group[0];
            let what = match kind {
                Kind::Request => format!("PSN {psn}"),
                Kind::ReadResponse => format!("the answer with PSN {psn}"),
                Kind::Ack => format!("the ACK of PSN {psn}"),
                Kind::Nak => format!("the NAK of PSN {psn}"),
                Kind::RnrNak => format!("the RNR NAK of PSN {psn}"),
                Kind::Cnp => format!("the CNP of PSN {psn}"),
            };
            let _ = write!(line, "; {what} lost on {}", channel(way));
            let rounds: Vec<_> = group.iter().map(|t| t.round.to_string()).collect();
            let many = if rounds.len() == 1 { "" } else { "s" };
            // Of tries that are not remembered nobody knows the number.
            if !self.failure.earlier_tries {
                let _ = write!(line, " in round{many} {}", rounds.join(", "));
            }
            let named = position.and_then(|position| fault(way, position));
            match named {
                Some(name) if why == Why::Dropped(DropCause::Fault) => {
                    let _ = write!(line, " (fault {name})");
                }
                Some(name) => {
                    let _ = write!(line, " ({why} by fault {name})");
                }
                None => {
                    let _ = write!(line, " ({why})");
                }
            }
        }
        if let Some((at, theirs)) = &self.peer {
            let at = host(*at);
            let _ = match self.failure.cause {
                Cause::Refused { .. } => write!(line, "; at {at}: {}", theirs.cause),
                _ => write!(
                    line,
                    "; qp {} at {at} was in error from {} on: {}",
                    theirs.own.1, theirs.at, theirs.cause
                ),
            };
        }
        if self.late {
            line.push_str("; nothing of it was lost: it or its answer was on its way or waited");
        }
        line
    }
}

/// Losses that differ in their round alone, in the order of the first of each.
fn groups(lost: &[LostTry]) -> Vec<Vec<LostTry>> {
    let mut groups: Vec<Vec<LostTry>> = Vec::new();
    for &this in lost {
        let alike = |t: &LostTry| {
            (t.kind, t.psn, t.channel, t.why, t.fault)
                == (this.kind, this.psn, this.channel, this.why, this.fault)
        };
        match groups.iter_mut().find(|group| alike(&group[0])) {
            Some(group) => group.push(this),
            None => groups.push(vec![this]),
        }
    }
    groups
}
