//! The card's driver on the bench: it keeps everything.

use softroce_sim::card::{Deed, Env};
use softroce_sim::wire::Payload;

/// Payloads by slot, never freed, and everything the card did.
#[derive(Debug, Default)]
pub struct Staging {
    payloads: Vec<Vec<u8>>,
    /// What the card did.
    pub deeds: Vec<Deed>,
    /// Count payloads instead of carrying them.
    pub counted: bool,
}

impl Staging {
    /// Keeps bytes for as long as the staging lives.
    pub fn hold(&mut self, bytes: Vec<u8>) -> Payload {
        if bytes.is_empty() {
            return Payload::EMPTY;
        }
        let len = bytes.len() as u16;
        self.payloads.push(bytes);
        Payload::stored(self.payloads.len() as u32 - 1, len)
    }
}

impl Env for Staging {
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        if self.counted {
            return Payload::counted(len);
        }
        let mut bytes = vec![0; len.into()];
        fill(&mut bytes);
        self.hold(bytes)
    }

    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        let bytes = self.payloads.get(payload.slot()? as usize)?;
        bytes.get(..payload.len().into())
    }

    fn observe(&mut self, event: impl FnOnce() -> Deed) {
        self.deeds.push(event());
    }
}
