//! Queue pairs.

use crate::attributes::QpCap;
use crate::completion::{CompletionQueue, CqInner};
use crate::domain::{MemoryWindow, ProtectionDomain};
use crate::error::{BadRequest, Error, Result};
use crate::exchange::Endpoint;
use crate::provider::{self, Handle, QpSpec};
use crate::srq::{SharedReceiveQueue, SrqInner};
use crate::{
    Access, AddressVector, Binding, Gid, Mtu, Peer, PostError, Psn, QpAttributes, QpNumber, QpType,
    RecvRequest, Reliability, RemoteKey, SendRequest, State,
};
use std::fmt;
use std::sync::Arc;

/// A queue pair that is being described (`ibv_qp_init_attr`): [`ProtectionDomain::create_qp`].
#[derive(Debug)]
#[must_use]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QpBuilder<'a> {
    pd: &'a ProtectionDomain,
    send_cq: Option<Arc<CqInner>>,
    recv_cq: Option<Arc<CqInner>>,
    srq: Option<Arc<SrqInner>>,
    spec: QpSpec,
    signal_all: bool,
}

impl<'a> QpBuilder<'a> {
    pub(crate) fn new(pd: &'a ProtectionDomain, qp_type: QpType) -> QpBuilder<'a> {
        QpBuilder {
            pd,
            send_cq: None,
            recv_cq: None,
            srq: None,
            spec: QpSpec {
                qp_type,
                pd: pd.0.handle,
                send_cq: 0,
                recv_cq: 0,
                srq: None,
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
            },
            signal_all: false,
        }
    }

    /// Where all completions go.
    pub fn cq(self, cq: &CompletionQueue) -> Self {
        self.send_cq(cq).recv_cq(cq)
    }

    /// Where completions of send requests go.
    pub fn send_cq(mut self, cq: &CompletionQueue) -> Self {
        self.send_cq = Some(cq.inner.clone());
        self
    }

    /// Where completions of receive requests go.
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = Some(cq.inner.clone());
        self
    }

    /// Receive requests come from there, not from a queue of its own.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.inner.clone());
        self
    }

    /// Send requests it holds; 16 if not said.
    pub fn max_send_wr(mut self, n: u32) -> Self {
        self.spec.max_send_wr = n;
        self
    }

    /// Receive requests it holds; 16 if not said.
    pub fn max_recv_wr(mut self, n: u32) -> Self {
        self.spec.max_recv_wr = n;
        self
    }

    /// Elements of a send request; 1 if not said.
    pub fn max_send_sge(mut self, n: u32) -> Self {
        self.spec.max_send_sge = n;
        self
    }

    /// Elements of a receive request; 1 if not said.
    pub fn max_recv_sge(mut self, n: u32) -> Self {
        self.spec.max_recv_sge = n;
        self
    }

    /// Bytes of inline data of a send request; 0 if not said.
    pub fn max_inline_data(mut self, n: u32) -> Self {
        self.spec.max_inline = n;
        self
    }

    /// Every send request asks for a completion (`sq_sig_all`).
    #[doc(alias = "sq_sig_all")]
    pub fn signal_all(mut self) -> Self {
        self.signal_all = true;
        self
    }

    /// Makes it, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Create`] if a size is out of range, [`Error::Foreign`] if a queue is not of this device, or
    /// [`Error::Invalid`] if no completion queue was named.
    pub fn build(mut self) -> Result<QueuePair> {
        let context = &self.pd.0.context;
        let missing = |which: &str| Error::Invalid(format!("a queue pair needs a {which}"));
        let send_cq = self.send_cq.ok_or_else(|| missing("send_cq"))?;
        let recv_cq = self.recv_cq.ok_or_else(|| missing("recv_cq"))?;
        for cq in [&send_cq, &recv_cq] {
            if !Arc::ptr_eq(&cq.context.provider, &context.provider) {
                return Err(Error::Foreign("completion queue"));
            }
        }
        if let Some(srq) = &self.srq
            && !Arc::ptr_eq(&srq.pd.0.context.provider, &context.provider)
        {
            return Err(Error::Foreign("shared receive queue"));
        }
        self.spec.send_cq = send_cq.handle;
        self.spec.recv_cq = recv_cq.handle;
        self.spec.srq = self.srq.as_ref().map(|s| s.handle);
        let (handle, queue) = context.provider.create_qp(&self.spec)?;
        Ok(QueuePair {
            queue: Some(queue),
            handle,
            qp_type: self.spec.qp_type,
            context: context.provider.number(),
            signal_all: self.signal_all,
            groups: Vec::new(),
            pd: self.pd.clone(),
            _send_cq: send_cq,
            _recv_cq: recv_cq,
            _srq: self.srq,
        })
    }
}

impl fmt::Debug for CqInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)
    }
}

impl fmt::Debug for SrqInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)
    }
}

/// A queue pair (`ibv_qp`).
#[doc(alias = "ibv_qp")]
pub struct QueuePair {
    /// Taken when it is dropped, before the queue pair is destroyed.
    queue: Option<Box<dyn provider::QueuePair>>,
    handle: Handle,
    qp_type: QpType,
    /// Number of its context.
    context: u32,
    signal_all: bool,
    groups: Vec<Gid>,
    pd: ProtectionDomain,
    _send_cq: Arc<CqInner>,
    _recv_cq: Arc<CqInner>,
    _srq: Option<Arc<SrqInner>>,
}

impl Drop for QueuePair {
    #[doc(alias = "ibv_destroy_qp")]
    fn drop(&mut self) {
        let provider = &self.pd.0.context.provider;
        for group in self.groups.drain(..) {
            // It is attached, as far as this side knows; a broken device is beyond detaching.
            let _ = provider.detach_mcast(self.handle, group);
        }
        self.queue = None;
        provider.destroy_qp(self.handle);
    }
}

/// The way of a connection beyond its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Path MTU, the same at both ends.
    pub path_mtu: Mtu,
    /// Retries, and READs and atomics outstanding, of a reliable connection.
    pub reliability: Reliability,
    /// What the peer may do.
    pub access: Access,
    /// Service level.
    pub sl: u8,
    /// Traffic class: DSCP in the upper six bits.
    pub traffic_class: u8,
}

impl Default for Connection {
    /// Path MTU 1024, [`Reliability::default`] with 16 READs and atomics, and everything allowed that the
    /// keys allow.
    fn default() -> Connection {
        Connection {
            path_mtu: Mtu::M1024,
            reliability: Reliability {
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                ..Reliability::default()
            },
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            sl: 0,
            traffic_class: 0,
        }
    }
}

impl QueuePair {
    fn queue(&mut self) -> &mut dyn provider::QueuePair {
        // Only dropping takes it.
        self.queue.as_deref_mut().expect("a queue pair that lives")
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.queue
            .as_deref()
            .expect("a queue pair that lives")
            .number()
    }

    /// An address handle is of the same context, as its number might be that of another one here.
    #[inline]
    fn is_own(&self, request: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        match request.to {
            Some(to) if to.address.context != self.context => Err(PostError::ForeignAddress),
            _ => Ok(()),
        }
    }

    /// What it was granted, which may be more than was asked for.
    pub fn cap(&self) -> QpCap {
        self.queue
            .as_deref()
            .expect("a queue pair that lives")
            .cap()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Its transport service.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Changes state and attributes; what is `None` stays.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`] on software cards names the attribute and what is allowed; devices of libibverbs say less
    /// ([`Error::Os`]). [`Error::Unsupported`] if the address has a field set that the device has no place for
    /// ([`AddressVector`]).
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attributes: &QpAttributes) -> Result<()> {
        self.pd
            .0
            .context
            .provider
            .modify_qp(self.handle, attributes)
    }

    /// State and attributes, as far as they are set.
    ///
    /// # Errors
    ///
    /// If the device does not answer.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttributes> {
        self.pd.0.context.provider.query_qp(self.handle)
    }

    /// Its state.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::query`].
    pub fn state(&self) -> Result<State> {
        Ok(self.query()?.state.unwrap_or(State::Reset))
    }

    /// What the other side needs to know of it, which will send from `psn` on.
    ///
    /// # Errors
    ///
    /// If the port has no address.
    pub fn endpoint(&self, psn: Psn) -> Result<Endpoint> {
        let context = &self.pd.0.context;
        Ok(Endpoint {
            qp: self.number(),
            psn,
            gid: context.query_gid(1, context.gid_index())?.gid,
        })
    }

    /// From RESET to RTS, connected with `peer`; this side sends from `psn` on.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::modify`].
    pub fn connect(&self, psn: Psn, peer: &Endpoint, connection: &Connection) -> Result<()> {
        let address = AddressVector {
            sl: connection.sl,
            traffic_class: connection.traffic_class,
            ..AddressVector::new(peer.gid)
        };
        let other = Peer {
            address,
            path_mtu: connection.path_mtu,
            qp: peer.qp,
            psn: peer.psn,
        };
        let reliability = (self.qp_type == QpType::Rc).then_some(&connection.reliability);
        self.modify(&QpAttributes::to_init(connection.access))?;
        self.modify(&QpAttributes::to_rtr(&other, reliability))?;
        self.modify(&QpAttributes::to_rts(psn, reliability))
    }

    /// From RESET to RTS, for datagrams with this Q_Key, sent from `psn` on.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::modify`].
    pub fn activate(&self, qkey: u32, psn: Psn) -> Result<()> {
        self.modify(&QpAttributes::to_init_datagrams(qkey))?;
        self.modify(&QpAttributes::to(State::Rtr))?;
        self.modify(&QpAttributes::to_rts(psn, None))
    }

    /// Queues a send request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is queued then.
    #[inline]
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        self.is_own(request)?;
        if self.signal_all && !request.signaled {
            let request = SendRequest {
                signaled: true,
                ..*request
            };
            return self.queue().post_send(&request);
        }
        self.queue().post_send(request)
    }

    /// Queues send requests one after the other, and tells the device once, behind the last of them.
    ///
    /// # Errors
    ///
    /// [`BadRequest`]: the requests before that one are queued, it and those behind it are not.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send_list(
        &mut self,
        requests: &[SendRequest<'_>],
    ) -> std::result::Result<(), BadRequest> {
        let all = self.signal_all;
        let foreign = requests.iter().position(|r| self.is_own(r).is_err());
        let own = &requests[..foreign.unwrap_or(requests.len())];
        self.queue().post_send_list(own, all)?;
        match foreign {
            None => Ok(()),
            Some(index) => Err(BadRequest {
                index,
                source: PostError::ForeignAddress,
            }),
        }
    }

    /// Queues a receive request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is queued then.
    #[inline]
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.queue().post_recv(request)
    }

    /// Binds a window of type 1 to part of a region, and gives its new key.
    ///
    /// # Errors
    ///
    /// [`Error::Window`].
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind_mw(&self, window: &mut MemoryWindow, binding: &Binding) -> Result<RemoteKey> {
        let provider = &self.pd.0.context.provider;
        if !Arc::ptr_eq(&window.pd.0.context.provider, provider) {
            return Err(Error::Foreign("memory window"));
        }
        window.rkey = provider.bind_mw(self.handle, window.handle, binding)?;
        Ok(window.rkey)
    }

    /// Receives from here on what is sent to a multicast group, this queue pair's own datagrams among it.
    ///
    /// Groups of a software card are those of its machine: datagrams to them stay on the loopback interface. On
    /// RoCEv2 by libibverbs the network is told of the membership as well, by IGMP, which `ibv_attach_mcast`
    /// leaves to its caller.
    ///
    /// # Errors
    ///
    /// [`Error::Create`] if that is no group, or the queue pair not for datagrams.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&mut self, group: Gid) -> Result<()> {
        self.pd
            .0
            .context
            .provider
            .attach_mcast(self.handle, group)?;
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
        Ok(())
    }

    /// Undoes [`QueuePair::attach_mcast`].
    ///
    /// # Errors
    ///
    /// [`Error::Create`] if it is not attached.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&mut self, group: Gid) -> Result<()> {
        self.pd
            .0
            .context
            .provider
            .detach_mcast(self.handle, group)?;
        self.groups.retain(|g| *g != group);
        Ok(())
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:?}, {})", self.qp_type, self.number())
    }
}
