//! The verbs API in Rust: one program on three kinds of device.
//!
//! A program gets a [`Context`] and does everything through it. Whether its device is a card in a network
//! in virtual time, a software card on a socket, or hardware, is chosen by name, and nothing else in the
//! program changes. Each item is found under libibverbs' name as well: search for `ibv_post_send`.
//!
//! | libibverbs | here |
//! |---|---|
//! | `ibv_get_device_list`, `ibv_open_device` | [`devices`], [`open`] |
//! | `ibv_query_device`, `_port`, `_gid` | [`Context`] |
//! | `ibv_alloc_pd`, `ibv_reg_mr`, `ibv_alloc_mw`, `ibv_create_ah` | [`ProtectionDomain`], [`MemoryRegion`], [`MemoryWindow`], [`AddressHandle`] |
//! | `ibv_create_cq`, `ibv_poll_cq`, `ibv_req_notify_cq` | [`CompletionQueue`], [`CompletionChannel`] |
//! | `ibv_create_srq` | [`SharedReceiveQueue`] |
//! | `ibv_create_qp`, `ibv_modify_qp`, `ibv_post_send`, `ibv_post_recv` | [`QpBuilder`], [`QueuePair`] |
//! | `rdma_listen`, `rdma_connect`, `rdma_accept` | [`cm`] |
//! | `ibv_get_async_event` | [`Context::get_async_event`] |
//!
//! What libibverbs does not have, and a program that runs in virtual time needs from its device: the clock
//! ([`Context::now`], [`Context::sleep`]), threads ([`Context::spawn`]), and the exchange of addresses with
//! the program at the other end ([`Context::exchange`]).
//!
//! Objects destroy themselves when they are dropped, and keep alive what they need: a completion queue
//! lives as long as a queue pair that completes into it. Memory is a [`Buffer`], which
//! program and card touch at the same time without undefined behaviour.

pub mod attributes;
pub mod cm;
mod completion;
mod context;
mod device;
mod domain;
mod error;
mod event;
mod exchange;
pub mod provider;
mod queue_pair;
mod srq;

pub use attributes::QpCap;
pub use completion::{CompletionChannel, CompletionQueue};
pub use context::{Context, Spawned};
#[cfg(target_os = "linux")]
pub use device::software;
pub use device::{Device, DeviceKind, devices, open};
pub use domain::{AddressHandle, MemoryRegion, MemoryWindow, ProtectionDomain};
pub use error::{BadRequest, Error, ErrorKind, Result};
pub use event::{AsyncEvent, CqId, SrqId};
pub use exchange::{Endpoint, MAX_MESSAGE, Partner, Role, reach};
pub use queue_pair::{Connection, QpBuilder, QueuePair};
pub use srq::SharedReceiveQueue;

pub(crate) use softroce_sim::card::AddressHandle as AddressId;
/// Devices of libibverbs have no place for three of its fields, and refuse them when they are set
/// ([`Error::Unsupported`]): `dmac` and `vlan`, which the kernel takes from its routes, and `udp_src`, which drivers derive
/// from `flow_label`, each in its own way.
///
#[doc(inline)]
pub use softroce_sim::card::AddressVector;
pub use softroce_sim::card::{
    Completion, CompletionKind, CreateError, Datagram, ModifyError, Mtu, Notify, Peer, PostError,
    QpAttributes, QpType, RecvRequest, Reliability, Remote, SendRequest, Sge, State, Status, Work,
};
pub use softroce_sim::memory::{
    Access, Binding, Buffer, LocalKey, RegisterError, WindowError, WindowType,
};
pub use softroce_sim::wire::{Gid, Immediate, MacAddr, Psn, QpNumber, RemoteKey, Vlan};
