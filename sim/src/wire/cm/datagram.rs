//! Messages that find the queue pair of a datagram service.

use super::codes::{CommId, ServiceId, SidrStatus};
use super::fields::{Bytes, message};
use crate::wire::QpNumber;

message! {
    /// SIDR_REQ: which queue pair is the service's?
    SidrReq {
        /// The sender's name for the question.
        request_id: CommId = 0, 0, 32;
        /// Partition.
        pkey: u16 = 4, 0, 16;
        /// The service.
        service_id: ServiceId = 8, 0, 64;
        /// The program's own, behind the [`IpHeader`](super::IpHeader) of an IP service.
        private_data: Bytes<216> = 16, 0, 1728;
    }
}

message! {
    /// SIDR_REP: the answer.
    SidrRep {
        /// The asker's name for the question.
        request_id: CommId = 0, 0, 32;
        /// Whether there is one.
        status: SidrStatus = 4, 0, 8;
        /// Bytes of `info` that mean something.
        info_len: u8 = 5, 0, 8;
        /// The queue pair.
        qp: QpNumber = 8, 0, 24;
        /// The service.
        service_id: ServiceId = 12, 0, 64;
        /// Q_Key of the queue pair.
        qkey: u32 = 20, 0, 32;
        /// More about the status.
        info: Bytes<72> = 24, 0, 576;
        /// The program's own.
        private_data: Bytes<136> = 96, 0, 1088;
    }
}
