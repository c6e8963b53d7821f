//! Messages between the managers that are lost or repeated, and ends that are slow or give up.

use super::{
    IPV4, ask_stopped, ends, hasty, many, nobody_says_no, refused, requested, sent, serve,
    serve_stopped, unexpected,
};
use crate::equal;
use crate::linux::Play;
use softroce_sim::cm::{Event, Reason};
use softroce_sim::wire::cm::RejectReason;
use softroce_tests::interop::cable::{Deed, Fault, Kind};
use softroce_tests::interop::{Outcome, PATIENCE, Side, World};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[(&str, Play)] = &[
    ("CM: REQ, REP, RTU, DREQ, DREP lost or twice", lost),
    ("CM: the asked program is slow", slow),
    ("CM: who asks gives up", gives_up),
];

fn fault(world: &mut World, from: Side, name: &'static str, nth: usize, deed: Deed) {
    let kind = Kind::Message(name);
    world.fault(Fault {
        from,
        kind,
        nth,
        deed,
    });
}

/// Six connections, of each of which something else is lost or comes twice.
fn lost(world: &mut World, side: Side) -> Outcome {
    const COUNT: usize = 6;
    const SIZE: usize = 100;
    world.manage(IPV4, hasty)?;
    let (client, server) = (side, side.other());
    let faults = [
        (client, "REQ"),
        (server, "REP"),
        (client, "RTU"),
        (server, "DREQ"),
        (client, "DREP"),
    ];
    for (i, (from, name)) in faults.into_iter().enumerate() {
        fault(world, from, name, i, Deed::Lose);
        fault(world, from, name, (i + 3) % COUNT, Deed::Repeat);
    }
    let here = IPV4.address(Side::Card);
    let there = IPV4.address(Side::Kernel);
    let how = format!("-c {COUNT} -C {} -S {SIZE}", many::MESSAGES);
    let ids = match side {
        Side::Kernel => {
            world.station()?.listen(many::SERVICE)?;
            world.start(&format!("ucmatose -s {here} {how}"))?;
            let station = world.station()?;
            let ids = many::accept(station, COUNT, SIZE)?;
            many::exchange(station, &ids, SIZE, true)?;
            for &id in &ids {
                station.disconnect(id)?;
            }
            many::end_of(station, &ids)?;
            ids
        }
        Side::Card => {
            serve(world, &format!("ucmatose -b {there} {how}"))?;
            let station = world.station()?;
            let ids = many::connect(station, IPV4, COUNT, SIZE)?;
            many::exchange(station, &ids, SIZE, false)?;
            many::end_of(station, &ids)?;
            ids
        }
    };
    ends(world, 0, &["data transfers complete", "return status 0"])?;
    // Whoever has not heard that it is over asks once more.
    let limit = Instant::now() + PATIENCE;
    while world.struck() < 2 * faults.len() && Instant::now() < limit {
        let station = world.station()?;
        if let Some(event) = station.poll_event(Duration::from_millis(50))?
            && !matches!(event, Event::TimewaitExit { id } if ids.contains(&id))
        {
            return unexpected(&event, "silence");
        }
    }
    equal(
        "messages lost or repeated",
        world.struck(),
        2 * faults.len(),
    )?;
    for (from, name) in faults {
        let count = sent(world, from, name);
        if count <= COUNT {
            return Err(format!(
                "{from:?} has sent {name} {count} times: none again"
            ));
        }
    }
    Ok(())
}

/// Who asks again is told to wait, and waits.
fn slow(world: &mut World, side: Side) -> Outcome {
    const SIZE: usize = 100;
    world.manage(IPV4, |config| {
        hasty(config);
        config.max_retries = 2;
    })?;
    let here = IPV4.address(Side::Card);
    let there = IPV4.address(Side::Kernel);
    let how = format!("-C {} -S {SIZE}", many::MESSAGES);
    match side {
        Side::Kernel => {
            world.station()?.listen(many::SERVICE)?;
            world.start(&format!("ucmatose -s {here} {how}"))?;
            let (id, request) = requested(world.station()?)?;
            let limit = Instant::now() + PATIENCE;
            while sent(world, Side::Card, "MRA") == 0 && Instant::now() < limit {
                let event = world.station()?.poll_event(Duration::from_millis(50))?;
                equal("event", event, None)?;
            }
            let station = world.station()?;
            let link = many::link(station, SIZE)?;
            station.accept(link, id, request.peer)?;
            super::established(station, id)?;
            many::exchange(station, &[id], SIZE, true)?;
            station.disconnect(id)?;
            super::disconnected(station, id)?;
        }
        Side::Card => {
            serve_stopped(world, &format!("ucmatose -b {there} {how}"))?;
            let station = world.station()?;
            let link = many::link(station, SIZE)?;
            let id = station.connect(link, there, many::SERVICE)?;
            // Without being told, it would have given up after 1.2 s.
            let event = station.poll_event(Duration::from_secs(2))?;
            equal("event", event, None)?;
            world.shell("killall -CONT ucmatose")?;
            let station = world.station()?;
            super::responded(station, id)?;
            station.establish(id)?;
            super::established(station, id)?;
            many::exchange(station, &[id], SIZE, false)?;
            super::disconnected(station, id)?;
        }
    }
    ends(world, 0, &["data transfers complete", "return status 0"])?;
    match sent(world, side.other(), "MRA") {
        0 => Err(format!("{:?} has not sent MRA", side.other())),
        _ => nobody_says_no(world),
    }
}

/// The kernel's program dies, the card's lets go, before an answer comes; the other end hears of it.
fn gives_up(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, hasty)?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            world.station()?.listen(many::SERVICE)?;
            world.start(&format!("ucmatose -s {here} -C 1"))?;
            let (of, _) = requested(world.station()?)?;
            world.shell("killall -9 ucmatose")?;
            let station = world.station()?;
            let why = Reason::Rejected(RejectReason::TIMEOUT);
            refused(station, of, why)?;
            equal("phase", station.phase(of), None)
        }
        Side::Card => {
            let id = ask_stopped(world)?;
            world.station()?.abandon(id)?;
            world.shell("killall -CONT ucmatose")?;
            let event = world.station()?.poll_event(Duration::from_millis(500))?;
            equal("event", event, None)?;
            equal("REPs", sent(world, Side::Kernel, "REP"), 0)
        }
    }
}
