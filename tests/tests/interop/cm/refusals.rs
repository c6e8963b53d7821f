//! Who asks is told no, and why.

use super::rping;
use super::{IPV4, ask_stopped, datagrams, ends, many, refused, requested, serve_stopped};
use crate::linux::Play;
use softroce_sim::card::QpType;
use softroce_sim::cm::Reason;
use softroce_sim::wire::cm::{RejectReason, SidrStatus};
use softroce_tests::interop::{Outcome, Side, World};

pub(crate) const ALL: &[(&str, Play)] = &[
    ("CM: nobody listens", nobody_listens),
    ("CM: nobody listens for datagrams", no_datagrams),
    ("CM: the program says no", program_says_no),
    ("CM: the program says no to datagrams", no_to_datagrams),
];

fn nobody_listens(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, |_| {})?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            world.start(&format!("ucmatose -s {here} -C 1"))?;
            ends(world, 8, &["RDMA_CM_EVENT_REJECTED, error: 8"]).map(|_| ())
        }
        Side::Card => {
            let station = world.station()?;
            let link = station.link(QpType::Rc)?;
            let of = station.connect(link, IPV4.address(Side::Kernel), rping::SERVICE)?;
            let why = Reason::Rejected(RejectReason::INVALID_SERVICE_ID);
            refused(station, of, why)
        }
    }
}

fn no_datagrams(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, |_| {})?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            world.start(&format!("udaddy -s {here} -C 1"))?;
            ends(world, 1, &["event: RDMA_CM_EVENT_UNREACHABLE, error: 1"]).map(|_| ())
        }
        Side::Card => {
            let station = world.station()?;
            let of = station.resolve(IPV4.address(Side::Kernel), datagrams::SERVICE)?;
            let why = Reason::Datagrams(SidrStatus::UNSUPPORTED);
            refused(station, of, why)
        }
    }
}

/// The card's program rejects; the kernel's dies with the request unanswered.
fn program_says_no(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, |_| {})?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            world.station()?.listen(many::SERVICE)?;
            world.start(&format!("ucmatose -s {here} -C 1"))?;
            let station = world.station()?;
            let (id, _) = requested(station)?;
            station.reject(id, b"not today")?;
            ends(world, 28, &["RDMA_CM_EVENT_REJECTED, error: 28"]).map(|_| ())
        }
        Side::Card => {
            let of = ask_stopped(world)?;
            world.shell("killall -9 ucmatose")?;
            let why = Reason::Rejected(RejectReason::CONSUMER);
            refused(world.station()?, of, why)
        }
    }
}

fn no_to_datagrams(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, |_| {})?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            world.station()?.listen(datagrams::SERVICE)?;
            world.start(&format!("udaddy -s {here} -C 1"))?;
            let station = world.station()?;
            let (id, _) = requested(station)?;
            station.reject(id, b"not today")?;
            ends(world, 2, &["event: RDMA_CM_EVENT_UNREACHABLE, error: 2"]).map(|_| ())
        }
        Side::Card => {
            let there = IPV4.address(Side::Kernel);
            serve_stopped(world, &format!("udaddy -b {there} -C 1"))?;
            let station = world.station()?;
            let of = station.resolve(there, datagrams::SERVICE)?;
            station.poll_event(std::time::Duration::from_millis(200))?;
            world.shell("killall -9 udaddy")?;
            let why = Reason::Datagrams(SidrStatus::REJECTED);
            refused(world.station()?, of, why)
        }
    }
}
