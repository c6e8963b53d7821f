//! Protection domains, and what lives in one: regions, windows, address handles.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::provider::Handle;
use crate::queue_pair::QpBuilder;
use crate::srq::SharedReceiveQueue;
use crate::{
    Access, AddressVector, Binding, Buffer, Datagram, LocalKey, QpNumber, QpType, Remote,
    RemoteKey, Sge, WindowType,
};
use softroce_sim::memory::MemoryRegion as Registration;
use std::fmt;
use std::sync::Arc;

/// What belongs together: queue pairs reach memory of their own domain only (`ibv_pd`). Clones are of the
/// same one.
#[derive(Clone)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain(pub(crate) Arc<PdInner>);

pub(crate) struct PdInner {
    pub(crate) context: Context,
    pub(crate) handle: Handle,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        self.context.provider.dealloc_pd(self.handle);
    }
}

impl ProtectionDomain {
    pub(crate) fn alloc(context: &Context) -> Result<ProtectionDomain> {
        let handle = context.provider.alloc_pd()?;
        Ok(ProtectionDomain(Arc::new(PdInner {
            context: context.clone(),
            handle,
        })))
    }

    /// The device it is on.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Registers memory, which program and card share from here on. Memory that the program has by other means
    /// becomes a buffer by [`Buffer::from_raw_parts`], which is unsafe, and is given back by
    /// [`MemoryRegion::deregister`]. On software cards a region's address is not
    /// its memory's: [`MemoryRegion::addr`] says it.
    ///
    /// # Errors
    ///
    /// [`RegisterError`](crate::RegisterError): rights that do not go together, no key left.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mr(&self, memory: &Buffer, access: Access) -> Result<MemoryRegion> {
        let (handle, registration) =
            self.0
                .context
                .provider
                .reg_mr(self.0.handle, memory, access)?;
        Ok(MemoryRegion {
            handle,
            registration,
            memory: memory.clone(),
            pd: self.clone(),
            has_ended: false,
        })
    }

    /// Registers `len` zero bytes.
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::reg_mr`].
    pub fn reg_new(&self, len: usize, access: Access) -> Result<MemoryRegion> {
        self.reg_mr(&Buffer::new(len), access)
    }

    /// A memory window that is not bound.
    ///
    /// # Errors
    ///
    /// If no key is left.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, kind: WindowType) -> Result<MemoryWindow> {
        let (handle, rkey) = self.0.context.provider.alloc_mw(self.0.handle, kind)?;
        Ok(MemoryWindow {
            handle,
            rkey,
            kind,
            pd: self.clone(),
        })
    }

    /// A way for datagrams.
    ///
    /// # Errors
    ///
    /// [`ModifyError`](crate::ModifyError) if the address cannot be reached; [`Error::Unsupported`] if a field is set that
    /// the device has no place for ([`AddressVector`]).
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, address: &AddressVector) -> Result<AddressHandle> {
        let id = self.0.context.provider.create_ah(self.0.handle, address)?;
        Ok(AddressHandle {
            id,
            pd: self.clone(),
        })
    }

    /// A queue of receive requests that several queue pairs take from.
    ///
    /// # Errors
    ///
    /// [`CreateError`](crate::CreateError) if a size is out of range.
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::create(self, max_wr, max_sge)
    }

    /// Begins a queue pair.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&self, qp_type: QpType) -> QpBuilder<'_> {
        QpBuilder::new(self, qp_type)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.0.handle)
    }
}

/// Registered memory (`ibv_mr`). The registration ends when it is dropped; if the device does not let it end, its
/// memory stays for good. Of memory that is the program's own nothing can keep that but the program:
/// [`MemoryRegion::deregister`] tells it.
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion {
    handle: Handle,
    registration: Registration,
    // Outlives the registration: what the card may touch is not freed before.
    memory: Buffer,
    pd: ProtectionDomain,
    has_ended: bool,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.has_ended && self.pd.0.context.provider.dereg_mr(self.handle).is_err() {
            std::mem::forget(self.memory.clone());
        }
    }
}

impl MemoryRegion {
    /// Ends the registration: the device does not touch the memory from here on.
    ///
    /// # Errors
    ///
    /// Why it could not end, and the region, as it was: the device may touch the memory as before. Devices of
    /// libibverbs refuse while memory windows are bound to it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(mut self) -> std::result::Result<(), Box<(Error, MemoryRegion)>> {
        match self.pd.0.context.provider.dereg_mr(self.handle) {
            Ok(()) => {
                self.has_ended = true;
                Ok(())
            }
            Err(e) => Err(Box::new((e, self))),
        }
    }

    /// The memory.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Address of its first byte, as requests and peers name it.
    pub fn addr(&self) -> u64 {
        self.registration.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Key for requests.
    pub fn lkey(&self) -> LocalKey {
        self.registration.lkey
    }

    /// Key for peers.
    pub fn rkey(&self) -> RemoteKey {
        self.registration.rkey
    }

    /// `len` bytes from `offset` on, for a request. The card checks that they lie within.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.registration.addr.wrapping_add(offset),
            len,
            lkey: self.registration.lkey,
        }
    }

    /// The place at `offset`, for a peer's request.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote {
            addr: self.registration.addr.wrapping_add(offset),
            rkey: self.registration.rkey,
        }
    }

    /// `len` bytes from `offset` on, to bind a window to.
    pub fn binding(&self, offset: u64, len: u64, access: Access) -> Binding {
        Binding {
            lkey: self.registration.lkey,
            addr: self.registration.addr.wrapping_add(offset),
            len,
            access,
            zero_based: false,
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({:?})", self.registration)
    }
}

/// A memory window (`ibv_mw`).
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    pub(crate) handle: Handle,
    pub(crate) rkey: RemoteKey,
    kind: WindowType,
    pub(crate) pd: ProtectionDomain,
}

impl Drop for MemoryWindow {
    #[doc(alias = "ibv_dealloc_mw")]
    fn drop(&mut self) {
        self.pd.0.context.provider.dealloc_mw(self.handle);
    }
}

impl MemoryWindow {
    /// Its type.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// Its key. That of type 1 changes when it is bound
    /// ([`QueuePair::bind_mw`](crate::QueuePair::bind_mw)).
    pub fn rkey(&self) -> RemoteKey {
        self.rkey
    }

    /// The key for the next binding of type 2, by [`Work::BindWindow`](crate::Work::BindWindow): the next
    /// low byte.
    #[doc(alias = "ibv_inc_rkey")]
    pub fn next_rkey(&mut self) -> RemoteKey {
        let RemoteKey(key) = self.rkey;
        self.rkey = RemoteKey(key & 0xffff_ff00 | key.wrapping_add(1) & 0xff);
        self.rkey
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:?}, {:?})", self.kind, self.rkey)
    }
}

/// A way to a peer for datagrams (`ibv_ah`). What is posted with it and not on its way when it is dropped
/// fails.
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    id: crate::AddressId,
    pd: ProtectionDomain,
}

impl Drop for AddressHandle {
    #[doc(alias = "ibv_destroy_ah")]
    fn drop(&mut self) {
        self.pd.0.context.provider.destroy_ah(self.id);
    }
}

impl AddressHandle {
    /// A queue pair there, for a request ([`SendRequest::to`](crate::SendRequest::to)) on a queue pair of the same
    /// context; on others it is refused ([`PostError::ForeignAddress`](crate::PostError::ForeignAddress)).
    pub fn to(&self, qp: QpNumber, qkey: u32) -> Datagram {
        Datagram {
            address: crate::AddressId {
                context: self.pd.0.context.provider.number(),
                ..self.id
            },
            qp,
            qkey,
        }
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::provider::port::SoftwareCard;
    use softroce_sim::memory::RegisterError;

    #[test]
    fn a_region_that_cannot_be_deregistered_comes_back() {
        let card = SoftwareCard::new("softroce0").open().unwrap();
        let pd = card.context().alloc_pd().unwrap();
        let region = pd.reg_new(64, Access::LOCAL_WRITE).unwrap();
        let (memory, lkey) = (region.memory().as_ptr(), region.lkey());
        // Someone has been there before.
        pd.0.context.provider.dereg_mr(region.handle).unwrap();
        let (error, region) = *region.deregister().unwrap_err();
        let LocalKey(key) = lkey;
        assert!(
            matches!(error, Error::Register(RegisterError::UnknownKey(k)) if k == key),
            "{error}"
        );
        assert_eq!((region.memory().as_ptr(), region.lkey()), (memory, lkey));
        let other = pd.reg_new(64, Access::LOCAL_WRITE).unwrap();
        assert!(other.deregister().is_ok());
    }
}
