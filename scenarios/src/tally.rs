//! What a card has counted, as reports have it.

use serde::Serialize;
use softroce_sim::card::Counters;
use std::fmt::{self, Display};

/// The counters of a card that reports have, whatever it is on.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    sent_packets: u64,
    received_packets: u64,
    retransmitted_packets: u64,
    timeouts: u64,
    naks_sent: u64,
    naks_received: u64,
    rnr_naks_sent: u64,
    rnr_naks_received: u64,
    duplicate_requests: u64,
    out_of_sequence: u64,
    ecn_marked: u64,
    cnps_sent: u64,
    cnps_received: u64,
}

impl From<&Counters> for Tally {
    fn from(c: &Counters) -> Tally {
        Tally {
            sent_packets: c.sent_packets,
            received_packets: c.received_packets,
            retransmitted_packets: c.retransmitted_packets,
            timeouts: c.timeouts,
            naks_sent: c.naks_sent.total(),
            naks_received: c.naks_received.total(),
            rnr_naks_sent: c.rnr_naks_sent,
            rnr_naks_received: c.rnr_naks_received,
            duplicate_requests: c.duplicate_requests,
            out_of_sequence: c.out_of_sequence,
            ecn_marked: c.ecn_marked,
            cnps_sent: c.cnps_sent,
            cnps_received: c.cnps_received,
        }
    }
}

/// In one line.
impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets sent, {} received, {} retransmitted, {} timeouts; NAKs: {} sent, {} received; \
             RNR NAKs: {} sent, {} received",
            self.sent_packets,
            self.received_packets,
            self.retransmitted_packets,
            self.timeouts,
            self.naks_sent,
            self.naks_received,
            self.rnr_naks_sent,
            self.rnr_naks_received
        )?;
        match self.ecn_marked {
            0 => Ok(()),
            n => write!(f, "; {n} arrived ECN-marked"),
        }
    }
}
