//! `udaddy`: a datagram service's queue pair is found, then datagrams go there and back.

use super::{IPV4, IPV6, ends, requested, serve, unexpected};
use crate::equal;
use crate::linux::Play;
use softroce_sim::card::{QpType, Work};
use softroce_sim::cm::Event;
use softroce_sim::wire::cm::{PortSpace, ServiceId};
use softroce_sim::wire::{Immediate, QpNumber};
use softroce_tests::interop::station::{DATAGRAM_QKEY, Link, Station, is_receive};
use softroce_tests::interop::{Outcome, Setup, Side, World};

pub(crate) const ALL: &[(&str, Play)] = &[
    ("CM: udaddy", |w, s| play(w, s, IPV4)),
    ("CM: udaddy with IPv6", |w, s| play(w, s, IPV6)),
];

pub(super) const SERVICE: ServiceId = ServiceId::ip(PortSpace::Udp, 7174);

/// Datagrams each way.
const COUNT: u64 = 5;
const SIZE: usize = 200;
/// In front of a datagram.
const GRH: usize = 40;

fn link(station: &mut Station) -> Outcome<Link> {
    let link = station.link(QpType::Ud)?;
    for i in 0..COUNT {
        station.recv(link, i, 4096 * (1 + i as usize), GRH + SIZE)?;
    }
    Ok(link)
}

/// As many datagrams as are to come; gives who sent them.
fn receive(station: &mut Station) -> Outcome<QpNumber> {
    let mut from = None;
    for _ in 0..COUNT {
        let c = station.done()?;
        if !is_receive(&c) {
            return Err(format!("Card: {c:?}"));
        }
        equal("bytes received", c.byte_len as usize, GRH + SIZE)?;
        let said = c.immediate.map(Immediate::get);
        equal("immediate data", said, Some(c.src_qp.get()))?;
        equal("sender", *from.get_or_insert(c.src_qp), c.src_qp)?;
    }
    from.ok_or_else(|| "nothing was received".into())
}

fn send(station: &mut Station, link: Link, setup: Setup, to: (QpNumber, u32)) -> Outcome {
    let gid = setup.address(Side::Kernel).into();
    let own = Immediate::from_be(station.number(link).get());
    for _ in 0..COUNT {
        let work = Work::SendImmediate(own);
        station.post_to(link, 100, work, 0, SIZE, Some((gid, to.0, to.1)))?;
    }
    for _ in 0..COUNT {
        station.done_of(100)?;
    }
    Ok(())
}

fn play(world: &mut World, side: Side, setup: Setup) -> Outcome {
    world.manage(setup, |_| {})?;
    let here = setup.address(Side::Card);
    let there = setup.address(Side::Kernel);
    let how = format!("-C {COUNT} -S {SIZE}");
    match side {
        Side::Kernel => {
            world.station()?.listen(SERVICE)?;
            world.start(&format!("udaddy -s {here} {how}"))?;
            let station = world.station()?;
            let (id, request) = requested(station)?;
            equal("service", request.service, SERVICE)?;
            equal("a connection", request.connection, None)?;
            equal("the asker", request.peer.ip(), there)?;
            let link = link(station)?;
            station.accept_datagrams(link, id)?;
            let from = receive(station)?;
            send(station, link, setup, (from, DATAGRAM_QKEY))?;
        }
        Side::Card => {
            serve(world, &format!("udaddy -b {there} {how}"))?;
            let station = world.station()?;
            let link = link(station)?;
            let of = station.resolve(there, SERVICE)?;
            let to = match station.event()? {
                Event::Resolved {
                    id, peer, qp, qkey, ..
                } if id == of && peer.ip() == there => (qp, qkey),
                other => return unexpected(&other, "a queue pair"),
            };
            equal("Q_Key", to.1, DATAGRAM_QKEY)?;
            send(station, link, setup, to)?;
            equal("who answers", receive(station)?, to.0)?;
        }
    }
    ends(world, 0, &["data transfers complete", "return status 0"]).map(|_| ())
}
