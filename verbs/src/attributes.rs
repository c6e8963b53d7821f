//! What a device and its ports are like.

use crate::{Gid, Mtu};

/// What a device can do (`ibv_device_attr`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_device_attr")]
pub struct DeviceAttributes {
    /// Version of firmware or program.
    pub fw_ver: String,
    /// Identifies the device.
    pub node_guid: u64,
    /// Vendor, as IEEE numbers it; 0 for software.
    pub vendor_id: u32,
    /// Kind of device, as its vendor numbers it.
    pub vendor_part_id: u32,
    /// Longest memory region in bytes.
    pub max_mr_size: u64,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most requests of a work queue.
    pub max_qp_wr: u32,
    /// Most elements of a request.
    pub max_sge: u32,
    /// Most completion queues.
    pub max_cq: u32,
    /// Most entries of a completion queue.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Most protection domains.
    pub max_pd: u32,
    /// READs and atomics that peers may have outstanding at one queue pair.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair may have outstanding.
    pub max_qp_init_rd_atom: u32,
    /// What atomics are atomic with.
    pub atomic_cap: AtomicCap,
    /// Most memory windows.
    pub max_mw: u32,
    /// Most address handles.
    pub max_ah: u32,
    /// Most shared receive queues.
    pub max_srq: u32,
    /// Most requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Most elements of a request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Most multicast groups that queue pairs may be attached to.
    pub max_mcast_grp: u32,
    /// Entries of the P_Key tables.
    pub max_pkeys: u16,
    /// Physical ports.
    pub phys_port_cnt: u8,
}

/// What a port is like (`ibv_port_attr`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_port_attr")]
pub struct PortAttributes {
    /// Whether it can be used.
    pub state: PortState,
    /// Largest path MTU it can have.
    pub max_mtu: Mtu,
    /// Largest path MTU it has.
    pub active_mtu: Mtu,
    /// Entries of its GID table.
    pub gid_tbl_len: u32,
    /// Entries of its P_Key table.
    pub pkey_tbl_len: u16,
    /// Longest message in bytes.
    pub max_msg_sz: u32,
    /// What its frames are.
    pub link_layer: LinkLayer,
    /// Lanes of its link; 0 if that is not known, as on software cards.
    pub active_width: u8,
    /// Mb/s of each lane: 2500 (SDR), 5000, 10,000, 14,000, 25,000 (EDR), 50,000, 100,000 (NDR); 0 if that is not known,
    /// as on software cards: their rate is that of the network they are in.
    pub active_speed: u32,
}

/// What the atomics of a device are atomic with (`ibv_atomic_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_atomic_cap")]
pub enum AtomicCap {
    /// There are none.
    #[default]
    None,
    /// With those of other queue pairs of the same device.
    Hca,
    /// With all of the machine: other devices, and programs' own.
    Glob,
}

impl AtomicCap {
    /// libibverbs' name: `ATOMIC_HCA`.
    pub const fn name(self) -> &'static str {
        match self {
            AtomicCap::None => "ATOMIC_NONE",
            AtomicCap::Hca => "ATOMIC_HCA",
            AtomicCap::Glob => "ATOMIC_GLOB",
        }
    }
}

/// What the frames of a port are (`ibv_port_attr`'s `link_layer`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// The device does not say.
    Unspecified,
    /// InfiniBand's.
    InfiniBand,
    /// Ethernet's.
    Ethernet,
}

impl LinkLayer {
    /// As `ibv_devinfo` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            LinkLayer::Unspecified => "Unspecified",
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        }
    }
}

/// What a queue pair was granted (`ibv_qp_cap`): at least what was asked for
/// ([`QueuePair::cap`](crate::QueuePair::cap)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCap {
    /// Send requests it holds.
    pub max_send_wr: u32,
    /// Receive requests it holds; with a shared receive queue it means nothing, 0 on software cards.
    pub max_recv_wr: u32,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request; with a shared receive queue as `max_recv_wr`.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send request.
    pub max_inline_data: u32,
}

/// State of a port (`ibv_port_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No link.
    Down,
    /// Being set up.
    Init,
    /// Set up, and not yet in use.
    Armed,
    /// In use.
    Active,
}

impl PortState {
    /// libibverbs' name: `PORT_ACTIVE`.
    pub const fn name(self) -> &'static str {
        match self {
            PortState::Down => "PORT_DOWN",
            PortState::Init => "PORT_INIT",
            PortState::Armed => "PORT_ARMED",
            PortState::Active => "PORT_ACTIVE",
        }
    }
}

/// An entry of a port's GID table (`ibv_gid_entry`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_gid_entry")]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// What packets with it look like.
    pub gid_type: GidType,
}

/// What packets from a GID look like (`ibv_gid_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_gid_type")]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// GRH in Ethernet.
    RoceV1,
    /// BTH in UDP.
    RoceV2,
}

impl GidType {
    /// As the kernel's `gid_attrs/types` has it: `RoCE v2`.
    pub const fn name(self) -> &'static str {
        match self {
            GidType::Ib => "IB",
            GidType::RoceV1 => "IB/RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        }
    }
}
