//! Messages about connections.

use super::codes::{About, CommId, RejectReason, ServiceId, Transport};
use super::fields::{Bytes, message};
use crate::wire::{Gid, Psn, QpNumber};

message! {
    /// REQ: a request for a connection.
    Req {
        /// The requester's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// What is to be connected to.
        service_id: ServiceId = 8, 0, 64;
        /// GUID of the requester's card.
        ca_guid: u64 = 16, 0, 64;
        /// Q_Key, of datagram services only.
        qkey: u32 = 28, 0, 32;
        /// The requester's queue pair.
        qp: QpNumber = 32, 0, 24;
        /// READs and atomics that the requester answers at a time.
        responder_resources: u8 = 35, 0, 8;
        /// End-to-end context, of reliable datagrams only.
        local_eecn: QpNumber = 36, 0, 24;
        /// READs and atomics that the requester will have outstanding.
        initiator_depth: u8 = 39, 0, 8;
        /// End-to-end context asked for, of reliable datagrams only.
        remote_eecn: QpNumber = 40, 0, 24;
        /// The most time that the peer may take to answer a message: 4.096 us x 2^n.
        remote_response_timeout: u8 = 43, 0, 5;
        /// Transport service.
        transport: Transport = 43, 5, 2;
        /// The requester puts credits into acknowledgements.
        flow_control: bool = 43, 7, 1;
        /// First PSN that the peer is to send.
        starting_psn: Psn = 44, 0, 24;
        /// The most time that the requester takes to answer a message: 4.096 us x 2^n.
        local_response_timeout: u8 = 47, 0, 5;
        /// Retries of the peer's queue pair.
        retry_count: u8 = 47, 5, 3;
        /// Partition.
        pkey: u16 = 48, 0, 16;
        /// Path MTU: 256 bytes x 2^(n-1).
        path_mtu: u8 = 50, 0, 4;
        /// Of reliable datagrams only.
        rdc_exists: bool = 50, 4, 1;
        /// RNR retries of the peer's queue pair.
        rnr_retry_count: u8 = 50, 5, 3;
        /// How often a message is sent again that is not answered.
        max_cm_retries: u8 = 51, 0, 4;
        /// The requester takes receives from a shared queue.
        srq: bool = 51, 4, 1;
        /// Of [`Transport::Extended`]: 1 is XRC.
        extended_transport: u8 = 51, 5, 3;
        /// Reserved in RoCEv2 (CA17-34).
        primary_local_lid: u16 = 52, 0, 16;
        /// Reserved in RoCEv2 (CA17-34).
        primary_remote_lid: u16 = 54, 0, 16;
        /// The requester's address.
        primary_local_gid: Gid = 56, 0, 128;
        /// The peer's address.
        primary_remote_gid: Gid = 72, 0, 128;
        /// Flow label.
        primary_flow_label: u32 = 88, 0, 20;
        /// Rate.
        primary_packet_rate: u8 = 91, 2, 6;
        /// Traffic class.
        primary_traffic_class: u8 = 92, 0, 8;
        /// Hop limit.
        primary_hop_limit: u8 = 93, 0, 8;
        /// Service level.
        primary_sl: u8 = 94, 0, 4;
        /// The path stays in the subnet.
        primary_subnet_local: bool = 94, 4, 1;
        /// Timeout exponent of the peer's queue pair.
        primary_ack_timeout: u8 = 95, 0, 5;
        /// Reserved in RoCEv2 (CA17-34).
        alternate_local_lid: u16 = 96, 0, 16;
        /// Reserved in RoCEv2 (CA17-34).
        alternate_remote_lid: u16 = 98, 0, 16;
        /// The requester's address of the alternate path.
        alternate_local_gid: Gid = 100, 0, 128;
        /// The peer's address of the alternate path.
        alternate_remote_gid: Gid = 116, 0, 128;
        /// Flow label.
        alternate_flow_label: u32 = 132, 0, 20;
        /// Rate.
        alternate_packet_rate: u8 = 135, 2, 6;
        /// Traffic class.
        alternate_traffic_class: u8 = 136, 0, 8;
        /// Hop limit.
        alternate_hop_limit: u8 = 137, 0, 8;
        /// Service level.
        alternate_sl: u8 = 138, 0, 4;
        /// The path stays in the subnet.
        alternate_subnet_local: bool = 138, 4, 1;
        /// Timeout exponent of the peer's queue pair.
        alternate_ack_timeout: u8 = 139, 0, 5;
        /// The program's own, behind the [`IpHeader`](super::IpHeader) of an IP service.
        private_data: Bytes<92> = 140, 0, 736;
    }
}

message! {
    /// MRA: the answer will take a while.
    Mra {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// What was received.
        about: About = 8, 0, 2;
        /// The most time until it is answered: 4.096 us x 2^n.
        service_timeout: u8 = 9, 0, 5;
        /// The program's own.
        private_data: Bytes<222> = 10, 0, 1776;
    }
}

message! {
    /// REJ: no.
    Rej {
        /// The sender's name for the connection; zero if it gave it none.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection; zero if it is not known.
        remote_id: CommId = 4, 0, 32;
        /// What is refused.
        about: About = 8, 0, 2;
        /// Bytes of `info` that mean something.
        info_len: u8 = 9, 0, 7;
        /// Why.
        reason: RejectReason = 10, 0, 16;
        /// More about the reason.
        info: Bytes<72> = 12, 0, 576;
        /// The program's own.
        private_data: Bytes<148> = 84, 0, 1184;
    }
}

message! {
    /// REP: yes.
    Rep {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The requester's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// Q_Key, of datagram services only.
        qkey: u32 = 8, 0, 32;
        /// The sender's queue pair.
        qp: QpNumber = 12, 0, 24;
        /// End-to-end context, of reliable datagrams only.
        local_eecn: QpNumber = 16, 0, 24;
        /// First PSN that the requester is to send.
        starting_psn: Psn = 20, 0, 24;
        /// READs and atomics that the sender answers at a time.
        responder_resources: u8 = 24, 0, 8;
        /// READs and atomics that the sender will have outstanding.
        initiator_depth: u8 = 25, 0, 8;
        /// The most time that the sender's card takes to acknowledge: 4.096 us x 2^n.
        target_ack_delay: u8 = 26, 0, 5;
        /// What became of the alternate path; zero is accepted.
        failover: u8 = 26, 5, 2;
        /// The sender puts credits into acknowledgements.
        flow_control: bool = 26, 7, 1;
        /// RNR retries of the requester's queue pair.
        rnr_retry_count: u8 = 27, 0, 3;
        /// The sender takes receives from a shared queue.
        srq: bool = 27, 3, 1;
        /// GUID of the sender's card.
        ca_guid: u64 = 28, 0, 64;
        /// The program's own.
        private_data: Bytes<196> = 36, 0, 1568;
    }
}

message! {
    /// RTU: the requester is ready to use the connection.
    Rtu {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// The program's own.
        private_data: Bytes<224> = 8, 0, 1792;
    }
}

message! {
    /// DREQ: the connection is to end.
    Dreq {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// The receiver's queue pair.
        remote_qp: QpNumber = 8, 0, 24;
        /// The program's own.
        private_data: Bytes<220> = 12, 0, 1760;
    }
}

message! {
    /// DREP: it has ended.
    Drep {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// The program's own.
        private_data: Bytes<224> = 8, 0, 1792;
    }
}

message! {
    /// LAP: another alternate path.
    Lap {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// The receiver's queue pair.
        remote_qp: QpNumber = 12, 0, 24;
        /// The most time that the receiver may take to answer: 4.096 us x 2^n.
        remote_response_timeout: u8 = 15, 0, 5;
        /// Reserved in RoCEv2 (CA17-36).
        alternate_local_lid: u16 = 20, 0, 16;
        /// Reserved in RoCEv2 (CA17-36).
        alternate_remote_lid: u16 = 22, 0, 16;
        /// The sender's address.
        alternate_local_gid: Gid = 24, 0, 128;
        /// The receiver's address.
        alternate_remote_gid: Gid = 40, 0, 128;
        /// Flow label.
        alternate_flow_label: u32 = 56, 0, 20;
        /// Traffic class.
        alternate_traffic_class: u8 = 59, 0, 8;
        /// Hop limit.
        alternate_hop_limit: u8 = 60, 0, 8;
        /// Rate.
        alternate_packet_rate: u8 = 61, 2, 6;
        /// Service level.
        alternate_sl: u8 = 62, 0, 4;
        /// The path stays in the subnet.
        alternate_subnet_local: bool = 62, 4, 1;
        /// Timeout exponent of the receiver's queue pair.
        alternate_ack_timeout: u8 = 63, 0, 5;
        /// The program's own.
        private_data: Bytes<168> = 64, 0, 1344;
    }
}

message! {
    /// APR: what became of a LAP.
    Apr {
        /// The sender's name for the connection.
        local_id: CommId = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_id: CommId = 4, 0, 32;
        /// Bytes of `info` that mean something.
        info_len: u8 = 8, 0, 8;
        /// Zero if the path is loaded, else why not.
        status: u8 = 9, 0, 8;
        /// More about the status.
        info: Bytes<72> = 12, 0, 576;
        /// The program's own.
        private_data: Bytes<148> = 84, 0, 1184;
    }
}
