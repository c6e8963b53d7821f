//! What works: every operation, over every service, size of packet and address family.

use crate::equal;
use crate::linux::Play;
use softroce_sim::card::Mtu;
use softroce_sim::wire::capture::Reader;
use softroce_tests::interop::{
    Done, Op, Outcome, PATIENCE, Request, Service, Setup, Side, VLAN, World,
};

pub(crate) const ALL: &[(&str, Play)] = &[
    ("SEND", |w, side| sends(w, side, Setup::default(), Op::Send)),
    ("SEND with immediate", |w, side| {
        sends(w, side, Setup::default(), Op::SendImm(0xabcd_0001))
    }),
    ("SEND with invalidate", send_invalidate),
    ("WRITE", |w, side| writes(w, side, Setup::default())),
    ("WRITE with immediate", |w, side| {
        writes_immediate(w, side, Setup::default())
    }),
    ("READ", |w, side| reads(w, side, Setup::default())),
    ("compare and swap", compare_and_swap),
    ("fetch and add", fetch_and_add),
    ("all kinds in one queue", pipelined),
    ("256 KiB each of SEND, WRITE, READ", large),
    ("MTU 256", |w, side| mtu(w, side, Mtu::M256)),
    ("MTU 512", |w, side| mtu(w, side, Mtu::M512)),
    ("MTU 2048", |w, side| mtu(w, side, Mtu::M2048)),
    ("MTU 4096", |w, side| mtu(w, side, Mtu::M4096)),
    ("PSN wraps", |w, side| {
        let setup = Setup {
            psn: 0xff_fffe,
            ..Setup::default()
        };
        everything(w, side, setup)
    }),
    ("IPv6: SEND, WRITE, READ", |w, side| {
        let setup = Setup {
            ipv6: true,
            ..Setup::default()
        };
        everything(w, side, setup)
    }),
    ("VLAN: SEND, WRITE, READ", tagged),
    ("UC: SEND", |w, side| sends(w, side, UC, Op::Send)),
    ("UC: SEND with immediate", |w, side| {
        sends(w, side, UC, Op::SendImm(7))
    }),
    ("UC: WRITE", |w, side| writes(w, side, UC)),
    ("UC: WRITE with immediate", |w, side| {
        writes_immediate(w, side, UC)
    }),
    ("UD: SEND", |w, side| datagrams(w, side, false, Op::Send)),
    ("UD: SEND with immediate", |w, side| {
        datagrams(w, side, false, Op::SendImm(0x0102_0304))
    }),
    ("UD over IPv6: SEND", |w, side| {
        datagrams(w, side, true, Op::Send)
    }),
];

const UC: Setup = Setup {
    service: Service::Uc,
    ipv6: false,
    vlan: false,
    mtu: Mtu::M1024,
    psn: 0x1000,
    timeout: 0,
    retry: 0,
    rnr_retry: 0,
    rd_atomic: 0,
};

/// Where receive requests are.
pub(crate) const INBOX: usize = 512 << 10;

/// Lengths about the borders of packets: none, a pad of three, one packet, two, four with a pad.
fn lengths(mtu: Mtu) -> [usize; 7] {
    let m = usize::from(mtu.bytes());
    [0, 1, 64, m - 1, m, m + 1, 3 * m + 101]
}

/// The requester's completion of `id` is a success.
pub(crate) fn succeeds(world: &mut World, side: Side, id: u64) -> Outcome<Done> {
    let done = world.done(side)?;
    equal("requester: id and status", (done.id, done.status), (id, 0))?;
    Ok(done)
}

/// The responder's completion of receive request `id` is a success with these.
pub(crate) fn received(
    world: &mut World,
    side: Side,
    id: u64,
    bytes: usize,
    imm: Option<u32>,
) -> Outcome {
    let done = world.done(side)?;
    let found = (done.id, done.status, done.receive, done.bytes, done.imm);
    equal(
        "responder: completion",
        found,
        (id, 0, true, bytes as u32, imm),
    )
}

fn sends(world: &mut World, side: Side, setup: Setup, op: Op) -> Outcome {
    world.connect(setup)?;
    let imm = match op {
        Op::SendImm(imm) => Some(imm),
        _ => None,
    };
    for (id, len) in (1..).zip(lengths(setup.mtu)) {
        world.fill(side, 0, len, id)?;
        // One byte more than needed, so that the length is the message's.
        world.recv(side.other(), 100 + id, INBOX, len + 1)?;
        world.post(side, &Request::new(id, op, len))?;
        succeeds(world, side, id)?;
        received(world, side.other(), 100 + id, len, imm)?;
        world.expect(side.other(), INBOX, len, id)?;
    }
    Ok(())
}

fn writes(world: &mut World, side: Side, setup: Setup) -> Outcome {
    world.connect(setup)?;
    for (id, len) in (1..).zip(lengths(setup.mtu)) {
        world.fill(side, 0, len, id)?;
        world.post(side, &Request::new(id, Op::Write, len))?;
        succeeds(world, side, id)?;
        // Nobody tells the other end that a WRITE of an unreliable connection is there: a SEND does.
        if setup.service == Service::Uc {
            world.recv(side.other(), 100 + id, INBOX, 0)?;
            world.post(side, &Request::new(id, Op::Send, 0))?;
            succeeds(world, side, id)?;
            received(world, side.other(), 100 + id, 0, None)?;
        }
        world.expect(side.other(), 0, len, id)?;
    }
    equal(
        "responder: completions",
        world.poll(side.other(), SHORT)?,
        None,
    )
}

const SHORT: std::time::Duration = std::time::Duration::from_millis(20);

fn writes_immediate(world: &mut World, side: Side, setup: Setup) -> Outcome {
    world.connect(setup)?;
    for (id, len) in (1..).zip(lengths(setup.mtu)) {
        let imm = 0xfedc_ba00 + id as u32;
        world.fill(side, 0, len, id)?;
        world.recv(side.other(), 100 + id, INBOX, 0)?;
        world.post(side, &Request::new(id, Op::WriteImm(imm), len))?;
        succeeds(world, side, id)?;
        received(world, side.other(), 100 + id, len, Some(imm))?;
        world.expect(side.other(), 0, len, id)?;
    }
    Ok(())
}

fn reads(world: &mut World, side: Side, setup: Setup) -> Outcome {
    world.connect(setup)?;
    for (id, len) in (1..).zip(lengths(setup.mtu)) {
        world.fill(side.other(), 0, len, id)?;
        world.post(side, &Request::new(id, Op::Read, len))?;
        succeeds(world, side, id)?;
        world.expect(side, 0, len, id)?;
    }
    Ok(())
}

/// SEND, WRITE and READ of several packets each.
fn everything(world: &mut World, side: Side, setup: Setup) -> Outcome {
    world.connect(setup)?;
    each(world, side, 3 * usize::from(setup.mtu.bytes()) + 5)
}

/// SEND, WRITE and READ of `len` bytes on the connection that there is.
fn each(world: &mut World, side: Side, len: usize) -> Outcome {
    world.fill(side, 0, len, 1)?;
    world.recv(side.other(), 101, INBOX, len)?;
    world.post(side, &Request::new(1, Op::Send, len))?;
    succeeds(world, side, 1)?;
    received(world, side.other(), 101, len, None)?;
    world.expect(side.other(), INBOX, len, 1)?;
    world.post(side, &Request::new(2, Op::Write, len))?;
    succeeds(world, side, 2)?;
    world.expect(side.other(), 0, len, 1)?;
    world.fill(side.other(), 0, len, 3)?;
    world.post(side, &Request::new(3, Op::Read, len))?;
    succeeds(world, side, 3)?;
    world.expect(side, 0, len, 3)
}

/// All packets of both ends, and there are some, have the tag.
fn tagged(world: &mut World, side: Side) -> Outcome {
    let setup = Setup {
        vlan: true,
        ..Setup::default()
    };
    everything(world, side, setup)?;
    let capture = world.capture().map_err(|e| e.to_string())?;
    let records = Reader::new(&capture[..]).map_err(|e| e.to_string())?;
    let frames = records.filter_map(|r| r.ok()?.frame().ok());
    let tags: Vec<_> = frames
        .map(|f| f.link.and_then(|l| l.tag).map(|t| t.id))
        .collect();
    equal("some are tagged", tags.contains(&Some(VLAN)), true)?;
    equal("some are not", tags.iter().any(|&t| t != Some(VLAN)), false)
}

fn mtu(world: &mut World, side: Side, mtu: Mtu) -> Outcome {
    let setup = Setup {
        mtu,
        ..Setup::default()
    };
    everything(world, side, setup)?;
    // No packet is larger than the path MTU, and the largest are as large.
    let [ours, theirs] = world.inspect()?;
    let least = 3 * 4 + 1;
    match ours + theirs >= least {
        true => Ok(()),
        false => Err(format!(
            "{ours} + {theirs} packets, at least {least} expected"
        )),
    }
}

fn compare_and_swap(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    let (old, new) = (0x1111_2222_3333_4444, 0x5555_6666_7777_8888);
    world.put(side.other(), 0, old)?;
    let cas = |compare, swap| Op::Cas { compare, swap };
    // The second finds another value, and changes nothing.
    for (id, op, before, after) in [
        (1, cas(old, new), old, new),
        (2, cas(old, 9), new, new),
        (3, cas(new, 9), new, 9),
    ] {
        world.post(side, &Request::new(id, op, 8))?;
        succeeds(world, side, id)?;
        equal("value returned", world.get(side, 0)?, before)?;
        equal("value left", world.get(side.other(), 0)?, after)?;
    }
    Ok(())
}

fn fetch_and_add(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    // A carry from the lower half, and one out of the upper.
    world.put(side.other(), 0, 0xffff_fff8)?;
    for (id, add, before, after) in [
        (1, 0x10, 0xffff_fff8, 0x1_0000_0008),
        (2, u64::MAX, 0x1_0000_0008, 0x1_0000_0007),
    ] {
        world.post(side, &Request::new(id, Op::Faa(add), 8))?;
        succeeds(world, side, id)?;
        equal("value returned", world.get(side, 0)?, before)?;
        equal("value left", world.get(side.other(), 0)?, after)?;
    }
    Ok(())
}

fn send_invalidate(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    let key = world.bind(side.other(), 50, 4096)?;
    let through = |id| Request {
        rkey: Some(key),
        ..Request::new(id, Op::Write, 64)
    };
    world.fill(side, 0, 64, 1)?;
    world.post(side, &through(1))?;
    succeeds(world, side, 1)?;
    world.expect(side.other(), 0, 64, 1)?;
    world.recv(side.other(), 102, INBOX, 64)?;
    world.post(side, &Request::new(2, Op::SendInv(key), 64))?;
    succeeds(world, side, 2)?;
    let done = world.done(side.other())?;
    equal(
        "responder: status and key",
        (done.status, done.inv),
        (0, Some(key)),
    )?;
    world.expect(side.other(), INBOX, 64, 1)?;
    // The key is no key any more.
    world.post(side, &through(3))?;
    let done = world.done(side)?;
    equal("requester: status", (done.id, done.status), (3, 10))
}

/// Requests of every kind before the first is done; they are done in order.
fn pipelined(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    let len = 3000;
    let place = |id: u64| id as usize * 4096;
    for id in 1..=12u64 {
        world.fill(side, place(id), len, id)?;
        world.fill(side.other(), place(id), len, 50 + id)?;
        if id % 4 == 1 {
            world.recv(side.other(), 100 + id, INBOX + place(id), len)?;
        }
    }
    world.put(side.other(), 0, 40)?;
    for id in 1..=12u64 {
        let op = [Op::Faa(1), Op::Send, Op::Write, Op::Read][id as usize % 4];
        let atomic = matches!(op, Op::Faa(_));
        let request = Request {
            at: place(id),
            there: if atomic { 0 } else { place(id) as u64 },
            ..Request::new(id, op, if atomic { 8 } else { len })
        };
        world.post(side, &request)?;
    }
    for id in 1..=12 {
        succeeds(world, side, id)?;
    }
    for id in 1..=12u64 {
        match id % 4 {
            0 => equal("value returned", world.get(side, place(id))?, 39 + id / 4)?,
            1 => {
                received(world, side.other(), 100 + id, len, None)?;
                world.expect(side.other(), INBOX + place(id), len, id)?;
            }
            2 => world.expect(side.other(), place(id), len, id)?,
            _ => world.expect(side, place(id), len, 50 + id)?,
        }
    }
    equal("sum", world.get(side.other(), 0)?, 43)
}

fn large(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup {
        mtu: Mtu::M4096,
        ..Setup::default()
    })?;
    each(world, side, 256 << 10)
}

/// Datagrams: whose they are, and the 40 bytes in front, whose last 20 are an IPv4 header or which are an
/// IPv6 header.
fn datagrams(world: &mut World, side: Side, ipv6: bool, op: Op) -> Outcome {
    world.connect(Setup {
        service: Service::Ud,
        ipv6,
        ..Setup::default()
    })?;
    let imm = match op {
        Op::SendImm(imm) => Some(imm),
        _ => None,
    };
    for (id, len) in [(1, 0), (2, 1), (3, 64), (4, 1024)] {
        world.fill(side, 0, len, id)?;
        world.recv(side.other(), 100 + id, INBOX, 40 + len)?;
        world.post(side, &Request::new(id, op, len))?;
        succeeds(world, side, id)?;
        let done = world.poll(side.other(), PATIENCE)?.ok_or("no datagram")?;
        let found = (done.id, done.status, done.bytes, done.imm, done.src);
        let source = world.contact(side).qpn;
        equal(
            "receiver: completion",
            found,
            (100 + id, 0, 40 + len as u32, imm, source),
        )?;
        world.expect(side.other(), INBOX + 40, len, id)?;
        // Bytes 8 to 16 of an IPv4 header (in the last 20 of 40): TTL, protocol 17, checksum, source. Of an
        // IPv6 header the first four: version 6.
        let at = if ipv6 { 0 } else { 28 };
        let bytes = world.get(side.other(), INBOX + at)?.to_ne_bytes();
        match ipv6 {
            true => equal("version", bytes[0] >> 4, 6)?,
            false => {
                equal("protocol", bytes[1], 17)?;
                let last = if side == Side::Card { 9 } else { 1 };
                equal(
                    "source",
                    [bytes[4], bytes[5], bytes[6], bytes[7]],
                    [10, 66, 0, last],
                )?;
            }
        }
    }
    Ok(())
}
