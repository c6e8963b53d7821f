//! Multicast groups, and what `ibv_attach_mcast` leaves to its caller: to tell the network of the membership.
//!
//! On RoCEv2 over IPv4 that is IGMP's to say, which the kernel does for a socket that joins the group, as
//! rdma_cm does it (`rdma_join_multicast`). The kernel's Soft-RoCE also loops datagrams back to this machine
//! only while it is a member in that sense.

use super::abi::ibv_qp;
use super::{IbvProvider, check, convert};
use crate::attributes::GidType;
use crate::provider::Handle;
use crate::{Error, Gid, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Mutex, MutexGuard};

/// Sockets that are members of groups, each for as long as a queue pair is attached to it.
#[derive(Default)]
pub(super) struct Memberships(Mutex<BTreeMap<(Handle, Gid), UdpSocket>>);

impl Memberships {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(Handle, Gid), UdpSocket>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn member(group: Ipv4Addr, interface: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.join_multicast_v4(&group, &interface)?;
    Ok(socket)
}

impl IbvProvider {
    pub(super) fn attach(&self, qp: Handle, group: Gid) -> Result<()> {
        let gid = convert::raw_gid(group);
        // SAFETY: the queue pair is one of this device's.
        let code =
            unsafe { (self.context.verbs.ibv_attach_mcast)(qp as *mut ibv_qp, &raw const gid, 0) };
        check(&format!("ibv_attach_mcast to {group}"), code)?;
        let own = self.gid_at(1, self.gid_index.into())?;
        if own.gid_type != GidType::RoceV2 {
            return Ok(());
        }
        if let (Some(group_ip), Some(interface)) = (group.ipv4(), own.gid.ipv4()) {
            let joined = member(group_ip, interface).map_err(|source| Error::Os {
                call: format!("joining {group} at {interface}"),
                source,
            });
            let socket = joined.inspect_err(|_| {
                let _ = self.detach(qp, group);
            })?;
            self.memberships.all().insert((qp, group), socket);
        }
        Ok(())
    }

    pub(super) fn detach(&self, qp: Handle, group: Gid) -> Result<()> {
        let gid = convert::raw_gid(group);
        // SAFETY: the queue pair is one of this device's.
        let code =
            unsafe { (self.context.verbs.ibv_detach_mcast)(qp as *mut ibv_qp, &raw const gid, 0) };
        check(&format!("ibv_detach_mcast from {group}"), code)?;
        self.memberships.all().remove(&(qp, group));
        Ok(())
    }
}
