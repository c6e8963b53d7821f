//! Where the packets in the network live: slots of 64 bytes, moved by their index.

use crate::time::Time;
use crate::wire::Packet;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The packets in the network and how they are lined up.
#[derive(Clone, Debug, Default)]
pub(super) struct Packets {
    packets: Vec<Packet>,
    places: Vec<Place>,
    free: List,
    live: usize,
}

/// Where a packet stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// When it reaches the end of the channel it is on.
    arrival: Time,
    /// The one behind it.
    next: u32,
}

/// Packets in a row, first in first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            head: NONE,
            tail: NONE,
        }
    }
}

impl List {
    /// The first slot, [`NONE`] if there is none.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn push(&mut self, packets: &mut Packets, slot: u32) {
        packets.places[slot as usize].next = NONE;
        if self.head == NONE {
            self.head = slot;
        } else {
            packets.places[self.tail as usize].next = slot;
        }
        self.tail = slot;
    }

    /// Takes the first slot; the list must not be empty.
    #[inline]
    pub(super) fn pop(&mut self, packets: &mut Packets) -> u32 {
        let slot = self.head;
        self.head = packets.places[slot as usize].next;
        slot
    }
}

impl Packets {
    /// Takes in a packet and gives its slot.
    #[inline]
    pub(super) fn insert(&mut self, packet: Packet) -> u32 {
        self.live += 1;
        if self.free.head == NONE {
            return self.grow(packet);
        }
        let slot = self.free.head;
        self.free.head = self.places[slot as usize].next;
        self.packets[slot as usize] = packet;
        slot
    }

    #[cold]
    fn grow(&mut self, packet: Packet) -> u32 {
        self.packets.push(packet);
        self.places.push(Place {
            arrival: Time::ZERO,
            next: NONE,
        });
        (self.packets.len() - 1) as u32
    }

    /// Frees a slot. The packet's payload must have been taken care of.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        self.live -= 1;
        // The slot used last is used next, while it is still in the cache.
        self.places[slot as usize].next = self.free.head;
        self.free.head = slot;
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Packet {
        &self.packets[slot as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.packets[slot as usize]
    }

    #[inline]
    pub(super) fn arrival(&self, slot: u32) -> Time {
        self.places[slot as usize].arrival
    }

    #[inline]
    pub(super) fn set_arrival(&mut self, slot: u32, at: Time) {
        self.places[slot as usize].arrival = at;
    }

    /// Packets in the network now.
    pub(super) fn live(&self) -> usize {
        self.live
    }
}
