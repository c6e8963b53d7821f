//! Whatever libibverbs lists: hardware, or the kernel's own Soft-RoCE. The library is looked for when it is
//! needed; where there is none, there are no such devices.
//!
//! | file | what |
//! |---|---|
//! | `abi` | libibverbs' structures |
//! | `library` | libibverbs, found at run time |
//! | `convert` | this crate's types as libibverbs', and back |
//! | `events` | waiting for events |
//! | `groups` | multicast groups |
//! | `queues` | posting and polling |

#![allow(unsafe_code)]

mod abi;
mod convert;
mod events;
mod groups;
mod library;
mod queues;

use super::{Exchange, Handle, Join, Provider, QpSpec};
use crate::attributes::{DeviceAttributes, GidEntry, GidType, PortAttributes};
use crate::error::{Error, ErrorKind, Result};
use crate::event::AsyncEvent;
use crate::exchange::{Role, TcpExchange};
use crate::{
    Access, AddressId, AddressVector, Binding, Buffer, Gid, LocalKey, ModifyError, QpAttributes,
    RemoteKey, WindowType,
};
use abi::*;
use library::{Verbs, check, check_pointer};
use softroce_sim::memory::MemoryRegion;
use softroce_sim::places::{MAX_PLACES, Places};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Names of the devices that libibverbs lists.
pub(crate) fn device_names() -> Vec<String> {
    library::device_names()
}

/// An opened device.
pub(crate) struct IbvProvider {
    name: String,
    number: u32,
    context: Arc<IbvContext>,
    /// The place in the GID table that its packets come from.
    gid_index: u8,
    memberships: groups::Memberships,
    opened: Instant,
}

/// What the objects of a device share.
struct IbvContext {
    verbs: &'static Verbs,
    context: *mut ibv_context,
    /// Flags that say that a completion has a key which was invalidated.
    invalidated: c_uint,
    keys: Mutex<Keys>,
}

// SAFETY: libibverbs' objects may be used by any thread, and several at once (its functions lock where
// they must); what is kept beside them is behind a mutex.
unsafe impl Send for IbvContext {}
// SAFETY: as above.
unsafe impl Sync for IbvContext {}

/// Objects by the numbers that requests name them by.
#[derive(Default)]
struct Keys {
    regions: BTreeMap<u32, *mut ibv_mr>,
    /// By the upper 24 bits of their keys.
    windows: BTreeMap<u32, *mut ibv_mw>,
    addresses: Places<*mut ibv_ah>,
}

impl IbvContext {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn ops(&self) -> &ibv_context_ops {
        // SAFETY: the context is open as long as self lives, and drivers fill in the table before that.
        unsafe { &(*self.context).ops }
    }
}

impl Drop for IbvContext {
    fn drop(&mut self) {
        // SAFETY: it was opened, and all its objects hold self and are gone.
        unsafe { (self.verbs.ibv_close_device)(self.context) };
    }
}

/// Opens the device called `name`, or `name@3` with the third place of its GID table; `None` if libibverbs
/// lists none of that name.
pub(crate) fn open(name: &str) -> Result<Option<IbvProvider>> {
    let (device, index) = match name.split_once('@') {
        Some((device, index)) => match index.parse::<u8>() {
            Ok(index) => (device, Some(index)),
            Err(_) if library::device_names().iter().any(|n| n == device) => {
                return Err(Error::BadName {
                    name: name.into(),
                    why: format!(
                        "{index:?} is not a place of a GID table, 0 to 255, as in {device}@3"
                    ),
                });
            }
            Err(_) => return Ok(None),
        },
        None => (name, None),
    };
    let Some(verbs) = library::verbs() else {
        return Ok(None);
    };
    let Some(context) = library::open(verbs, device)? else {
        return Ok(None);
    };
    let mut provider = IbvProvider {
        name: device.into(),
        number: super::next_number(),
        context: Arc::new(IbvContext {
            verbs,
            context,
            invalidated: library::invalidated(verbs, context),
            keys: Mutex::default(),
        }),
        gid_index: 0,
        memberships: groups::Memberships::default(),
        opened: Instant::now(),
    };
    // SAFETY: the context is open.
    unsafe { events::do_not_block((*context).async_fd) }?;
    provider.gid_index = match index {
        Some(index) => index,
        None => provider.best_gid(),
    };
    Ok(Some(provider))
}

/// What libibverbs calls windows of type 1.
const TYPE_1: c_int = 1;

/// What a window of type 1 is bound by.
///
/// # Errors
///
/// EINVAL, as a driver says of a window or region that is not its own, of a region that `keys` does not know, a
/// length of zero (which would end the binding and needs none) included, and of a window of another type.
fn bind_request(keys: &Keys, kind: c_int, binding: &Binding) -> Result<ibv_mw_bind> {
    let region = keys.regions.get(&binding.lkey.0);
    match region {
        Some(&mr) if kind == TYPE_1 => Ok(ibv_mw_bind {
            wr_id: 0,
            send_flags: 0,
            bind_info: convert::binding(binding, mr),
        }),
        _ => Err(Error::Os {
            call: "ibv_bind_mw".into(),
            source: rustix::io::Errno::INVAL.into(),
        }),
    }
}

impl IbvProvider {
    /// The first RoCEv2 address of IPv4, else the first of RoCEv2, else the first.
    fn best_gid(&self) -> u8 {
        let count = self
            .query_port(1)
            .map_or(0, |port| port.gid_tbl_len.min(255));
        let entries: Vec<(u32, GidEntry)> = (0..count)
            .filter_map(|i| Some((i, self.gid_at(1, i).ok()?)))
            .collect();
        let v2 = |e: &&(u32, GidEntry)| e.1.gid_type == GidType::RoceV2;
        let best = entries
            .iter()
            .filter(v2)
            .find(|e| e.1.gid.ipv4().is_some())
            .or_else(|| entries.iter().find(v2));
        best.map_or(0, |e| e.0 as u8)
    }

    fn gid_at(&self, port: u8, index: u32) -> Result<GidEntry> {
        let mut entry = ibv_gid_entry {
            gid: [0; 2],
            gid_index: 0,
            port_num: 0,
            gid_type: 0,
            ndev_ifindex: 0,
        };
        // SAFETY: the context is open, and the entry of the size that is said.
        let code = unsafe {
            (self.context.verbs._ibv_query_gid_ex)(
                self.context.context,
                port.into(),
                index,
                &raw mut entry,
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        check(&format!("ibv_query_gid_ex {index} of {}", self.name), code)?;
        Ok(GidEntry {
            gid: convert::gid(entry.gid),
            gid_type: match entry.gid_type {
                1 => GidType::RoceV1,
                2 => GidType::RoceV2,
                _ => GidType::Ib,
            },
        })
    }
}

impl Provider for IbvProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn gid_index(&self) -> u32 {
        self.gid_index.into()
    }

    fn query_device(&self) -> Result<DeviceAttributes> {
        let attr = library::device_attr(self.context.verbs, self.context.context)?;
        Ok(convert::device(&attr))
    }

    fn query_port(&self, port: u8) -> Result<PortAttributes> {
        // SAFETY: all its fields may be zero; the call fills in those of the older, shorter structure.
        let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open.
        let code = unsafe {
            (self.context.verbs.ibv_query_port)(self.context.context, port, &raw mut attr)
        };
        check(&format!("ibv_query_port {port} of {}", self.name), code).map_err(|e| {
            let ports = self.query_device().map_or(0, |d| d.phys_port_cnt);
            match (1..=ports).contains(&port) {
                true => e,
                false => self.no_such("port", port.into(), format!("ports 1 to {ports}")),
            }
        })?;
        Ok(convert::port(&attr))
    }

    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        let entry = self.gid_at(port, index);
        entry.or_else(|e| match self.query_port(port)?.gid_tbl_len {
            len if index < len && e.kind() != ErrorKind::NotFound => Err(e),
            len => Err(self.no_such("GID", index, format!("{len} places, not all in use"))),
        })
    }

    fn alloc_pd(&self) -> Result<Handle> {
        // SAFETY: the context is open.
        let pd = unsafe { (self.context.verbs.ibv_alloc_pd)(self.context.context) };
        Ok(check_pointer("ibv_alloc_pd", pd)? as Handle)
    }

    fn dealloc_pd(&self, pd: Handle) {
        // SAFETY: the handle is of alloc_pd, and its owner gives it up.
        unsafe { (self.context.verbs.ibv_dealloc_pd)(pd as *mut ibv_pd) };
    }

    fn reg_mr(
        &self,
        pd: Handle,
        memory: &Buffer,
        access: Access,
    ) -> Result<(Handle, MemoryRegion)> {
        if access.allows(Access::ZERO_BASED) {
            // ibv_reg_mr takes the flag and registers at the address all the same.
            return Err(self.unsupported("memory that begins at address zero"));
        }
        // SAFETY: the memory is that of a buffer, made to be written by others at any time; its owner keeps
        // it until the registration has ended.
        let mr = unsafe {
            (self.context.verbs.ibv_reg_mr)(
                pd as *mut ibv_pd,
                memory.as_ptr().cast(),
                memory.len(),
                access.bits().into(),
            )
        };
        let call = format!("ibv_reg_mr of {} bytes with {access}", memory.len());
        let mr = check_pointer(&call, mr)?;
        // SAFETY: it is a region.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        self.context.keys().regions.insert(lkey, mr);
        let region = MemoryRegion {
            addr: memory.as_ptr() as u64,
            len: memory.len() as u64,
            lkey: LocalKey(lkey),
            rkey: RemoteKey(rkey),
        };
        Ok((mr as Handle, region))
    }

    fn dereg_mr(&self, mr: Handle) -> Result<()> {
        let mr = mr as *mut ibv_mr;
        let mut keys = self.context.keys();
        // SAFETY: the handle is of reg_mr, and its owner gives it up. What has windows bound to it stays.
        unsafe {
            let lkey = (*mr).lkey;
            let code = (self.context.verbs.ibv_dereg_mr)(mr);
            check("ibv_dereg_mr", code)?;
            keys.regions.remove(&lkey);
        }
        Ok(())
    }

    fn alloc_mw(&self, pd: Handle, kind: WindowType) -> Result<(Handle, RemoteKey)> {
        let Some(alloc) = self.context.ops().alloc_mw else {
            return Err(self.unsupported("memory windows"));
        };
        let kind = match kind {
            WindowType::Type1 => TYPE_1,
            WindowType::Type2 => 2,
        };
        // SAFETY: the protection domain is one of this device's.
        let mw = check_pointer("ibv_alloc_mw", unsafe { alloc(pd as *mut ibv_pd, kind) })?;
        // SAFETY: it is a window.
        let rkey = unsafe { (*mw).rkey };
        self.context.keys().windows.insert(rkey >> 8, mw);
        Ok((mw as Handle, RemoteKey(rkey)))
    }

    fn dealloc_mw(&self, mw: Handle) {
        let mw = mw as *mut ibv_mw;
        // SAFETY: the handle is of alloc_mw, and its owner gives it up.
        unsafe {
            self.context.keys().windows.retain(|_, w| *w != mw);
            if let Some(dealloc) = self.context.ops().dealloc_mw {
                dealloc(mw);
            }
        }
    }

    fn create_ah(&self, pd: Handle, address: &AddressVector) -> Result<AddressId> {
        let attr = convert::address(address, self.gid_index);
        let mut attr = attr.map_err(|field| self.no_place_for(field))?;
        // SAFETY: the protection domain is one of this device's.
        let ah = unsafe { (self.context.verbs.ibv_create_ah)(pd as *mut ibv_pd, &raw mut attr) };
        let ah = check_pointer(&format!("ibv_create_ah to {}", address.dgid), ah)?;
        let place = self.context.keys().addresses.insert(ah);
        let Some(number) = place else {
            // SAFETY: it is an address handle, and given up with this.
            unsafe { (self.context.verbs.ibv_destroy_ah)(ah) };
            return Err(ModifyError::NoAddressHandle { limit: MAX_PLACES }.into());
        };
        Ok(AddressId::new(number))
    }

    fn destroy_ah(&self, ah: AddressId) {
        let known = self.context.keys().addresses.remove(ah.place);
        if let Some(ah) = known {
            // SAFETY: it is an address handle, and given up with this.
            unsafe { (self.context.verbs.ibv_destroy_ah)(ah) };
        }
    }

    fn create_comp_channel(&self) -> Result<Handle> {
        // SAFETY: the context is open.
        let channel = unsafe { (self.context.verbs.ibv_create_comp_channel)(self.context.context) };
        let channel = check_pointer("ibv_create_comp_channel", channel)?;
        // SAFETY: it is a channel.
        let set = unsafe { events::do_not_block((*channel).fd) };
        set.inspect_err(|_| self.destroy_comp_channel(channel as Handle))?;
        Ok(channel as Handle)
    }

    fn destroy_comp_channel(&self, channel: Handle) {
        // SAFETY: the handle is of create_comp_channel, and its owner gives it up.
        unsafe { (self.context.verbs.ibv_destroy_comp_channel)(channel as *mut ibv_comp_channel) };
    }

    fn next_comp_event(
        &self,
        channel: Handle,
        timeout: Option<Duration>,
    ) -> Result<Option<Handle>> {
        let channel = channel as *mut ibv_comp_channel;
        // SAFETY: the channel is one of this device's.
        let fd = unsafe { (*channel).fd };
        events::next(&self.name, fd, timeout, || {
            let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: as above; the event is acknowledged at once.
            unsafe {
                let get = self.context.verbs.ibv_get_cq_event;
                if get(channel, &raw mut cq, &raw mut user) != 0 {
                    return events::taken("ibv_get_cq_event");
                }
                (self.context.verbs.ibv_ack_cq_events)(cq, 1);
            }
            Ok(Some(cq as Handle))
        })
    }

    fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Handle>,
    ) -> Result<(Handle, Box<dyn super::CompletionQueue>)> {
        let channel = channel.map_or(std::ptr::null_mut(), |c| c as *mut ibv_comp_channel);
        // SAFETY: the context is open, and the channel one of its own.
        let cq = unsafe {
            (self.context.verbs.ibv_create_cq)(
                self.context.context,
                i32::try_from(cqe).unwrap_or(i32::MAX),
                std::ptr::null_mut(),
                channel,
                0,
            )
        };
        let cq = check_pointer(&format!("ibv_create_cq for {cqe} completions"), cq)?;
        let queue = queues::CompletionQueue::new(self.context.clone(), cq)?;
        Ok((cq as Handle, Box::new(queue)))
    }

    fn destroy_cq(&self, cq: Handle) {
        // SAFETY: the handle is of create_cq, and its owner gives it up.
        unsafe { (self.context.verbs.ibv_destroy_cq)(cq as *mut ibv_cq) };
    }

    fn create_srq(
        &self,
        pd: Handle,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<(Handle, Box<dyn super::SharedReceiveQueue>)> {
        let mut init = ibv_srq_init_attr {
            srq_context: std::ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr,
                max_sge,
                srq_limit: 0,
            },
        };
        // SAFETY: the protection domain is one of this device's.
        let srq = unsafe { (self.context.verbs.ibv_create_srq)(pd as *mut ibv_pd, &raw mut init) };
        let call = format!("ibv_create_srq for {max_wr} requests of {max_sge} elements");
        let srq = check_pointer(&call, srq)?;
        let queue = queues::SharedReceiveQueue::new(self.context.clone(), srq, init.attr);
        Ok((srq as Handle, Box::new(queue)))
    }

    fn set_srq_limit(&self, srq: Handle, limit: u32) -> Result<()> {
        let mut attr = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: limit,
        };
        // SAFETY: the queue is one of this device's.
        let code = unsafe {
            (self.context.verbs.ibv_modify_srq)(srq as *mut ibv_srq, &raw mut attr, IBV_SRQ_LIMIT)
        };
        check(&format!("ibv_modify_srq to a limit of {limit}"), code)
    }

    fn destroy_srq(&self, srq: Handle) {
        // SAFETY: the handle is of create_srq, and its owner gives it up.
        unsafe { (self.context.verbs.ibv_destroy_srq)(srq as *mut ibv_srq) };
    }

    fn create_qp(&self, spec: &QpSpec) -> Result<(Handle, Box<dyn super::QueuePair>)> {
        let mut init = convert::qp_init(spec);
        // SAFETY: domain and queues are of this device's.
        let qp =
            unsafe { (self.context.verbs.ibv_create_qp)(spec.pd as *mut ibv_pd, &raw mut init) };
        let qp = check_pointer(&format!("ibv_create_qp of {:?}", spec.qp_type), qp)?;
        let queue = queues::QueuePair::new(self.context.clone(), qp, spec, init.cap);
        Ok((qp as Handle, Box::new(queue)))
    }

    fn modify_qp(&self, qp: Handle, attributes: &QpAttributes) -> Result<()> {
        let converted = convert::qp_attributes(attributes, self.gid_index);
        let (mut attr, mask) = converted.map_err(|field| self.no_place_for(field))?;
        // SAFETY: the queue pair is one of this device's.
        let code =
            unsafe { (self.context.verbs.ibv_modify_qp)(qp as *mut ibv_qp, &raw mut attr, mask) };
        let to = match attributes.state {
            Some(state) => format!("ibv_modify_qp to {state}"),
            None => "ibv_modify_qp".into(),
        };
        check(&to, code)
    }

    fn query_qp(&self, qp: Handle) -> Result<QpAttributes> {
        // SAFETY: all fields of both may be zero or NULL; the call fills them in.
        let (mut attr, mut init) = unsafe { std::mem::zeroed::<(ibv_qp_attr, ibv_qp_init_attr)>() };
        // SAFETY: the queue pair is one of this device's.
        let code = unsafe {
            (self.context.verbs.ibv_query_qp)(
                qp as *mut ibv_qp,
                &raw mut attr,
                convert::EVERYTHING,
                &raw mut init,
            )
        };
        check("ibv_query_qp", code)?;
        Ok(convert::queried(&attr, init.qp_type))
    }

    fn bind_mw(&self, qp: Handle, mw: Handle, binding: &Binding) -> Result<RemoteKey> {
        let Some(bind) = self.context.ops().bind_mw else {
            return Err(self.unsupported("memory windows of type 1"));
        };
        let mw = mw as *mut ibv_mw;
        // Held until the new key is read, so that no region goes and no other thread binds the window meanwhile.
        let keys = self.context.keys();
        // SAFETY: the window is one of this device's.
        let kind = unsafe { (*mw).kind };
        let mut request = bind_request(&keys, kind, binding)?;
        // SAFETY: queue pair, window and region are of this device's.
        let code = unsafe { bind(qp as *mut ibv_qp, mw, &raw mut request) };
        check("ibv_bind_mw", code)?;
        // SAFETY: as above; the driver has put the new key into the window.
        Ok(RemoteKey(unsafe { (*mw).rkey }))
    }

    fn attach_mcast(&self, qp: Handle, group: Gid) -> Result<()> {
        self.attach(qp, group)
    }

    fn detach_mcast(&self, qp: Handle, group: Gid) -> Result<()> {
        self.detach(qp, group)
    }

    fn destroy_qp(&self, qp: Handle) {
        // SAFETY: the handle is of create_qp, and its owner gives it up.
        unsafe { (self.context.verbs.ibv_destroy_qp)(qp as *mut ibv_qp) };
    }

    fn next_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        // SAFETY: the context is open.
        let fd = unsafe { (*self.context.context).async_fd };
        events::next(&self.name, fd, timeout, || self.take_async_event())
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        super::spawn_thread(program)
    }

    fn exchange(&self, role: &Role, tell: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>> {
        Ok(Box::new(TcpExchange::meet(role, tell)?))
    }
}

impl IbvProvider {
    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported {
            device: self.name.clone(),
            what: what.into(),
        }
    }

    /// Of an address vector.
    fn no_place_for(&self, field: &str) -> Error {
        self.unsupported(&format!(
            "way to set {field} of an address vector; the kernel chooses it"
        ))
    }

    fn no_such(&self, what: &'static str, value: u32, limit: String) -> Error {
        Error::NoSuch {
            device: self.name.clone(),
            what,
            value,
            limit,
        }
    }
}

#[cfg(test)]
mod tests;
