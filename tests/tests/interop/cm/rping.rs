//! `rping`: the client offers a buffer, the server READs it and WRITEs the same into another, and each step is
//! told by a SEND of 16 bytes: address, key and length of the buffer.

use super::{
    IPV4, IPV6, disconnected, ends, established, nobody_says_no, requested, responded, sent, serve,
};
use crate::equal;
use crate::linux::Play;
use softroce_sim::card::{Completion, QpType, Remote, Work};
use softroce_sim::wire::RemoteKey;
use softroce_sim::wire::cm::{CommId, PortSpace, ServiceId};
use softroce_tests::interop::station::{Link, Station};
use softroce_tests::interop::{Outcome, Setup, Side, World};

pub(crate) const ALL: &[(&str, Play)] = &[
    ("CM: rping", |w, s| play(w, s, IPV4, 64)),
    ("CM: rping with IPv6", |w, s| play(w, s, IPV6, 64)),
    ("CM: rping of many packets", |w, s| play(w, s, IPV4, 10_000)),
    ("CM: rping's server ends", server_ends),
];

pub(super) const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7174);

const ROUNDS: usize = 3;

/// Places in our memory: what arrives, what is said, what is offered, what is written to.
const ARRIVES: usize = 0;
const SAID: usize = 64;
const SOURCE: usize = 1 << 14;
const SINK: usize = 1 << 16;

/// Request IDs.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const MOVE: u64 = 3;

const INFO: usize = 16;

/// What the client of `rping` sends in a round.
fn ping(round: usize, size: usize) -> Vec<u8> {
    let mut data = format!("rdma-ping-{round}: ").into_bytes();
    data.truncate(size);
    let letters = (b'A'..=b'z').cycle().skip(round);
    data.extend(letters.take(size - data.len()));
    data[size - 1] = 0;
    data
}

/// Says where a buffer is.
fn offer(station: &mut Station, link: Link, buffer: Remote, size: usize) -> Outcome {
    let mut info = [0; INFO];
    info[..8].copy_from_slice(&buffer.addr.to_be_bytes());
    info[8..12].copy_from_slice(&buffer.rkey.0.to_be_bytes());
    info[12..].copy_from_slice(&(size as u32).to_be_bytes());
    station.memory().write_at(SAID, &info);
    station.post(link, SEND, Work::Send, SAID, INFO)
}

/// The peer has said something; the next may come.
fn heard(station: &mut Station, link: Link, completion: &Completion) -> Outcome<(Remote, usize)> {
    equal("bytes received", completion.byte_len as usize, INFO)?;
    let mut info = [0; INFO];
    station.memory().read_at(ARRIVES, &mut info);
    station.recv(link, RECEIVE, ARRIVES, INFO)?;
    let word = |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let buffer = Remote {
        addr: u64::from(word(0)) << 32 | u64::from(word(4)),
        rkey: RemoteKey(word(8)),
    };
    Ok((buffer, word(12) as usize))
}

/// The completions of a request of ours and of the peer's next word, in any order.
fn both(station: &mut Station, link: Link, request: u64) -> Outcome<(Remote, usize)> {
    let (mut own, mut word) = (false, None);
    while !own || word.is_none() {
        let c = station.done()?;
        match c.wr_id {
            RECEIVE => word = Some(heard(station, link, &c)?),
            id if id == request => own = true,
            _ => return Err(format!("Card: {c:?}")),
        }
    }
    word.ok_or_else(|| "nothing was said".into())
}

pub(super) fn accept(station: &mut Station) -> Outcome<(CommId, Link)> {
    let (id, request) = requested(station)?;
    equal("service", request.service, SERVICE)?;
    let ip = request.ip.ok_or("Card: nobody is named")?;
    equal("the asker's address", ip.src, request.peer.ip())?;
    let link = station.link(QpType::Rc)?;
    station.recv(link, RECEIVE, ARRIVES, INFO)?;
    station.accept(link, id, request.peer)?;
    established(station, id)?;
    Ok((id, link))
}

pub(super) fn connect(world: &mut World, setup: Setup) -> Outcome<(CommId, Link)> {
    let station = world.station()?;
    let link = station.link(QpType::Rc)?;
    station.recv(link, RECEIVE, ARRIVES, INFO)?;
    let id = station.connect(link, setup.address(Side::Kernel), SERVICE)?;
    responded(station, id)?;
    station.establish(id)?;
    established(station, id)?;
    Ok((id, link))
}

/// The server's part of a round.
pub(super) fn answer(station: &mut Station, link: Link, round: usize, size: usize) -> Outcome {
    let c = station.done_of(RECEIVE)?;
    let (source, len) = heard(station, link, &c)?;
    equal("bytes offered", len, size)?;
    station.post(link, MOVE, Work::Read(source), SINK, size)?;
    station.done_of(MOVE)?;
    let mut data = vec![0; size];
    station.memory().read_at(SINK, &mut data);
    equal("what was READ", data, ping(round, size))?;
    offer(station, link, station.remote(SINK), 0)?;
    let (sink, _) = both(station, link, SEND)?;
    station.post(link, MOVE, Work::Write(sink), SINK, size)?;
    station.done_of(MOVE)?;
    offer(station, link, station.remote(SINK), 0)?;
    // The client may be quicker with its next offer; that is for the next round.
    station.done_of(SEND).map(|_| ())
}

/// The client's part of a round.
pub(super) fn ask(station: &mut Station, link: Link, round: usize, size: usize) -> Outcome {
    let data = ping(round, size);
    station.memory().write_at(SOURCE, &data);
    station.memory().write_at(SINK, &vec![0; size]);
    offer(station, link, station.remote(SOURCE), size)?;
    both(station, link, SEND)?;
    offer(station, link, station.remote(SINK), size)?;
    both(station, link, SEND)?;
    let mut back = vec![0; size];
    station.memory().read_at(SINK, &mut back);
    equal("what was written", back, data)
}

/// What `rping -v` prints of a round.
fn printed(who: &str, round: usize, size: usize) -> String {
    let data = ping(round, size);
    let text = String::from_utf8_lossy(&data[..size - 1]).into_owned();
    format!("{who} data: {text}")
}

fn play(world: &mut World, side: Side, setup: Setup, size: usize) -> Outcome {
    world.manage(setup, |_| {})?;
    let here = setup.address(Side::Card);
    let there = setup.address(Side::Kernel);
    let who = match side {
        Side::Kernel => {
            let station = world.station()?;
            station.listen(SERVICE)?;
            world.start(&format!("rping -c -a {here} -C {ROUNDS} -S {size} -v -V"))?;
            let station = world.station()?;
            let (id, link) = accept(station)?;
            for round in 0..ROUNDS {
                answer(station, link, round, size)?;
            }
            disconnected(station, id)?;
            "ping"
        }
        Side::Card => {
            serve(
                world,
                &format!("rping -s -a {there} -C {ROUNDS} -S {size} -v"),
            )?;
            let (id, link) = connect(world, setup)?;
            let station = world.station()?;
            for round in 0..ROUNDS {
                ask(station, link, round, size)?;
            }
            station.disconnect(id)?;
            disconnected(station, id)?;
            "server ping"
        }
    };
    let lines: Vec<_> = (0..ROUNDS).map(|round| printed(who, round, size)).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    ends(world, 0, &lines)?;
    nobody_says_no(world)
}

/// The end comes from the asked side: the card's program disconnects, or the kernel's dies.
fn server_ends(world: &mut World, side: Side) -> Outcome {
    world.manage(IPV4, |_| {})?;
    match side {
        Side::Kernel => {
            let here = IPV4.address(Side::Card);
            let station = world.station()?;
            station.listen(SERVICE)?;
            world.start(&format!("rping -c -a {here} -v -V"))?;
            let station = world.station()?;
            let (id, link) = accept(station)?;
            answer(station, link, 0, 64)?;
            station.disconnect(id)?;
            disconnected(station, id)?;
            // The kernel says DREP when rping has heard of it; after that, rping at times waits for ever.
            match sent(world, Side::Kernel, "DREP") {
                0 => Err("Kernel: no DREP".into()),
                _ => Ok(()),
            }
        }
        Side::Card => {
            let there = IPV4.address(Side::Kernel);
            serve(world, &format!("rping -s -a {there} -v"))?;
            let (id, link) = connect(world, IPV4)?;
            ask(world.station()?, link, 0, 64)?;
            world.shell("killall -9 rping")?;
            disconnected(world.station()?, id)?;
            equal("how rping has ended", world.ended()?.code, 128 + 9)
        }
    }
}
