//! The driver of the cards: it gives payloads back, so that ten million packets take no more room than ten.

use softroce_sim::card::{Deed, Env, Refusal};
use softroce_sim::wire::Payload;

/// Payloads by slot, and a count of what a card did.
#[derive(Debug, Default)]
pub struct Pool {
    slots: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// Request packets handed over.
    pub requests: u64,
    /// Response packets handed over.
    pub responses: u64,
    /// Packets dropped, by reason.
    pub refused: [u64; Refusal::ALL.len()],
    /// Why the last packet was dropped; taken by whoever handed it over.
    pub last: Option<Refusal>,
}

impl Pool {
    /// Keeps a copy of `bytes` until it is released.
    pub fn hold(&mut self, bytes: &[u8]) -> Payload {
        self.stage(bytes.len() as u16, |out| out.copy_from_slice(bytes))
    }

    /// The bytes are not needed any more.
    pub fn release(&mut self, payload: Payload) {
        if let Some(slot) = payload.slot()
            && (slot as usize) < self.slots.len()
        {
            self.free.push(slot);
        }
    }

    /// Payloads that are held.
    pub fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Env for Pool {
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        if len == 0 {
            return Payload::EMPTY;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            self.slots.len() as u32 - 1
        });
        let bytes = &mut self.slots[slot as usize];
        bytes.clear();
        bytes.resize(len.into(), 0);
        fill(bytes);
        Payload::stored(slot, len)
    }

    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        let bytes = self.slots.get(payload.slot()? as usize)?;
        bytes.get(..payload.len().into())
    }

    fn observe(&mut self, event: impl FnOnce() -> Deed) {
        match event() {
            Deed::Request { .. } => self.requests += 1,
            Deed::Response { .. } => self.responses += 1,
            Deed::Notification { .. } => {}
            Deed::Refused { why, .. } => {
                self.refused[why as usize] += 1;
                self.last = Some(why);
            }
        }
    }
}
