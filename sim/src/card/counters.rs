//! Plain counters, always on: the first of the three tiers of events.

use super::Refusal;
use crate::wire::NakCode;

/// What a queue pair, or a card as a whole, has counted since it was made. Comments give the names of rdma_rxe's or ConnectX's
/// counters where they have one. Those of every packet stand in front, side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// Packets handed to the port (`sent_pkts`).
    pub sent_packets: u64,
    /// Packets taken from the port (`rcvd_pkts`).
    pub received_packets: u64,
    /// Request packets handed to the port.
    pub request_packets: u64,
    /// Request packets sent again.
    pub retransmitted_packets: u64,
    /// READ response packets handed to the port.
    pub read_response_packets: u64,
    /// Positive acknowledgements sent.
    pub acks_sent: u64,
    /// Positive acknowledgements received.
    pub acks_received: u64,
    /// NAKs sent, by code.
    pub naks_sent: NakCounts,
    /// NAKs received, by code; those for sequence are `packet_seq_err`.
    pub naks_received: NakCounts,
    /// RNR NAKs sent (`send_rnr_err`).
    pub rnr_naks_sent: u64,
    /// RNR NAKs received (`rcvd_rnr_err`).
    pub rnr_naks_received: u64,
    /// Transport timers that ran out (`local_ack_timeout_err`).
    pub timeouts: u64,
    /// READ responses found missing by a later response (`implied_nak_seq_err`).
    pub implied_naks: u64,
    /// Requests that came again (`duplicate_request`).
    pub duplicate_requests: u64,
    /// Requests that came after a gap (`out_of_sequence`).
    pub out_of_sequence: u64,
    /// Packets of a peer that were marked "congestion experienced" (`np_ecn_marked_roce_packets`).
    pub ecn_marked: u64,
    /// Congestion notification packets sent (`np_cnp_sent`).
    pub cnps_sent: u64,
    /// Congestion notification packets received (`rp_cnp_handled` and `rp_cnp_ignored` together).
    pub cnps_received: u64,
    /// Those that nothing came of, as the queue pair has no congestion control that heeds them
    /// (`rp_cnp_ignored`).
    pub cnps_ignored: u64,
    /// Packets dropped by the card, by reason.
    pub refused: RefusalCounts,
}

/// NAKs by code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NakCounts {
    /// PSN sequence error.
    pub sequence: u64,
    /// Invalid request.
    pub invalid_request: u64,
    /// Remote access error.
    pub remote_access: u64,
    /// Remote operational error.
    pub remote_operational: u64,
}

impl NakCounts {
    pub(crate) fn count(&mut self, code: NakCode) {
        match code {
            NakCode::PsnSequenceError => self.sequence += 1,
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => self.invalid_request += 1,
            NakCode::RemoteAccessError => self.remote_access += 1,
            NakCode::RemoteOperationalError => self.remote_operational += 1,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.sequence + self.invalid_request + self.remote_access + self.remote_operational
    }
}

/// Packets dropped by a card, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusalCounts([u64; Refusal::ALL.len()]);

impl RefusalCounts {
    #[inline]
    pub(crate) fn count(&mut self, why: Refusal) {
        self.0[why as usize] += 1;
    }

    /// How many were dropped for `why`.
    pub fn get(&self, why: Refusal) -> u64 {
        self.0[why as usize]
    }

    /// Reasons that occurred, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL
            .into_iter()
            .map(|r| (r, self.get(r)))
            .filter(|&(_, n)| n > 0)
    }
}

/// Adds field by field.
macro_rules! add {
    ($to:expr, $from:expr; $($field:ident),+ $(,)?) => { $($to.$field += $from.$field;)+ };
}

impl Counters {
    /// Those that have moved since `earlier`, with the name that rdma_rxe or ConnectX has for them, if there
    /// is one, and by how much.
    pub fn since(&self, earlier: &Counters) -> Vec<(&'static str, u64)> {
        let naks = |c: &Counters| [c.naks_sent, c.naks_received];
        let ([sent, received], [sent_before, received_before]) = (naks(self), naks(earlier));
        let mut moved = vec![
            ("sent_pkts", self.sent_packets, earlier.sent_packets),
            ("rcvd_pkts", self.received_packets, earlier.received_packets),
            (
                "request_packets",
                self.request_packets,
                earlier.request_packets,
            ),
            (
                "retransmitted_packets",
                self.retransmitted_packets,
                earlier.retransmitted_packets,
            ),
            (
                "read_response_packets",
                self.read_response_packets,
                earlier.read_response_packets,
            ),
            ("acks_sent", self.acks_sent, earlier.acks_sent),
            ("acks_received", self.acks_received, earlier.acks_received),
            ("sequence_naks_sent", sent.sequence, sent_before.sequence),
            (
                "invalid_request_naks_sent",
                sent.invalid_request,
                sent_before.invalid_request,
            ),
            (
                "remote_access_naks_sent",
                sent.remote_access,
                sent_before.remote_access,
            ),
            (
                "remote_operational_naks_sent",
                sent.remote_operational,
                sent_before.remote_operational,
            ),
            (
                "packet_seq_err",
                received.sequence,
                received_before.sequence,
            ),
            (
                "req_remote_invalid_request",
                received.invalid_request,
                received_before.invalid_request,
            ),
            (
                "req_remote_access_errors",
                received.remote_access,
                received_before.remote_access,
            ),
            (
                "remote_operational_naks_received",
                received.remote_operational,
                received_before.remote_operational,
            ),
            ("send_rnr_err", self.rnr_naks_sent, earlier.rnr_naks_sent),
            (
                "rcvd_rnr_err",
                self.rnr_naks_received,
                earlier.rnr_naks_received,
            ),
            ("local_ack_timeout_err", self.timeouts, earlier.timeouts),
            (
                "implied_nak_seq_err",
                self.implied_naks,
                earlier.implied_naks,
            ),
            (
                "duplicate_request",
                self.duplicate_requests,
                earlier.duplicate_requests,
            ),
            (
                "out_of_sequence",
                self.out_of_sequence,
                earlier.out_of_sequence,
            ),
            ("rp_cnp_handled", self.cnps_received, earlier.cnps_received),
        ];
        for why in Refusal::ALL {
            moved.push((why.name(), self.refused.get(why), earlier.refused.get(why)));
        }
        let by = moved
            .into_iter()
            .map(|(name, n, before)| (name, n - before));
        by.filter(|&(_, n)| n > 0).collect()
    }
}

impl std::ops::AddAssign<&Counters> for Counters {
    fn add_assign(&mut self, other: &Counters) {
        add!(self, other;
            sent_packets, received_packets, request_packets, retransmitted_packets,
            read_response_packets, acks_sent, acks_received, naks_sent, naks_received,
            rnr_naks_sent, rnr_naks_received, timeouts, implied_naks, duplicate_requests,
            out_of_sequence, ecn_marked, cnps_sent, cnps_received, cnps_ignored,
        );
        for (to, from) in self.refused.0.iter_mut().zip(other.refused.0) {
            *to += from;
        }
    }
}

impl std::ops::AddAssign for NakCounts {
    fn add_assign(&mut self, other: NakCounts) {
        add!(self, other; sequence, invalid_request, remote_access, remote_operational);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naks_are_counted_by_their_code() {
        let mut n = NakCounts::default();
        for (times, code) in [
            (1, NakCode::PsnSequenceError),
            (2, NakCode::InvalidRequest),
            (3, NakCode::RemoteAccessError),
            (4, NakCode::RemoteOperationalError),
        ] {
            (0..times).for_each(|_| n.count(code));
        }
        assert_eq!((n.sequence, n.invalid_request), (1, 2));
        assert_eq!((n.remote_access, n.remote_operational), (3, 4));
        assert_eq!(n.total(), 10);
    }

    #[test]
    fn reasons_that_occurred_are_told_with_how_often() {
        let mut refused = RefusalCounts::default();
        assert_eq!(refused.iter().count(), 0);
        refused.count(Refusal::Ghost);
        refused.count(Refusal::BadIcrc);
        refused.count(Refusal::Ghost);
        let told: Vec<_> = refused.iter().collect();
        assert_eq!(told, [(Refusal::BadIcrc, 1), (Refusal::Ghost, 2)]);
    }
}
