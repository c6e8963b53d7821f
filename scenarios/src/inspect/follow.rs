//! The flows of a capture: which packet belongs to which, which two make a connection, and marks and
//! congestion notifications.
//!
//! A flow is what one address sends to one queue pair of another, at one capture point. A connection
//! has two, and nothing in a packet says which: they are joined by the queue pair numbers of a CM
//! exchange if it is in the capture, else by the first response whose PSN only one request stream
//! between these addresses can have caused, at the same point if one is there. Where several fit,
//! later responses may tell; if none does, the responses are not checked, and a note says so.

use super::cm;
use super::copy::{Copy, since};
use super::finding::{Found, Rule, psns, put, put_at, span};
use super::messages::Piece;
use super::requests::{Request, Requests};
use super::responses::{Response, report_nak};
use softroce_sim::wire::capture::Stamp;
use softroce_sim::wire::cm::{CommId, Message};
use softroce_sim::wire::frame::Network;
use softroce_sim::wire::{Ecn, FrameView, Gid, Opcode, Operation, Psn, QpNumber, Service};
use std::collections::HashMap;

/// Request streams that one flow's responses are compared with in all before they are given up.
const PATIENCE: u32 = 1 << 14;
/// How far outside of what was sent a response may be to fit nearly: few of 2^24, so that two random
/// PSNs hardly ever meet.
const NEAR: i32 = 1 << 12;
/// A response this far from what its flow is joined with shows that the join was wrong.
const STRAY: i32 = 1 << 16;

/// Where packets were captured: interface of the file (the first of two that are the directions of
/// one link), and interface index of a cooked capture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Point {
    pub(super) interface: u32,
    pub(super) cooked: u32,
}

/// What a flow is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) point: Point,
    pub(super) src: Gid,
    pub(super) dst: Gid,
    pub(super) dest_qp: QpNumber,
}

/// A flow and what is known of it.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) key: Key,
    pub(super) service: Service,
    pub(super) requests: Requests,
    pub(super) peer: Option<usize>,
    /// Joined by a CM exchange.
    pub(super) by_cm: bool,
    patience: u32,
    ambiguous: u64,
    /// The interface of its first packet.
    pub(super) interface: u32,
    pub(super) packets: u64,
    pub(super) request_packets: u64,
    pub(super) response_packets: u64,
    pub(super) payload: u64,
    pub(super) first_time: Option<Stamp>,
    pub(super) last_time: Option<Stamp>,
    pub(super) marks: Marks,
    first_number: u64,
    last_number: u64,
    /// The last packet whose ICRC was bad.
    damaged: Option<(Psn, u64)>,
}

/// CE marks of a flow, and the CNPs that came back.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) ce: u64,
    pub(super) cnps: u64,
    first: Option<u64>,
    /// The oldest mark since the last CNP.
    waiting: Option<(u64, Option<Stamp>)>,
    /// From a mark to the next CNP, least and most, in picoseconds.
    delay: Option<(i128, i128)>,
}

/// What the analysis adds to a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) flow: Option<usize>,
    pub(super) round: Option<u32>,
}

/// A packet and where it was seen.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) view: &'a FrameView<'a>,
    pub(super) point: Point,
    pub(super) interface: u32,
    pub(super) number: u64,
    pub(super) time: Option<Stamp>,
    /// Its ICRC is good, or is not looked at.
    pub(super) sound: bool,
    /// A comment says that it was dropped or damaged behind this point.
    pub(super) dropped: bool,
}

/// All flows.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) all: Vec<Followed>,
    most: usize,
    by_key: HashMap<Key, usize>,
    /// By source and destination, at any point.
    by_route: HashMap<(Gid, Gid), Vec<usize>>,
    /// CM requests without a reply so far, by point, sender and connection.
    asked: HashMap<(Point, Gid, CommId), (QpNumber, Option<u32>)>,
    /// The other flow of a connection, and its path MTU, by CM.
    joined: HashMap<Key, (Key, Option<u32>)>,
    /// Packets of flows beyond the limit.
    pub(super) not_followed: u64,
}

impl Flows {
    pub(super) fn new(most: usize) -> Flows {
        Flows {
            all: Vec::new(),
            most,
            by_key: HashMap::new(),
            by_route: HashMap::new(),
            asked: HashMap::new(),
            joined: HashMap::new(),
            not_followed: 0,
        }
    }

    /// Takes a packet.
    pub(super) fn see(&mut self, seen: &Seen<'_>, found: &mut Found) -> Place {
        let (t, n) = (&seen.view.transport, &seen.view.network);
        let key = Key {
            point: seen.point,
            src: n.src(),
            dst: n.dst(),
            dest_qp: t.bth.dest_qp(),
        };
        let opcode = t.bth.opcode();
        let Some(at) = self.flow(key, opcode.service()) else {
            self.not_followed += 1;
            return Place::default();
        };
        let flow = &mut self.all[at];
        flow.tally(seen);
        let mut place = Place {
            flow: Some(at),
            round: None,
        };
        if !seen.sound {
            flow.damaged = Some((t.bth.psn(), seen.number));
            return place;
        }
        if flow.service == Service::Cnp {
            flow.service = opcode.service();
        }
        match (opcode.service(), opcode.is_response()) {
            (Service::Cnp, _) => self.notify(key, at, seen, found),
            (Service::Ud, _) => self.connect(key, seen),
            (_, _) if opcode.operation() == Operation::Unknown => {}
            (Service::Rc, true) => self.response(at, seen, found),
            (Service::Rc | Service::Uc, _) => place.round = Some(self.request(at, seen, found)),
            (service, _) => {
                if flow.packets == 1 {
                    let text = format!("{service:?} is decoded but its sequence is not followed");
                    put(found, Rule::NotFollowed, text);
                }
            }
        }
        if n.ecn() == Ecn::Experienced {
            self.all[at].marks.mark(seen);
        }
        place
    }

    /// The flow with `key`, made if there is room for it.
    fn flow(&mut self, key: Key, service: Service) -> Option<usize> {
        if let Some(&at) = self.by_key.get(&key) {
            return Some(at);
        }
        if self.all.len() >= self.most {
            return None;
        }
        let at = self.all.len();
        self.all.push(Followed::new(key, service));
        self.by_key.insert(key, at);
        self.by_route
            .entry((key.src, key.dst))
            .or_default()
            .push(at);
        if let Some(&(peer, mtu)) = self.joined.get(&key) {
            if let Some(mtu) = mtu {
                self.all[at].requests.learn_mtu(mtu);
            }
            if let Some(&other) = self.by_key.get(&peer) {
                self.join(at, other, true);
            }
        }
        Some(at)
    }

    fn join(&mut self, a: usize, b: usize, by_cm: bool) {
        for (one, other) in [(a, b), (b, a)] {
            self.all[one].peer = Some(other);
            self.all[one].by_cm = by_cm;
        }
        self.share_mtu(a, b);
    }

    fn part(&mut self, a: usize) {
        if let Some(b) = self.all[a].peer.take() {
            self.all[b].peer = None;
        }
    }

    fn share_mtu(&mut self, a: usize, b: usize) {
        let mtu = |i: usize| self.all[i].requests.messages.mtu;
        match (mtu(a), mtu(b)) {
            (Some(mtu), None) => self.all[b].requests.learn_mtu(mtu),
            (None, Some(mtu)) => self.all[a].requests.learn_mtu(mtu),
            _ => {}
        }
    }

    fn request(&mut self, at: usize, seen: &Seen<'_>, found: &mut Found) -> u32 {
        let t = &seen.view.transport;
        let flow = &mut self.all[at];
        flow.request_packets += 1;
        let request = Request {
            piece: Piece {
                opcode: t.bth.opcode(),
                psn: t.bth.psn(),
                payload: t.payload.len(),
                reth: t.ext.reth(),
            },
            copy: copy(seen),
            ack_req: t.bth.ack_req(),
            reliable: t.bth.opcode().service() == Service::Rc,
        };
        if let Some((_, number)) = flow.damaged.take_if(|d| d.0 == request.piece.psn) {
            let text = format!("retransmission: packet {number} with this PSN has a bad ICRC");
            put(found, Rule::Retransmission, text);
        }
        let round = flow.requests.see(&request, found);
        if let Some(peer) = flow.peer {
            self.share_mtu(at, peer);
        }
        round
    }

    fn response(&mut self, at: usize, seen: &Seen<'_>, found: &mut Found) {
        let t = &seen.view.transport;
        self.all[at].response_packets += 1;
        let response = Response {
            opcode: t.bth.opcode(),
            psn: t.bth.psn(),
            aeth: t.ext.aeth(),
            payload: t.payload.len(),
            copy: copy(seen),
        };
        let Some(peer) = self.peer(at, &response) else {
            report_nak(&response, found);
            return;
        };
        self.all[peer].requests.answer(&response, found);
        self.share_mtu(at, peer);
    }

    /// The flow whose requests this response answers.
    fn peer(&mut self, at: usize, r: &Response) -> Option<usize> {
        if let Some(peer) = self.all[at].peer {
            let requests = &self.all[peer].requests;
            let stray = requests.started
                && (r.psn.after(requests.limit()) > STRAY || requests.first.after(r.psn) > STRAY);
            if self.all[at].by_cm || !stray {
                return Some(peer);
            }
            self.part(at);
        }
        let Followed { key, patience, .. } = self.all[at];
        if patience == 0 {
            return None;
        }
        let candidates = self.by_route.get(&(key.dst, key.src))?;
        let mut best = ((false, 0), None, 0u32);
        for &other in candidates.iter().rev().take(patience as usize) {
            let Followed {
                peer,
                key: theirs,
                requests,
                ..
            } = &self.all[other];
            if peer.is_some() {
                continue;
            }
            // Another point counts only if none here does: a tap with a port for each direction.
            let fit = match fit(requests, r) {
                0 => continue,
                fit => (theirs.point == key.point, fit),
            };
            if fit > best.0 {
                best = (fit, Some(other), 1);
            } else if fit == best.0 {
                best.2 += 1;
            }
        }
        let cost = candidates.len() as u32;
        self.all[at].patience = patience.saturating_sub(cost);
        match best {
            (_, Some(other), 1) => {
                self.join(at, other, false);
                Some(other)
            }
            (_, Some(_), _) => {
                self.all[at].ambiguous += 1;
                None
            }
            _ => None,
        }
    }

    /// A datagram: if it is a CM message, it says which flows make a connection.
    fn connect(&mut self, key: Key, seen: &Seen<'_>) {
        // As many as there can be flows: the rest of a flood is not remembered.
        match cm::read(seen.view).map(|mad| mad.message) {
            Some(Message::Req(m)) if self.asked.len() < self.most => {
                let asker = (m.qp, cm::path_mtu(m.path_mtu));
                self.asked.insert((key.point, key.src, m.local_id), asker);
            }
            Some(Message::Rep(m)) if self.joined.len() < self.most => {
                let asked = (key.point, key.dst, m.remote_id);
                let Some((asker, mtu)) = self.asked.remove(&asked) else {
                    return;
                };
                let to_asker = Key {
                    dest_qp: asker,
                    ..key
                };
                let from_asker = Key {
                    src: key.dst,
                    dst: key.src,
                    dest_qp: m.qp,
                    ..key
                };
                self.joined.insert(to_asker, (from_asker, mtu));
                self.joined.insert(from_asker, (to_asker, mtu));
            }
            _ => {}
        }
    }

    /// A CNP: it is about the flow that goes the other way.
    fn notify(&mut self, key: Key, at: usize, seen: &Seen<'_>, found: &mut Found) {
        let marked = self.all[at].peer.or_else(|| {
            let back = self.by_route.get(&(key.dst, key.src))?;
            let oldest = |&&i: &&usize| self.all[i].marks.waiting.map_or(u64::MAX, |w| w.0);
            back.iter()
                .take(PATIENCE as usize)
                .min_by_key(oldest)
                .copied()
        });
        let mut text = format!("CNP to queue pair {:#08x}", key.dest_qp.get());
        if let Some(marked) = marked {
            let marks = &mut self.all[marked].marks;
            marks.cnps += 1;
            if let Some((number, time)) = marks.waiting.take() {
                text += &format!(", for the mark of packet {number}");
                if let Some(delay) = since(seen.time, time) {
                    text += &format!(" {} before", span(delay));
                    let (least, most) = marks.delay.unwrap_or((delay, delay));
                    marks.delay = Some((least.min(delay), most.max(delay)));
                }
            }
        }
        put(found, Rule::Cnp, text);
    }

    /// What remains to be said about flow `at` when the capture ends, at `time`. Findings name their packets.
    pub(super) fn end(&mut self, at: usize, time: Option<Stamp>, found: &mut Found) {
        let key = self.all[at].key;
        let answered = self.by_route.get(&(key.dst, key.src));
        let back = answered.is_some_and(|flows| {
            let response = |&i: &usize| self.all[i].response_packets > 0;
            flows.iter().take(PATIENCE as usize).any(response)
        });
        let other_way = answered.is_some();
        let flow = &mut self.all[at];
        flow.requests.end(time, found);
        let last = flow.last_number;
        let (paired, requests) = (flow.peer.is_some(), &flow.requests);
        if requests.started && requests.expects_answers {
            if !paired && !back {
                let text = "no response to these requests is in the capture: one direction only, or \
                            all was lost; answers are not checked";
                put_at(found, last, Rule::OneDirection, text);
            } else if paired {
                unanswered(requests, last, found);
            }
        }
        if !paired && flow.response_packets > 0 && flow.ambiguous > 0 {
            let text = format!(
                "{} responses fit the requests of several flows and are not checked",
                flow.ambiguous
            );
            put_at(found, flow.first_number, Rule::Ambiguous, text);
        }
        flow.marks.end(other_way, found);
    }
}

fn unanswered(requests: &Requests, last: u64, found: &mut Found) {
    let open = requests
        .acked
        .map_or(requests.first, |(psn, _)| psn.plus(1));
    if open.is_before(requests.next) {
        let text = format!(
            "{} sent and not acknowledged when the capture ends",
            psns(open, requests.next.minus(1))
        );
        let number = requests.find(open).map_or(last, |c| c.number);
        let text = match requests.ended_by {
            Some(nak) => format!("{text}; the NAK of packet {nak} ended the connection"),
            None => text,
        };
        put_at(found, number, Rule::Unacknowledged, text);
    }
    if requests.ended_by.is_some() {
        return;
    }
    if let Some(&(psn, number)) = requests.wanted.back() {
        let n = requests.wanted.len();
        let text = format!("AckReq with PSN {psn} is not answered ({n} in all)");
        put_at(found, number, Rule::AckReqUnanswered, text);
    }
}

/// How well a response fits a stream of requests: not (0), nearly, by its PSN, or by what was asked
/// for (3). Nearly is what was sent before the capture began, or never.
fn fit(requests: &Requests, r: &Response) -> u32 {
    let (before, behind) = (requests.first.after(r.psn), r.psn.after(requests.limit()));
    if !requests.started || before > NEAR || behind > NEAR {
        return 0;
    }
    if before > 0 || behind >= 0 {
        return 1;
    }
    let asked = if r.opcode.operation() == Operation::Acknowledge {
        requests.wanted.iter().any(|w| w.0 == r.psn)
    } else {
        requests.asks.iter().any(|a| a.holds(r.psn))
    };
    if asked { 3 } else { 2 }
}

fn copy(seen: &Seen<'_>) -> Copy {
    let t = &seen.view.transport;
    Copy {
        psn: t.bth.psn(),
        opcode: t.bth.opcode(),
        number: seen.number,
        time: seen.time,
        icrc: t.icrc,
        id: match &seen.view.network {
            Network::Ipv4(ip, _) => ip.identification,
            _ => 0,
        },
        hop_limit: seen.view.network.hop_limit(),
        dropped: seen.dropped,
    }
}

impl Followed {
    fn new(key: Key, service: Service) -> Followed {
        Followed {
            key,
            service,
            requests: Requests::new(),
            peer: None,
            by_cm: false,
            patience: PATIENCE,
            ambiguous: 0,
            interface: 0,
            packets: 0,
            request_packets: 0,
            response_packets: 0,
            payload: 0,
            first_time: None,
            last_time: None,
            marks: Marks::default(),
            first_number: 0,
            last_number: 0,
            damaged: None,
        }
    }

    fn tally(&mut self, seen: &Seen<'_>) {
        if self.packets == 0 {
            self.interface = seen.interface;
            self.first_number = seen.number;
            self.first_time = seen.time;
        }
        self.packets += 1;
        self.last_number = seen.number;
        self.last_time = seen.time.or(self.last_time);
        if seen.view.transport.bth.opcode() != Opcode::CNP {
            self.payload += seen.view.transport.payload.len() as u64;
        }
    }
}

impl Marks {
    fn mark(&mut self, seen: &Seen<'_>) {
        self.ce += 1;
        self.first.get_or_insert(seen.number);
        self.waiting.get_or_insert((seen.number, seen.time));
    }

    fn end(&self, other_way: bool, found: &mut Found) {
        let Some(first) = self.first else {
            return;
        };
        let mut text = format!("{} packets with CE from this one on", self.ce);
        if self.cnps > 0 {
            text += &format!(", {} CNPs came back", self.cnps);
        }
        if let Some((least, most)) = self.delay {
            text += &format!(", {} to {} after a mark", span(least), span(most));
        }
        put_at(found, first, Rule::CongestionExperienced, text);
        if self.cnps == 0 && other_way {
            let text = "no CNP followed, though the other direction is in the capture";
            put_at(found, first, Rule::NoCnp, text);
        }
    }
}
