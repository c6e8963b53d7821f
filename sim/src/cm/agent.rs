//! A communication manager at work over queue pair 1 of a card, in virtual and in real time alike.

use super::{Cm, CmConfig, Outgoing};
use crate::card::{
    AddressHandle, AddressVector, Card, CompletionKind, CompletionQueue, CqId, CreateError,
    Datagram, ModifyError, PostError, QpAttributes, QpInit, QpType, QueuePair, RecvRequest,
    SendRequest, Sge, State, Status, Work,
};
use crate::memory::{Access, Buffer, MemoryRegion, RegisterError};
use crate::time::{Span, Time};
use crate::wire::cm::{MAD_LEN, Mad};
use crate::wire::mad::GSI_QKEY;
use crate::wire::{Gid, Psn, QpNumber};
use std::collections::BTreeMap;

/// Bytes of a receive buffer for a MAD: the network header and the MAD.
pub const MAD_BUFFER: usize = GRH + MAD_LEN;

/// Bytes in front of a datagram.
const GRH: usize = 40;
/// MADs that may arrive before they are looked at; a peer sends again what is lost.
const RECEIVES: u32 = 256;
/// MADs that wait for the port.
const SENDS: u32 = 256;
/// Address handles that are kept. As many messages as there are since one was used do not wait for the port at a time.
const ADDRESSES: usize = 1024;
const _: () = assert!(ADDRESSES > SENDS as usize);
/// How long a message that finds no room in the send queue waits before it is tried again.
const ROOM: Span = Span::from_us(100);

/// Why there is no agent on a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AgentError {
    /// Queue pair 1 or what it needs cannot be made.
    #[error("queue pair 1: {0}")]
    Create(#[from] CreateError),
    /// It cannot be brought to RTS.
    #[error("queue pair 1: {0}")]
    Modify(#[from] ModifyError),
    /// Its memory cannot be registered.
    #[error("queue pair 1: {0}")]
    Register(#[from] RegisterError),
    /// It takes no receive requests.
    #[error("queue pair 1: {0}")]
    Post(#[from] PostError),
}

/// A [`Cm`] and queue pair 1 of the card that it works on.
///
/// [`Agent::turn`] is called after the card has received something, and when [`Agent::next_timeout`] has come: by whoever
/// drives the card, or, so that peers are answered whatever programs do, by a [`Companion`](crate::card::Companion) that has the
/// agent. Then [`Cm::next_event`] is taken from [`Agent::cm`]. After asking that for something, [`Agent::turn`] is called again.
#[derive(Debug)]
pub struct Agent {
    cm: Cm,
    qp: QueuePair,
    cq: CompletionQueue,
    pd: crate::memory::Pd,
    buffer: Buffer,
    /// Of the buffer.
    region: Option<MemoryRegion>,
    addresses: BTreeMap<Gid, Way>,
    /// Whose handle was used when, the longest ago first.
    used: BTreeMap<u64, Gid>,
    /// Counts uses.
    uses: u64,
    /// What found no room in the send queue, and when it is tried again.
    kept: Option<Outgoing>,
    try_again: Time,
    /// MADs that are no messages of a communication manager.
    foreign: u64,
    /// Messages whose address nobody knew.
    unresolved: u64,
}

/// A way to another manager, and when it was last used.
#[derive(Clone, Copy, Debug)]
struct Way {
    handle: AddressHandle,
    used: u64,
}

impl Agent {
    /// Makes queue pair 1 of `card` and brings it to RTS. The manager draws its names from `seed`.
    ///
    /// # Errors
    ///
    /// If the card has a queue pair 1 already.
    pub fn new(
        card: &mut Card,
        now: Time,
        config: CmConfig,
        seed: u64,
    ) -> Result<Agent, AgentError> {
        let pd = card.alloc_pd();
        let cq = card.create_cq(RECEIVES + SENDS)?;
        let init = QpInit {
            max_recv_wr: RECEIVES,
            max_inline: MAD_LEN as u32,
            ..QpInit::new(QpType::Ud, pd, cq.id(), SENDS)
        };
        let qp = match card.create_gsi_qp(&init) {
            Ok(qp) => qp,
            Err(e) => {
                // Nothing uses it.
                let _ = card.destroy_cq(cq);
                return Err(e.into());
            }
        };
        let buffer = Buffer::new(RECEIVES as usize * MAD_BUFFER);
        let mut agent = Agent {
            cm: Cm::new(config, seed),
            qp,
            cq,
            pd,
            buffer,
            region: None,
            addresses: BTreeMap::new(),
            used: BTreeMap::new(),
            uses: 0,
            kept: None,
            try_again: Time::NEVER,
            foreign: 0,
            unresolved: 0,
        };
        match agent.begin(card, now) {
            Ok(()) => Ok(agent),
            Err(e) => {
                agent.close(card);
                Err(e)
            }
        }
    }

    fn begin(&mut self, card: &mut Card, now: Time) -> Result<(), AgentError> {
        let memory = self.buffer.clone();
        self.region = Some(card.register(self.pd, memory, Access::LOCAL_WRITE)?);
        for step in [
            QpAttributes::to_init_datagrams(GSI_QKEY),
            QpAttributes::to(State::Rtr),
            QpAttributes::to_rts(Psn::new(0), None),
        ] {
            card.modify_qp(now, QpNumber::GSI, &step)?;
        }
        for slot in 0..RECEIVES {
            self.post(slot.into())?;
        }
        Ok(())
    }

    /// Gives back to `card`, which it was made on, all that it has there: queue pair 1, its completion queue, memory
    /// and address handles. What is queued vanishes, and connections are forgotten without a word.
    pub fn close(self, card: &mut Card) {
        // They are there, and nobody else has them.
        let _ = card.destroy_qp(QpNumber::GSI);
        let _ = card.destroy_cq(self.cq);
        if let Some(region) = self.region {
            let _ = card.deregister(region.lkey);
        }
        for way in self.addresses.values() {
            let _ = card.destroy_ah(way.handle);
        }
    }

    /// The completion queue of queue pair 1, to be armed by whoever sleeps until something arrives.
    pub fn cq(&self) -> CqId {
        self.cq.id()
    }

    /// The manager.
    pub fn cm(&mut self) -> &mut Cm {
        &mut self.cm
    }

    /// MADs that arrived and are no messages of a communication manager.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Messages that were dropped because nobody knew the way.
    pub fn unresolved(&self) -> u64 {
        self.unresolved
    }

    /// When [`Agent::turn`] is to be called without anything having been received; [`Time::NEVER`] if there is nothing to
    /// wait for.
    pub fn next_timeout(&self) -> Time {
        self.cm.next_timeout().min(self.try_again)
    }

    /// Takes what has arrived to the manager, and what it says to the card. `resolve` gives the way to an address, where
    /// it is known; one that was given is kept. False if there was nothing to do.
    pub fn turn(
        &mut self,
        card: &mut Card,
        now: Time,
        mut resolve: impl FnMut(Gid) -> Option<AddressVector>,
    ) -> bool {
        let mut any = false;
        while let Some(c) = self.cq.poll() {
            // Sends are done when they are on their way.
            if c.kind != CompletionKind::Receive || c.status != Status::Success {
                continue;
            }
            any = true;
            let mut bytes = [0; MAD_BUFFER];
            let len = (c.byte_len as usize).min(MAD_BUFFER);
            let at = c.wr_id as usize * MAD_BUFFER;
            self.buffer.read_at(at, &mut bytes[..len]);
            // There was room for it until it was taken.
            let _ = self.post(c.wr_id);
            match Mad::decode(bytes.get(GRH..len).unwrap_or_default()) {
                Ok(mad) => self.cm.receive(now, &mad, sender(&bytes)),
                Err(_) => self.foreign += 1,
            }
        }
        any |= self.cm.advance(now);
        let mut posted = false;
        self.try_again = Time::NEVER;
        while let Some(out) = self.kept.take().or_else(|| self.cm.next_message()) {
            let Some(address) = self.address(card, out.to, &mut resolve) else {
                self.unresolved += 1;
                continue;
            };
            let bytes = out.mad.encode();
            let request = SendRequest {
                signaled: false,
                inline: Some(&bytes),
                to: Some(Datagram {
                    address,
                    qp: QpNumber::GSI,
                    qkey: GSI_QKEY,
                }),
                ..SendRequest::new(0, Work::Send, &[])
            };
            if self.qp.post_send(&request).is_err() {
                self.kept = Some(out);
                self.try_again = now + ROOM;
                break;
            }
            posted = true;
        }
        if posted {
            card.doorbell(now, QpNumber::GSI);
        }
        any | posted
    }

    fn post(&mut self, slot: u64) -> Result<(), PostError> {
        let sge = self.region.map(|region| Sge {
            addr: region.addr + slot * MAD_BUFFER as u64,
            len: MAD_BUFFER as u32,
            lkey: region.lkey,
        });
        self.qp.post_recv(&RecvRequest {
            wr_id: slot,
            sges: sge.as_slice(),
        })
    }

    fn address(
        &mut self,
        card: &mut Card,
        to: Gid,
        resolve: &mut impl FnMut(Gid) -> Option<AddressVector>,
    ) -> Option<AddressHandle> {
        self.uses += 1;
        let used = self.uses;
        if let Some(known) = self.addresses.get_mut(&to) {
            self.used.remove(&std::mem::replace(&mut known.used, used));
            self.used.insert(used, to);
            return Some(known.handle);
        }
        let handle = card.create_ah(self.pd, &resolve(to)?).ok()?;
        if self.addresses.len() >= ADDRESSES
            && let Some((_, oldest)) = self.used.pop_first()
            && let Some(way) = self.addresses.remove(&oldest)
        {
            // What was sent that way has left long ago.
            let _ = card.destroy_ah(way.handle);
        }
        self.addresses.insert(to, Way { handle, used });
        self.used.insert(used, to);
        Some(handle)
    }
}

/// Who sent a datagram, by the network header in front of it: an IPv4 header stands in its last 20 bytes (A17.4.5.2).
fn sender(bytes: &[u8; MAD_BUFFER]) -> Gid {
    if bytes[0] >> 4 == 6 {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..24]);
        return Gid(gid);
    }
    std::net::Ipv4Addr::new(bytes[32], bytes[33], bytes[34], bytes[35]).into()
}
