//! Connections by the communication manager: rdma-core's programs over the kernel's at one end, the same
//! exchanges over ours at the other. The requester is who asks for the connection.

mod datagrams;
mod losses;
mod many;
mod refusals;
mod rping;

use crate::equal;
use crate::linux::Play;
use softroce_sim::card::QpType;
use softroce_sim::cm::{CmConfig, Event, Reason, Request};
use softroce_sim::wire::cm::{CommId, Message};
use softroce_tests::interop::guest::Ended;
use softroce_tests::interop::station::Station;
use softroce_tests::interop::{Outcome, Setup, Side, World};
use std::time::Duration;

pub(crate) const ALL: &[&[(&str, Play)]] = &[
    rping::ALL,
    many::ALL,
    datagrams::ALL,
    refusals::ALL,
    losses::ALL,
];

const IPV4: Setup = Setup::NEW;
const IPV6: Setup = Setup {
    ipv6: true,
    ..Setup::NEW
};

/// As [`CmConfig::new`] has it, but for our answers and the peer's being waited for 0.27 s alone, not 4.3 s.
fn hasty(config: &mut CmConfig) {
    config.response_timeout = 16;
    config.packet_lifetime = 14;
}

/// Starts a program that listens in the guest, and waits until it does.
fn serve(world: &mut World, line: &str) -> Outcome {
    world.start(line)?;
    world.shell(
        "i=0; until rdma resource show cm_id | grep -q LISTEN; do \
         i=$((i+1)); [ $i -lt 100 ] || exit 1; sleep 0.05; done",
    )
}

/// Starts such a program and stops it, so that it answers nothing of what the kernel has for it.
fn serve_stopped(world: &mut World, line: &str) -> Outcome {
    serve(world, line)?;
    let program = line.split(' ').next().unwrap_or_default();
    world.shell(&format!("killall -STOP {program}"))
}

/// A connection that is asked of a `ucmatose` that is stopped, which has the request when this is done.
fn ask_stopped(world: &mut World) -> Outcome<CommId> {
    let there = IPV4.address(Side::Kernel);
    serve_stopped(world, &format!("ucmatose -b {there} -C 1"))?;
    let station = world.station()?;
    let link = station.link(QpType::Rc)?;
    let id = station.connect(link, there, many::SERVICE)?;
    let event = station.poll_event(Duration::from_millis(200))?;
    equal("event", event, None)?;
    Ok(id)
}

/// The program in the guest ends well and has printed all of this.
fn ends(world: &mut World, code: u64, lines: &[&str]) -> Outcome<Ended> {
    let ended = world.ended()?;
    if ended.code != code {
        let (was, text) = (ended.code, &ended.text);
        return Err(format!("Kernel: exit code {was}, {code} expected: {text}"));
    }
    for line in lines {
        if !ended.text.contains(line) {
            return Err(format!("Kernel: {line:?} is not in: {}", ended.text));
        }
    }
    Ok(ended)
}

fn unexpected<T>(event: &Event, wanted: &str) -> Outcome<T> {
    Err(format!("Card: {wanted} expected, {event:?}"))
}

fn requested(station: &mut Station) -> Outcome<(CommId, Request)> {
    match station.event()? {
        Event::ConnectRequest { id, request } => Ok((id, request)),
        other => unexpected(&other, "a request"),
    }
}

fn established(station: &mut Station, of: CommId) -> Outcome {
    match station.event()? {
        Event::Established { id } if id == of => Ok(()),
        other => unexpected(&other, "an established connection"),
    }
}

fn responded(station: &mut Station, of: CommId) -> Outcome {
    match station.event()? {
        Event::ConnectResponse { id, .. } if id == of => Ok(()),
        other => unexpected(&other, "a response"),
    }
}

fn disconnected(station: &mut Station, of: CommId) -> Outcome {
    match station.event()? {
        Event::Disconnected { id } if id == of => Ok(()),
        other => unexpected(&other, "the end of the connection"),
    }
}

fn refused(station: &mut Station, of: CommId, why: Reason) -> Outcome {
    match station.event()? {
        Event::Rejected { id, reason, .. } if id == of => equal("reason", reason, why),
        other => unexpected(&other, "a refusal"),
    }
}

/// How often `side` has sent a message of this name.
fn sent(world: &World, side: Side, name: &str) -> usize {
    let messages = world.messages();
    let of = |(from, m): &&(Side, Message)| *from == side && m.name() == name;
    messages.iter().filter(of).count()
}

/// No end has refused a connection, or a message about one.
fn nobody_says_no(world: &World) -> Outcome {
    for side in [Side::Card, Side::Kernel] {
        if sent(world, side, "REJ") > 0 {
            return Err(format!("{side:?} has sent REJ: {:?}", world.messages()));
        }
    }
    Ok(())
}
