//! The responder: what it carries out, what it answers, and what it refuses.

mod headers;
mod messages;
mod not_ready;
mod order;
mod reads;
mod rights;

use super::Rule;
use crate::bench::*;
use softroce_sim::card::{AsyncEvent, Refusal, Remote, State};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::wire::NakCode;

pub(super) const RULES: &[&[Rule]] = &[
    headers::RULES,
    messages::RULES,
    not_ready::RULES,
    order::RULES,
    reads::RULES,
    rights::RULES,
];

/// The peer's request is refused with `code`: a NAK that names it, the error state, one event, and
/// not a byte of memory changed.
fn refuses(mut b: Bench, before: Vec<Say>, bad: Say, code: NakCode) {
    let what = format!("{bad:?}");
    let n = bad.bth.psn().get();
    b.hear_all(before);
    b.says();
    b.poll();
    b.events();
    let memory = b.buffer.to_vec();
    b.hear(bad);
    let says = b.says();
    assert_eq!(says.len(), 1, "{what}: {says:?}");
    assert!(
        says[0].starts_with(&format!("NAK {n} {code}")),
        "{what}: {says:?}"
    );
    assert_eq!(b.state(), State::Error, "{what}");
    let number = b.qp.number();
    let event = match code {
        NakCode::RemoteAccessError => AsyncEvent::QpAccessError(number),
        _ => AsyncEvent::QpRequestError(number),
    };
    assert_eq!(b.events(), [event], "{what}");
    assert_eq!(b.buffer.to_vec(), memory, "{what}");
    assert_eq!(b.refused(Refusal::Nak), 1, "{what}");
    b.hear(send_only(n + 1, b"more"));
    assert_eq!(b.says(), [""; 0], "{what}");
    assert_eq!(b.refused(Refusal::WrongState), 1, "{what}");
}

fn invalid(before: Vec<Say>, bad: Say) {
    refuses(Bench::ready(), before, bad, NakCode::InvalidRequest);
}

const KIB: &[u8; 1024] = &[7; 1024];

/// A region apart from the bench's, and the way the peer names it.
fn region(b: &mut Bench, access: Access) -> (Buffer, Remote) {
    let buffer = Buffer::new(4096);
    let mr = b.card.register(b.pd, buffer.clone(), access).unwrap();
    (
        buffer,
        Remote {
            addr: mr.addr,
            rkey: mr.rkey,
        },
    )
}
