//! The network as a whole, with expected values by arithmetic.

mod conservation;
mod faults;
mod groups;
mod outages;
mod pauses;
mod pools;
mod queues;
mod routes;
mod sharing;
mod storms;
mod timing;

use super::bare::route;
use super::*;
use crate::card::{Env, PriorityMask};
use crate::time::{Span, Time};
use crate::wire::pfc::Pfc;
use crate::wire::{
    Bth, Damage, Ecn, Ext, Gid, Opcode, Packet, Payload, Psn, QpNumber, Route, RouteId, RouteTable,
};
use std::collections::VecDeque;

/// A host that sends what it is told to, each packet when its time has come, and notes what it gets.
#[derive(Debug, Default)]
struct Scripted {
    now: Time,
    /// By time.
    todo: VecDeque<(Time, Packet)>,
    /// Arrivals: when, and what.
    got: Vec<(Time, Packet)>,
    /// Payloads of those.
    bytes: Vec<Vec<u8>>,
    advanced: Vec<Time>,
    /// Bytes to carry; the low byte of the PSN, as often as the payload's length says.
    carry: bool,
    /// The groups it hears.
    groups: Vec<Gid>,
}

impl Scripted {
    fn plan(&mut self, at: Time, packet: Packet) {
        let i = self.todo.partition_point(|&(t, _)| t <= at);
        self.todo.insert(i, (at, packet));
    }

    fn psns(&self) -> Vec<u32> {
        self.got.iter().map(|(_, p)| p.bth.psn().get()).collect()
    }
}

impl Host for Scripted {
    fn receive<E: Env>(&mut self, now: Time, packet: &Packet, _: &Route, env: &mut E) {
        self.now = now;
        self.got.push((now, *packet));
        if let Some(bytes) = env.payload(packet.payload) {
            self.bytes.push(bytes.to_vec());
        }
    }

    fn advance<E: Env>(&mut self, now: Time, _: &mut E) -> bool {
        self.now = now;
        self.advanced.push(now);
        true
    }

    fn next_packet<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet> {
        self.now = now;
        let mut due = self.todo.iter().take_while(|(at, _)| *at <= now);
        let i = due.position(|(_, p)| ready.contains(p.priority))?;
        let (_, mut packet) = self.todo.remove(i)?;
        if self.carry && !packet.payload.is_empty() {
            let byte = packet.bth.psn().get() as u8;
            packet.payload = env.stage(packet.payload.len(), |b| b.fill(byte));
        }
        Some(packet)
    }

    fn pending(&self) -> PriorityMask {
        match self.todo.front() {
            Some(&(at, _)) if at <= self.now => PriorityMask::ALL,
            _ => PriorityMask::NONE,
        }
    }

    fn hears(&self, group: Gid) -> bool {
        self.groups.contains(&group)
    }

    fn next_timeout(&self) -> Time {
        let later = self.todo.partition_point(|&(at, _)| at <= self.now);
        self.todo.get(later).map_or(Time::NEVER, |&(at, _)| at)
    }
}

/// A packet of 1000 bytes of payload: 1062 bytes of frame, 1082 on the wire.
fn packet(route: RouteId, psn: u32) -> Packet {
    Packet {
        ext: Ext::None,
        bth: Bth::new(Opcode::RC_WRITE_MIDDLE, QpNumber::new(5), Psn::new(psn)),
        route,
        payload: Payload::counted(1000),
        frame_len: FRAME,
        priority: 3,
        ecn: Ecn::Capable0,
        damage: Damage::None,
        hop_limit: 64,
    }
}

const FRAME: u16 = 1062;
/// How long such a frame lasts at 100 Gb/s.
const LASTS: u64 = 1082 * 80;
/// How long a link of [`link`] takes.
const DELAY: u64 = 1_000_000;

fn link() -> LinkSpec {
    LinkSpec::new(Rate::from_gbps(100), Span::from_us(1))
}

fn at(ps: u64) -> Time {
    Time::from_ps(ps)
}

/// What has happened, for comparing two runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Log(Vec<(Time, &'static str, usize, u32)>);

impl Log {
    fn note(&mut self, now: Time, what: &'static str, at: usize, sight: Sight<'_>) {
        self.0.push((now, what, at, sight.packet().bth.psn().get()));
    }

    /// When something happened on a channel.
    fn times(&self, what: &str, channel: ChannelId) -> Vec<u64> {
        let hits = self.0.iter();
        hits.filter(|e| e.1 == what && e.2 == channel.index())
            .map(|e| e.0.as_ps())
            .collect()
    }

    fn count(&self, what: &str) -> usize {
        self.0.iter().filter(|e| e.1 == what).count()
    }
}

impl Observer for Log {
    fn on_transmit(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        self.note(now, "transmit", channel.index(), sight);
    }

    fn on_deliver(&mut self, now: Time, host: HostId, sight: Sight<'_>) {
        self.note(now, "deliver", host.index(), sight);
    }

    fn on_drop(&mut self, now: Time, channel: ChannelId, _: DropCause, sight: Sight<'_>) {
        self.note(now, "drop", channel.index(), sight);
    }

    fn on_mark(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        self.note(now, "mark", channel.index(), sight);
    }

    fn on_pfc(&mut self, now: Time, channel: ChannelId, frame: &Pfc) {
        for p in 0..8 {
            if let Some(quanta) = frame.pause(p) {
                let what = if quanta == 0 { "go" } else { "stop" };
                self.0.push((now, what, channel.index(), p.into()));
            }
        }
    }

    fn on_pause(&mut self, now: Time, channel: ChannelId, priority: u8, paused: bool) {
        let what = if paused { "paused" } else { "resumed" };
        self.0.push((now, what, channel.index(), priority.into()));
    }

    fn on_fault(&mut self, record: &super::faults::FaultRecord) {
        let psn = record.bth.psn().get();
        self.0
            .push((record.time, "fault", record.channel.index(), psn));
    }
}

/// A network of scripted hosts.
struct World {
    topology: Topology,
    table: RouteTable,
    net: Network<Scripted, Log>,
}

impl World {
    fn new(topology: Topology) -> World {
        World::with(topology, 1, PayloadMode::Counted)
    }

    fn with(topology: Topology, seed: u64, payload: PayloadMode) -> World {
        let table = RouteTable::new();
        let config = Config {
            seed,
            payload,
            routes: table.clone(),
        };
        let net = Network::new(&topology, config, Log::default(), |_, _| Scripted {
            carry: payload == PayloadMode::Carried,
            ..Scripted::default()
        })
        .unwrap();
        World {
            topology,
            table,
            net,
        }
    }

    fn route(&self, from: usize, to: usize) -> RouteId {
        let hosts = self.topology.hosts();
        self.table.intern(route(&hosts[from], &hosts[to], 0xc000))
    }

    /// Has a host send packets at once, or as soon as its port is free.
    fn send(&mut self, from: usize, packets: impl IntoIterator<Item = Packet>) {
        let host = HostId::new(from);
        let now = self.net.now();
        let scripted = self.net.host_mut(host);
        scripted.now = now;
        for packet in packets {
            scripted.plan(now, packet);
        }
        self.net.kick(host);
    }

    /// Has a host send `n` packets to another.
    fn send_numbered(&mut self, from: usize, to: usize, n: u32) {
        let route = self.route(from, to);
        self.send(from, (0..n).map(|psn| packet(route, psn)));
    }

    fn channel(&self, from: &str, to: &str) -> ChannelId {
        self.topology.channel_between(from, to).unwrap()
    }

    fn drops(&self, from: &str, to: &str, cause: DropCause) -> u64 {
        self.net.counters(self.channel(from, to)).drops(cause)
    }

    fn run(&mut self) {
        assert!(self.net.run_until_idle(Time::NEVER));
        assert_eq!(self.net.in_flight(), 0);
        assert_eq!(self.net.pool().in_use(), 0);
    }

    fn psns(&self, host: usize) -> Vec<u32> {
        self.net.host(HostId::new(host)).psns()
    }

    fn arrivals(&self, host: usize) -> Vec<u64> {
        let got = &self.net.host(HostId::new(host)).got;
        got.iter().map(|(t, _)| t.as_ps()).collect()
    }
}

/// When the `n`-th frame sent without a gap from the beginning has come to the first switch.
fn come(n: u64) -> u64 {
    n * LASTS + DELAY
}

/// Priority 3 is lossless, and paused above so many bytes.
fn pfc(threshold: u64) -> SwitchSpec {
    SwitchSpec {
        pfc: Some(PfcSpec::new(
            PriorityMask(1 << 3),
            Threshold::Static(threshold),
        )),
        ..SwitchSpec::default()
    }
}
