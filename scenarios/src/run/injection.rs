//! From a fault of the format to one of the simulator.

use crate::format::fault;
use softroce_sim::faults::{Action, Fault, Filter, GilbertElliott, Opcodes, Pattern, PsnFilter};
use softroce_sim::wire::{Opcode, Psn};

/// The fault, for the packets of every queue pair.
pub(crate) fn fault(injection: &fault::Injection) -> Fault {
    Fault {
        filter: filter(&injection.filter),
        pattern: pattern(&injection.pick),
        action: action(injection.action),
        at_most: injection.at_most,
    }
}

fn filter(filter: &fault::Filter) -> Filter {
    use fault::PacketClass as P;
    Filter {
        opcodes: match filter.packets {
            P::Any => Opcodes::Any,
            P::Data => Opcodes::Data,
            P::Request => Opcodes::Requests,
            P::ReadRequest => Opcodes::One(Opcode::RC_READ_REQUEST),
            P::ReadResponse => Opcodes::ReadResponses,
            P::Ack => Opcodes::Acknowledges,
            P::Nak => Opcodes::Naks,
            P::Cnp => Opcodes::Cnps,
        },
        psn: match filter.psn {
            None => PsnFilter::Any,
            Some(fault::PsnPick::Absolute(psn)) => PsnFilter::at(Psn::new(psn)),
            Some(fault::PsnPick::Relative(n)) => PsnFilter::Offset { first: n, last: n },
        },
        copy: filter.copy,
        round: filter.round,
        ..Filter::ALL
    }
}

fn pattern(pick: &fault::Pick) -> Pattern {
    match *pick {
        fault::Pick::Loss(p) => Pattern::Random(p.draw()),
        fault::Pick::Burst {
            enter,
            leave,
            rate_good,
            rate_bad,
        } => Pattern::Burst(GilbertElliott {
            p: enter.draw(),
            r: leave.draw(),
            good: rate_good.draw(),
            bad: rate_bad.draw(),
        }),
        // The file counts from 1, the injector from 0.
        fault::Pick::Every { every, phase } => Pattern::Every {
            n: every,
            phase: phase - 1,
        },
        fault::Pick::All => Pattern::Always,
    }
}

const fn action(action: fault::Action) -> Action {
    match action {
        fault::Action::Drop => Action::Drop,
        fault::Action::Corrupt => Action::CorruptOnLink,
        fault::Action::CorruptDevice => Action::CorruptInDevice,
        fault::Action::MarkEcn => Action::MarkEcn,
        fault::Action::Duplicate(delay) => Action::Duplicate { delay },
        fault::Action::Delay(by) => Action::Delay { by },
        fault::Action::Reorder { behind, hold } => Action::Reorder {
            packets: behind,
            limit: hold,
        },
    }
}
