//! What is lost, repeated, damaged or overtaken on the cable costs time alone.

use crate::cases::{INBOX, received, succeeds};
use crate::equal;
use crate::linux::Play;
use softroce_sim::wire::Opcode;
use softroce_tests::interop::cable::{Deed, Fault, Kind};
use softroce_tests::interop::{Op, Outcome, Request, Service, Setup, Side, World};
use std::time::Duration;

pub(crate) const ALL: &[(&str, Play)] = &[
    ("first packet of a SEND lost", |w, s| {
        request(w, s, 0, Deed::Lose, Op::Send)
    }),
    ("middle packet of a SEND lost", |w, s| {
        request(w, s, 2, Deed::Lose, Op::Send)
    }),
    ("last packet of a SEND lost", |w, s| {
        request(w, s, 4, Deed::Lose, Op::Send)
    }),
    ("first packet of a WRITE lost", |w, s| {
        request(w, s, 0, Deed::Lose, Op::Write)
    }),
    ("middle packet of a WRITE lost", |w, s| {
        request(w, s, 2, Deed::Lose, Op::Write)
    }),
    ("last packet of a WRITE with immediate lost", |w, s| {
        request(w, s, 4, Deed::Lose, Op::WriteImm(5))
    }),
    ("middle packet of a SEND damaged", |w, s| {
        request(w, s, 2, Deed::Damage, Op::Send)
    }),
    ("middle packet of a SEND twice", |w, s| {
        request(w, s, 2, Deed::Repeat, Op::Send)
    }),
    ("last packet of a SEND twice", |w, s| {
        request(w, s, 4, Deed::Repeat, Op::Send)
    }),
    ("middle packet of a WRITE overtaken", |w, s| {
        request(w, s, 2, Deed::Delay, Op::Write)
    }),
    ("ACK lost", |w, s| acknowledgement(w, s, Deed::Lose)),
    ("ACK damaged", |w, s| acknowledgement(w, s, Deed::Damage)),
    ("ACK twice", |w, s| acknowledgement(w, s, Deed::Repeat)),
    ("sequence NAK lost", nak_lost),
    ("READ request lost", |w, s| {
        read(w, s, s, is_read, 0, Deed::Lose)
    }),
    ("READ request twice", |w, s| {
        read(w, s, s, is_read, 0, Deed::Repeat)
    }),
    ("first READ response lost", |w, s| {
        read(w, s, s.other(), is_data, 0, Deed::Lose)
    }),
    ("middle READ response lost", |w, s| {
        read(w, s, s.other(), is_data, 2, Deed::Lose)
    }),
    ("last READ response lost", |w, s| {
        read(w, s, s.other(), is_data, 4, Deed::Lose)
    }),
    ("middle READ response damaged", |w, s| {
        read(w, s, s.other(), is_data, 2, Deed::Damage)
    }),
    ("middle READ response twice", |w, s| {
        read(w, s, s.other(), is_data, 2, Deed::Repeat)
    }),
    ("middle READ response overtaken", |w, s| {
        read(w, s, s.other(), is_data, 2, Deed::Delay)
    }),
    ("atomic request lost", |w, s| atomic(w, s, s, Deed::Lose)),
    ("atomic request twice", |w, s| atomic(w, s, s, Deed::Repeat)),
    ("atomic answer lost", |w, s| {
        atomic(w, s, s.other(), Deed::Lose)
    }),
    ("UC: middle packet of a SEND lost", unreliable),
    ("losses in a full queue", many),
    ("everything lost: retries run out", silence),
];

fn is_request(opcode: Opcode) -> bool {
    !opcode.is_response()
}

fn is_ack(opcode: Opcode) -> bool {
    opcode == Opcode::RC_ACKNOWLEDGE
}

fn is_read(opcode: Opcode) -> bool {
    opcode == Opcode::RC_READ_REQUEST
}

fn is_data(opcode: Opcode) -> bool {
    (Opcode::RC_READ_RESPONSE_FIRST.0..=Opcode::RC_READ_RESPONSE_ONLY.0).contains(&opcode.0)
}

fn is_atomic(opcode: Opcode) -> bool {
    opcode == Opcode::RC_FETCH_ADD || opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE
}

/// Five packets at MTU 1024.
const LEN: usize = 5 * 1024 - 3;

fn connect(world: &mut World, fault: Fault) -> Outcome {
    world.connect(Setup::default())?;
    world.fault(fault);
    Ok(())
}

/// The fault has struck.
fn struck(world: &World, times: usize) -> Outcome {
    equal("faults that struck", world.struck(), times)
}

/// A message of five packets, and one after it that must not suffer.
fn message(world: &mut World, side: Side, op: Op) -> Outcome {
    let (imm, place) = match op {
        Op::WriteImm(imm) => (Some(imm), 0),
        Op::Send => (None, INBOX),
        _ => (None, 0),
    };
    world.fill(side, 0, LEN, 1)?;
    world.fill(side, 64 << 10, 100, 2)?;
    let takes_receive = !matches!(op, Op::Write);
    if takes_receive {
        world.recv(side.other(), 101, INBOX, LEN)?;
    }
    world.recv(side.other(), 102, INBOX + (64 << 10), 100)?;
    world.post(side, &Request::new(1, op, LEN))?;
    let second = Request {
        at: 64 << 10,
        ..Request::new(2, Op::Send, 100)
    };
    world.post(side, &second)?;
    succeeds(world, side, 1)?;
    succeeds(world, side, 2)?;
    if takes_receive {
        received(world, side.other(), 101, LEN, imm)?;
    }
    received(world, side.other(), 102, 100, None)?;
    world.expect(side.other(), place, LEN, 1)?;
    world.expect(side.other(), INBOX + (64 << 10), 100, 2)
}

fn request(world: &mut World, side: Side, nth: usize, deed: Deed, op: Op) -> Outcome {
    connect(
        world,
        Fault {
            from: side,
            kind: Kind::Packet(is_request),
            nth,
            deed,
        },
    )?;
    message(world, side, op)?;
    struck(world, 1)
}

/// Of one message alone, so that no later acknowledgement stands in for it.
fn acknowledgement(world: &mut World, side: Side, deed: Deed) -> Outcome {
    connect(
        world,
        Fault {
            from: side.other(),
            kind: Kind::Packet(is_ack),
            nth: 0,
            deed,
        },
    )?;
    world.fill(side, 0, 100, 1)?;
    world.recv(side.other(), 101, INBOX, 100)?;
    world.recv(side.other(), 102, INBOX + 4096, 100)?;
    for id in [1, 2] {
        world.post(side, &Request::new(id, Op::Send, 100))?;
        succeeds(world, side, id)?;
        received(world, side.other(), 100 + id, 100, None)?;
    }
    world.expect(side.other(), INBOX, 100, 1)?;
    world.expect(side.other(), INBOX + 4096, 100, 1)?;
    struck(world, 1)
}

fn nak_lost(world: &mut World, side: Side) -> Outcome {
    connect(
        world,
        Fault {
            from: side,
            kind: Kind::Packet(is_request),
            nth: 1,
            deed: Deed::Lose,
        },
    )?;
    world.fault(Fault {
        from: side.other(),
        kind: Kind::Packet(is_ack),
        nth: 0,
        deed: Deed::Lose,
    });
    message(world, side, Op::Send)?;
    struck(world, 2)
}

fn read(
    world: &mut World,
    side: Side,
    from: Side,
    kind: fn(Opcode) -> bool,
    nth: usize,
    deed: Deed,
) -> Outcome {
    connect(
        world,
        Fault {
            from,
            kind: Kind::Packet(kind),
            nth,
            deed,
        },
    )?;
    world.fill(side.other(), 0, LEN, 1)?;
    world.fill(side.other(), 64 << 10, 100, 2)?;
    let second = Request {
        at: 64 << 10,
        there: 64 << 10,
        ..Request::new(2, Op::Read, 100)
    };
    world.post(side, &Request::new(1, Op::Read, LEN))?;
    world.post(side, &second)?;
    succeeds(world, side, 1)?;
    succeeds(world, side, 2)?;
    world.expect(side, 0, LEN, 1)?;
    world.expect(side, 64 << 10, 100, 2)?;
    struck(world, 1)
}

/// Carried out once, whatever is repeated.
fn atomic(world: &mut World, side: Side, from: Side, deed: Deed) -> Outcome {
    connect(
        world,
        Fault {
            from,
            kind: Kind::Packet(is_atomic),
            nth: 0,
            deed,
        },
    )?;
    world.put(side.other(), 0, 40)?;
    for (id, before) in [(1, 40), (2, 42)] {
        world.post(side, &Request::new(id, Op::Faa(2), 8))?;
        succeeds(world, side, id)?;
        equal("value returned", world.get(side, 0)?, before)?;
    }
    equal("value left", world.get(side.other(), 0)?, 44)?;
    struck(world, 1)
}

/// Of three messages of an unreliable connection the first loses a packet: it does not arrive, and the
/// third does, whole. (The kernel's driver loses the second as well.)
fn unreliable(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup {
        service: Service::Uc,
        ..Setup::default()
    })?;
    world.fault(Fault {
        from: side,
        kind: Kind::Packet(is_request),
        nth: 2,
        deed: Deed::Lose,
    });
    let len = |id: u64| if id == 1 { LEN } else { 90 + id as usize };
    for id in 1..=3 {
        world.recv(side.other(), 100 + id, INBOX + 8192 * id as usize, LEN)?;
    }
    for id in 1..=3 {
        world.fill(side, 0, len(id), id)?;
        world.post(side, &Request::new(id, Op::Send, len(id)))?;
        succeeds(world, side, id)?;
    }
    let expected: &[u64] = match side {
        Side::Card => &[3],
        Side::Kernel => &[2, 3],
    };
    for (nth, &id) in (1..).zip(expected) {
        received(world, side.other(), 100 + nth, len(id), None)?;
        world.expect(side.other(), INBOX + 8192 * nth as usize, len(id), id)?;
    }
    let more = world.poll(side.other(), Duration::from_millis(20))?;
    equal("more completions", more, None)?;
    struck(world, 1)
}

/// Several packets of both directions, in twenty messages.
fn many(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    for nth in [3, 17, 40] {
        for (from, kind) in [
            (side, is_request as fn(Opcode) -> bool),
            (side.other(), Opcode::is_response),
        ] {
            let deed = Deed::Lose;
            world.fault(Fault {
                from,
                kind: Kind::Packet(kind),
                nth,
                deed,
            });
        }
    }
    let place = |id: u64| (id as usize % 20) * 8192;
    for id in 1..=20u64 {
        world.fill(side, place(id), LEN, id)?;
        match id % 3 {
            0 => world.recv(side.other(), 100 + id, INBOX + place(id), LEN)?,
            1 => world.fill(side.other(), place(id), LEN, 50 + id)?,
            _ => {}
        }
    }
    for id in 1..=20u64 {
        let op = [Op::Send, Op::Read, Op::Write][id as usize % 3];
        let request = Request {
            at: place(id),
            there: place(id) as u64,
            ..Request::new(id, op, LEN)
        };
        world.post(side, &request)?;
    }
    for id in 1..=20 {
        succeeds(world, side, id)?;
    }
    for id in 1..=20u64 {
        match id % 3 {
            0 => {
                received(world, side.other(), 100 + id, LEN, None)?;
                world.expect(side.other(), INBOX + place(id), LEN, id)?;
            }
            1 => world.expect(side, place(id), LEN, 50 + id)?,
            _ => world.expect(side.other(), place(id), LEN, id)?,
        }
    }
    match world.struck() {
        // How many answers there are is the responder's affair.
        4..=6 => Ok(()),
        n => Err(format!("faults that struck: {n}, 4 to 6 expected")),
    }
}

/// With `retry` 2 a packet is sent three times, and then the request fails.
fn silence(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup {
        retry: 2,
        timeout: 12,
        ..Setup::default()
    })?;
    for nth in 0..8 {
        world.fault(Fault {
            from: side,
            kind: Kind::Packet(is_request),
            nth,
            deed: Deed::Lose,
        });
    }
    world.post(side, &Request::new(1, Op::Write, 100))?;
    world.post(side, &Request::new(2, Op::Write, 100))?;
    let done = world.done(side)?;
    equal("first: id and status", (done.id, done.status), (1, 12))?;
    let done = world.done(side)?;
    equal("second: id and status", (done.id, done.status), (2, 5))?;
    equal("queue pair in error", world.in_error(side)?, true)
}
