//! Which packets a fault injector looks at.

use super::Sighting;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{Gid, Opcode, Operation, Packet, Psn, QpNumber, Route};

/// What a packet must be; a field left open lets every packet through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The queue pair it is for.
    pub dest_qp: Option<QpNumber>,
    /// Where it comes from.
    pub src: Option<Gid>,
    /// Where it goes.
    pub dst: Option<Gid>,
    /// The two ends of the connection it belongs to, address and queue pair: it is for one of them.
    pub connection: Option<[(Gid, QpNumber); 2]>,
    /// What it is.
    pub opcodes: Opcodes,
    /// Its place in the sequence.
    pub psn: PsnFilter,
    /// Which sighting of its PSN on this link it is, from 1.
    pub copy: Option<u32>,
    /// In which transmission round of its flow it is, from 1. A round begins when the PSN does not
    /// advance.
    pub round: Option<u32>,
}

/// A class of opcodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcodes {
    /// Every one.
    Any,
    /// This one.
    One(Opcode),
    /// Those that a requester sends.
    Requests,
    /// Those that carry payload: SEND, WRITE, READ response.
    Data,
    /// READ responses.
    ReadResponses,
    /// Acknowledgements, positive or negative, of atomics too.
    Acknowledges,
    /// Negative acknowledgements, RNR NAKs among them.
    Naks,
    /// Congestion notifications.
    Cnps,
}

/// A place in a sequence. A flow is the requests, the READ responses or the acknowledgements from one
/// address to one queue pair at another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PsnFilter {
    /// Any.
    Any,
    /// PSNs from `first` to `last`, both included.
    Between {
        /// The first.
        first: Psn,
        /// The last.
        last: Psn,
    },
    /// PSNs that lie `first` to `last` after the first one that this link saw of the flow.
    Offset {
        /// The smallest distance, from 0.
        first: u32,
        /// The largest distance.
        last: u32,
    },
    /// The `first` to `last` distinct packets of the flow in the order in which this link first saw
    /// them, each again whenever it is resent.
    Nth {
        /// The first, from 1.
        first: u32,
        /// The last.
        last: u32,
    },
}

impl PsnFilter {
    /// One PSN.
    pub const fn at(psn: Psn) -> PsnFilter {
        PsnFilter::Between {
            first: psn,
            last: psn,
        }
    }

    /// The `n`-th distinct packet of the flow, from 1.
    pub const fn nth(n: u32) -> PsnFilter {
        PsnFilter::Nth { first: n, last: n }
    }
}

impl Filter {
    /// Every packet.
    pub const ALL: Filter = Filter {
        dest_qp: None,
        src: None,
        dst: None,
        connection: None,
        opcodes: Opcodes::Any,
        psn: PsnFilter::Any,
        copy: None,
        round: None,
    };

    /// True if it asks what the link has seen before.
    pub(super) fn looks_back(&self) -> bool {
        self.copy.is_some()
            || self.round.is_some()
            || matches!(self.psn, PsnFilter::Offset { .. } | PsnFilter::Nth { .. })
    }

    /// True if the packet is one of those. `sighting` is there if some filter on the channel looks back.
    pub(super) fn passes(
        &self,
        packet: &Packet,
        route: &Route,
        sighting: Option<&Sighting>,
    ) -> bool {
        let psn = packet.bth.psn();
        let seen = |f: &dyn Fn(&Sighting) -> bool| sighting.is_some_and(f);
        self.dest_qp.is_none_or(|qp| qp == packet.bth.dest_qp())
            && self.src.is_none_or(|gid| gid == route.src)
            && self.dst.is_none_or(|gid| gid == route.dst)
            && self
                .connection
                .is_none_or(|ends| ends.contains(&(route.dst, packet.bth.dest_qp())))
            && self.opcodes.contain(packet)
            && match self.psn {
                PsnFilter::Any => true,
                PsnFilter::Between { first, last } => {
                    // As distances from `first`, so that a range may wrap.
                    psn.minus(first.get()).get() <= last.minus(first.get()).get()
                }
                PsnFilter::Offset { first, last } => seen(&|s| (first..=last).contains(&s.offset)),
                PsnFilter::Nth { first, last } => seen(&|s| (first..=last).contains(&s.ordinal)),
            }
            && self.copy.is_none_or(|n| seen(&|s| s.copy == n))
            && self.round.is_none_or(|n| seen(&|s| s.round == n))
    }
}

impl Opcodes {
    fn contain(self, packet: &Packet) -> bool {
        let opcode = packet.bth.opcode();
        let acknowledges = matches!(
            opcode.operation(),
            Operation::Acknowledge | Operation::AtomicAcknowledge
        );
        match self {
            Opcodes::Any => true,
            Opcodes::One(one) => one == opcode,
            Opcodes::Requests => !opcode.is_response() && opcode.operation() != Operation::Cnp,
            Opcodes::Data => matches!(
                opcode.operation(),
                Operation::Send | Operation::Write | Operation::ReadResponse
            ),
            Opcodes::ReadResponses => opcode.operation() == Operation::ReadResponse,
            Opcodes::Acknowledges => acknowledges,
            Opcodes::Naks => packet.ext.aeth().is_some_and(|a| {
                acknowledges
                    && matches!(
                        a.syndrome.kind(),
                        SyndromeKind::Nak(_) | SyndromeKind::RnrNak { .. }
                    )
            }),
            Opcodes::Cnps => opcode.operation() == Operation::Cnp,
        }
    }
}
