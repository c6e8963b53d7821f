//! `ucmatose`: connections by the dozen; the server sends on each, the client answers, the server ends them.

use super::{IPV4, IPV6, ends, nobody_says_no, serve};
use crate::equal;
use crate::linux::Play;
use softroce_sim::card::{QpType, Work};
use softroce_sim::cm::Event;
use softroce_sim::wire::cm::{CommId, PortSpace, ServiceId};
use softroce_tests::interop::station::{Link, Station, is_receive};
use softroce_tests::interop::{Outcome, Setup, Side, World};
use std::collections::BTreeSet;

pub(crate) const ALL: &[(&str, Play)] = &[
    ("CM: ucmatose, 12 connections", |w, s| {
        play(w, s, IPV4, 12, 100)
    }),
    ("CM: ucmatose with IPv6", |w, s| play(w, s, IPV6, 3, 3000)),
];

pub(super) const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7471);

/// Messages each way on each connection.
pub(super) const MESSAGES: usize = 4;

pub(super) fn link(station: &mut Station, size: usize) -> Outcome<Link> {
    let link = station.link(QpType::Rc)?;
    for _ in 0..MESSAGES {
        station.recv(link, 1, 1 << 16, size)?;
    }
    Ok(link)
}

/// Connections that the guest asks for, all of them established.
pub(super) fn accept(station: &mut Station, count: usize, size: usize) -> Outcome<Vec<CommId>> {
    let (mut ids, mut ready) = (Vec::new(), BTreeSet::new());
    while ready.len() < count {
        match station.event()? {
            Event::ConnectRequest { id, request } => {
                let link = link(station, size)?;
                station.accept(link, id, request.peer)?;
                ids.push(id);
            }
            Event::Established { id } if ids.contains(&id) => {
                ready.insert(id);
            }
            other => return super::unexpected(&other, "a connection"),
        }
    }
    equal("connections", ids.len(), count)?;
    Ok(ids)
}

/// Connections that the card asks for, all of them established.
pub(super) fn connect(
    station: &mut Station,
    setup: Setup,
    count: usize,
    size: usize,
) -> Outcome<Vec<CommId>> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let link = link(station, size)?;
        ids.push(station.connect(link, setup.address(Side::Kernel), SERVICE)?);
    }
    let mut ready = BTreeSet::new();
    while ready.len() < count {
        match station.event()? {
            Event::ConnectResponse { id, .. } => station.establish(id)?,
            Event::Established { id } if ids.contains(&id) => {
                ready.insert(id);
            }
            other => return super::unexpected(&other, "a connection"),
        }
    }
    Ok(ids)
}

/// All connections end at once, whoever asked for it.
pub(super) fn end_of(station: &mut Station, ids: &[CommId]) -> Outcome {
    let mut left: BTreeSet<_> = ids.iter().copied().collect();
    while !left.is_empty() {
        match station.event()? {
            Event::Disconnected { id } if left.remove(&id) => {}
            Event::TimewaitExit { id } if ids.contains(&id) => {}
            other => return super::unexpected(&other, "the end of a connection"),
        }
    }
    Ok(())
}

/// Sends on every connection, and waits for what is to go and to come on all of them.
pub(super) fn exchange(station: &mut Station, ids: &[CommId], size: usize, first: bool) -> Outcome {
    let all = ids.len() * MESSAGES;
    let sends = |station: &mut Station| {
        for &id in ids {
            let link = station.link_of(id).ok_or("Card: no queue pair")?;
            for _ in 0..MESSAGES {
                station.post(link, 2, Work::Send, 0, size)?;
            }
        }
        Ok::<(), String>(())
    };
    if first {
        sends(station)?;
    }
    let (mut out, mut came) = (0, 0);
    while came < all || (first && out < all) {
        let c = station.done()?;
        match is_receive(&c) {
            true => {
                equal("bytes received", c.byte_len as usize, size)?;
                came += 1;
            }
            false => out += 1,
        }
    }
    if !first {
        sends(station)?;
        for _ in 0..all {
            station.done_of(2)?;
        }
    }
    Ok(())
}

fn play(world: &mut World, side: Side, setup: Setup, count: usize, size: usize) -> Outcome {
    world.manage(setup, |_| {})?;
    let here = setup.address(Side::Card);
    let there = setup.address(Side::Kernel);
    let how = format!("-c {count} -C {MESSAGES} -S {size}");
    match side {
        Side::Kernel => {
            world.station()?.listen(SERVICE)?;
            world.start(&format!("ucmatose -s {here} {how}"))?;
            let station = world.station()?;
            let ids = accept(station, count, size)?;
            exchange(station, &ids, size, true)?;
            for &id in &ids {
                station.disconnect(id)?;
            }
            end_of(station, &ids)?;
        }
        Side::Card => {
            serve(world, &format!("ucmatose -b {there} {how}"))?;
            let station = world.station()?;
            let ids = connect(station, setup, count, size)?;
            exchange(station, &ids, size, false)?;
            end_of(station, &ids)?;
        }
    }
    ends(world, 0, &["data transfers complete", "return status 0"])?;
    nobody_says_no(world)
}
