//! Where the packets in the network live: slots of a fixed size, moved by their index.

use crate::time::Time;
use crate::wire::Packet;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The packets in the network and how they are lined up.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    slots: Vec<Slot>,
    /// First of the unused slots, linked by `next`.
    free: u32,
    live: usize,
}

/// A packet and its place side by side, because a switch looks at the end of the one and at the other.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Slot {
    packet: Packet,
    place: Place,
}

// A channel more than is needed to line up took no room.
const _: () = assert!(size_of::<Slot>() == 80);

/// Where a packet stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The one behind it, if it is not the last one of its row.
    next: u32,
    /// The channel it came in by, if it waits at a switch that counts by that.
    ingress: u32,
    /// When the one behind it arrives, if it is on a channel.
    next_arrival: Time,
}

/// Packets in a row, first in first out.
///
/// A place is read or written only where there is a packet behind it, and then tells all that is to be
/// known of that one: a row of one packet touches no place at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    head: u32,
    tail: u32,
}

impl Row {
    pub(super) const EMPTY: Row = Row {
        head: NONE,
        tail: NONE,
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first packet; [`NONE`] if there is none.
    #[inline]
    pub(super) fn first(&self) -> u32 {
        self.head
    }

    /// All packets, in order.
    pub(super) fn iter<'a>(&'a self, packets: &'a Packets) -> impl Iterator<Item = u32> + 'a {
        let mut next = (self.head != NONE).then_some(self.head);
        std::iter::from_fn(move || {
            let slot = next?;
            next = (slot != self.tail).then(|| packets.slots[slot as usize].place.next);
            Some(slot)
        })
    }

    /// Adds a packet that arrives at `arrival`.
    #[inline]
    pub(super) fn push(&mut self, packets: &mut Packets, slot: u32, arrival: Time) {
        if self.head == NONE {
            self.head = slot;
        } else {
            let place = &mut packets.slots[self.tail as usize].place;
            place.next = slot;
            place.next_arrival = arrival;
        }
        self.tail = slot;
    }

    /// Takes the first packet; the row must not be empty. With it comes the arrival of the next one, if
    /// there is one.
    #[inline]
    pub(super) fn pop(&mut self, packets: &Packets) -> (u32, Option<Time>) {
        let slot = self.head;
        if slot == self.tail {
            self.head = NONE;
            (slot, None)
        } else {
            let place = &packets.slots[slot as usize].place;
            self.head = place.next;
            (slot, Some(place.next_arrival))
        }
    }
}

impl Packets {
    pub(super) const fn new() -> Packets {
        Packets {
            slots: Vec::new(),
            free: NONE,
            live: 0,
        }
    }

    /// Takes in a packet and gives its slot.
    #[inline]
    pub(super) fn insert(&mut self, packet: Packet) -> u32 {
        self.live += 1;
        if self.free == NONE {
            return self.grow(packet);
        }
        let slot = self.free;
        self.free = self.slots[slot as usize].place.next;
        self.slots[slot as usize].packet = packet;
        slot
    }

    #[cold]
    fn grow(&mut self, packet: Packet) -> u32 {
        self.slots.push(Slot {
            packet,
            place: Place {
                next: NONE,
                ingress: NONE,
                next_arrival: Time::ZERO,
            },
        });
        (self.slots.len() - 1) as u32
    }

    /// Frees a slot. The packet's payload must have been taken care of.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        self.live -= 1;
        // The slot used last is used next, while it is still in the cache.
        self.slots[slot as usize].place.next = self.free;
        self.free = slot;
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Packet {
        &self.slots[slot as usize].packet
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot as usize].packet
    }

    /// The channel that a waiting packet came in by.
    #[inline]
    pub(super) fn ingress(&self, slot: u32) -> u32 {
        self.slots[slot as usize].place.ingress
    }

    /// Notes the channel that a packet came in by.
    #[inline]
    pub(super) fn set_ingress(&mut self, slot: u32, channel: u32) {
        self.slots[slot as usize].place.ingress = channel;
    }

    /// Packets in the network now.
    pub(super) fn live(&self) -> usize {
        self.live
    }
}
