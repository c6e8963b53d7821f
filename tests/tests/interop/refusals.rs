//! What the other end refuses, now or for good.

use crate::cases::{INBOX, received, succeeds};
use crate::equal;
use crate::linux::Play;
use softroce_tests::interop::{Op, Outcome, Request, Setup, Side, World};
use std::time::Duration;

pub(crate) const ALL: &[(&str, Play)] = &[
    ("RNR: receive posted late for a SEND", |w, s| {
        late(w, s, Op::Send)
    }),
    ("RNR: receive posted late for a WRITE with imm.", |w, s| {
        late(w, s, Op::WriteImm(3))
    }),
    ("RNR retries run out", rnr_exhausted),
    ("WRITE with a wrong key", |w, s| {
        refused(w, s, Op::Write, 64, Wrong::Key)
    }),
    ("WRITE of four packets with a wrong key", |w, s| {
        refused(w, s, Op::Write, 4000, Wrong::Key)
    }),
    ("READ with a wrong key", |w, s| {
        refused(w, s, Op::Read, 64, Wrong::Key)
    }),
    ("READ of four packets with a wrong key", |w, s| {
        refused(w, s, Op::Read, 4000, Wrong::Key)
    }),
    ("atomic with a wrong key", |w, s| {
        refused(w, s, Op::Faa(1), 8, Wrong::Key)
    }),
    ("WRITE beyond the region", |w, s| {
        refused(w, s, Op::Write, 64, Wrong::Address)
    }),
    ("READ beyond the region", |w, s| {
        refused(w, s, Op::Read, 64, Wrong::Address)
    }),
    ("WRITE and READ of nothing with a wrong key", nothing),
    ("atomic that is not aligned", misaligned),
    ("SEND longer than the receive request", too_long),
];

/// IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,
/// IBV_WC_RNR_RETRY_EXC_ERR.
const FLUSHED: u8 = 5;
const INVALID_REQUEST: u8 = 9;
const ACCESS_ERROR: u8 = 10;
const OPERATION_ERROR: u8 = 11;
const RNR_EXHAUSTED: u8 = 13;

fn late(world: &mut World, side: Side, op: Op) -> Outcome {
    world.connect(Setup::default())?;
    let len = 2500;
    let imm = match op {
        Op::WriteImm(imm) => Some(imm),
        _ => None,
    };
    world.fill(side, 0, len, 1)?;
    world.post(side, &Request::new(1, op, len))?;
    world.idle(Duration::from_millis(50))?;
    equal(
        "requester: completions",
        world.poll(side, Duration::ZERO)?,
        None,
    )?;
    world.recv(side.other(), 101, INBOX, len)?;
    succeeds(world, side, 1)?;
    received(world, side.other(), 101, len, imm)?;
    let place = if imm.is_some() { 0 } else { INBOX };
    world.expect(side.other(), place, len, 1)
}

fn rnr_exhausted(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup {
        rnr_retry: 1,
        ..Setup::default()
    })?;
    world.post(side, &Request::new(1, Op::Send, 64))?;
    world.post(side, &Request::new(2, Op::Write, 64))?;
    fails(world, side, RNR_EXHAUSTED)
}

/// Request 1 fails with `status`, request 2 is flushed, the queue pair is in error.
fn fails(world: &mut World, side: Side, status: u8) -> Outcome {
    let done = world.done(side)?;
    equal("first: id and status", (done.id, done.status), (1, status))?;
    let done = world.done(side)?;
    equal(
        "second: id and status",
        (done.id, done.status),
        (2, FLUSHED),
    )?;
    equal("requester in error", world.in_error(side)?, true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Key,
    Address,
}

fn refused(world: &mut World, side: Side, op: Op, len: usize, wrong: Wrong) -> Outcome {
    world.connect(Setup::default())?;
    world.fill(side, 0, len, 1)?;
    world.fill(side.other(), 0, len, 2)?;
    let key = world.contact(side.other()).rkey;
    let request = Request {
        rkey: (wrong == Wrong::Key).then_some(key ^ 0x55),
        // Half of it is inside.
        there: match wrong {
            Wrong::Address => (1 << 20) - len as u64 / 2,
            Wrong::Key => 0,
        },
        ..Request::new(1, op, len)
    };
    world.post(side, &request)?;
    world.post(side, &Request::new(2, Op::Write, 64))?;
    fails(world, side, ACCESS_ERROR)?;
    equal("responder in error", world.in_error(side.other())?, true)?;
    world.expect(side.other(), 0, len, 2)?;
    // A READ that failed has brought nothing.
    world.expect(side, 0, if op == Op::Faa(1) { 0 } else { len }, 1)
}

/// No byte is touched, so that the key does not matter.
fn nothing(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    for (id, op) in [(1, Op::Write), (2, Op::Read)] {
        let request = Request {
            rkey: Some(0xdead_beef),
            ..Request::new(id, op, 0)
        };
        world.post(side, &request)?;
        succeeds(world, side, id)?;
    }
    Ok(())
}

/// The driver's own program does not let it be posted; our card sends it, and the driver refuses it.
fn misaligned(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    let request = Request {
        there: 4,
        ..Request::new(1, Op::Faa(1), 8)
    };
    let posted = world.post(side, &request);
    if side == Side::Kernel {
        let refused = posted.is_err_and(|e| e.contains("Invalid argument"));
        return equal("refused when posted", refused, true);
    }
    posted?;
    world.post(side, &Request::new(2, Op::Write, 64))?;
    fails(world, side, INVALID_REQUEST)
}

/// The kernel's word for it is another than the specification's.
fn too_long(world: &mut World, side: Side) -> Outcome {
    world.connect(Setup::default())?;
    world.recv(side.other(), 101, INBOX, 100)?;
    world.post(side, &Request::new(1, Op::Send, 3000))?;
    world.post(side, &Request::new(2, Op::Write, 64))?;
    let (at_requester, at_responder) = match side {
        // Local length error.
        Side::Kernel => (INVALID_REQUEST, 1),
        // Local queue pair operation error.
        Side::Card => (OPERATION_ERROR, 2),
    };
    fails(world, side, at_requester)?;
    let done = world.done(side.other())?;
    equal(
        "responder: status",
        (done.id, done.status),
        (101, at_responder),
    )
}
