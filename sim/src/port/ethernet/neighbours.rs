//! Which Ethernet address a neighbour has, and packets that wait to know it.
//!
//! A packet whose address vector names no Ethernet address waits here until its neighbour has answered,
//! in the order of sending and with the room that Linux gives; its ICRC does not cover the address, so it
//! is whole already. What does not fit is lost, the latest first. One who does not answer is asked three
//! times, a second apart (RFC 1122, 2.3.2.1; RFC 4861, 10); then what waits is lost, and the next packet
//! begins anew. An address is believed for 30 seconds (RFC 4861, 10) and used on while asked about again.

use crate::time::{Span, Time};
use crate::wire::MacAddr;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A neighbour: its VLAN, and its address there.
pub(super) type Name = (Option<u16>, IpAddr);

/// Questions for one address before giving up, and the time between them.
const QUESTIONS: u8 = 3;
const PATIENCE: Span = Span::from_ms(1000);
/// How long an answer is believed.
const REACHABLE: Span = Span::from_ms(30_000);
/// Bytes of packets that wait for one neighbour: Linux' `unres_qlen_bytes`.
const ROOM: usize = 212_992;

#[derive(Debug, Default)]
struct Entry {
    mac: Option<MacAddr>,
    /// When it was last heard.
    heard: Time,
    /// Questions asked since it was last heard.
    asked: u8,
    /// When the next one is due; [`Time::NEVER`] if none is.
    due: Time,
    waiting: Vec<Vec<u8>>,
    bytes: usize,
}

/// What is known of all neighbours that packets go to.
#[derive(Debug)]
pub(super) struct Neighbours {
    entries: BTreeMap<Name, Entry>,
    due: Time,
}

/// What to do about a packet's neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Its Ethernet address, if it is known.
    pub(super) mac: Option<MacAddr>,
    /// It is to be asked.
    pub(super) ask: bool,
}

impl Neighbours {
    pub(super) fn new() -> Neighbours {
        Neighbours {
            entries: BTreeMap::new(),
            due: Time::NEVER,
        }
    }

    /// Looks for a neighbour that a packet goes to.
    pub(super) fn find(&mut self, now: Time, name: Name) -> Found {
        let entry = self.entries.entry(name).or_insert_with(|| Entry {
            due: Time::NEVER,
            ..Entry::default()
        });
        let fresh = entry.mac.is_some() && now.since(entry.heard) < REACHABLE;
        let ask = !fresh && entry.asked == 0;
        if ask {
            entry.asked = 1;
            entry.due = now + PATIENCE;
            self.due = self.due.min(entry.due);
        }
        Found {
            mac: entry.mac,
            ask,
        }
    }

    /// Lets a frame wait for a neighbour that was looked for; false if there is no room.
    pub(super) fn hold(&mut self, name: Name, frame: &[u8]) -> bool {
        let Some(entry) = self.entries.get_mut(&name) else {
            return false;
        };
        if entry.bytes + frame.len() > ROOM {
            return false;
        }
        entry.bytes += frame.len();
        entry.waiting.push(frame.to_vec());
        true
    }

    /// A neighbour is at `mac`. Frames that waited for it come back, in their order; who is not looked for
    /// is not remembered.
    pub(super) fn heard(&mut self, now: Time, name: Name, mac: MacAddr) -> Vec<Vec<u8>> {
        let Some(entry) = self.entries.get_mut(&name) else {
            return Vec::new();
        };
        entry.mac = Some(mac);
        entry.heard = now;
        entry.asked = 0;
        entry.due = Time::NEVER;
        entry.bytes = 0;
        let waiting = std::mem::take(&mut entry.waiting);
        self.settle();
        waiting
    }

    /// When [`Neighbours::advance`] is to be called.
    pub(super) fn next_timeout(&self) -> Time {
        self.due
    }

    /// Neighbours to ask again, and how many frames are lost because nobody answered.
    pub(super) fn advance(&mut self, now: Time) -> (Vec<Name>, u64) {
        let (mut again, mut lost) = (Vec::new(), 0);
        self.entries.retain(|name, entry| {
            if entry.due > now {
                return true;
            }
            if entry.asked == QUESTIONS {
                lost += entry.waiting.len() as u64;
                return false;
            }
            entry.asked += 1;
            entry.due = now + PATIENCE;
            again.push(*name);
            true
        });
        self.settle();
        (again, lost)
    }

    fn settle(&mut self) {
        let due = self.entries.values().map(|entry| entry.due);
        self.due = due.min().unwrap_or(Time::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NAME: Name = (None, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_ms(1000 * seconds)
    }

    #[test]
    fn packets_wait_in_order_for_an_answer() {
        let mut neighbours = Neighbours::new();
        let unknown = |ask| Found { mac: None, ask };
        assert_eq!(neighbours.find(at(0), NAME), unknown(true));
        assert!(neighbours.hold(NAME, &[1]));
        assert_eq!(neighbours.find(at(0), NAME), unknown(false));
        assert!(neighbours.hold(NAME, &[2]));
        // Another VLAN is another neighbour.
        assert_eq!(neighbours.find(at(0), (Some(5), NAME.1)), unknown(true));
        assert_eq!(neighbours.heard(at(0), NAME, MAC), [[1], [2]]);
        let known = |ask| Found {
            mac: Some(MAC),
            ask,
        };
        assert_eq!(neighbours.find(at(29), NAME), known(false));
        // Asked about again, and used meanwhile.
        assert_eq!(neighbours.find(at(30), NAME), known(true));
        assert_eq!(neighbours.find(at(30), NAME), known(false));
        assert_eq!(neighbours.heard(at(30), NAME, MAC).len(), 0);
        assert_eq!(neighbours.find(at(31), NAME), known(false));
    }

    #[test]
    fn who_does_not_answer_is_asked_three_times() {
        let mut neighbours = Neighbours::new();
        assert!(neighbours.find(at(0), NAME).ask);
        assert!(neighbours.hold(NAME, &[1]));
        assert_eq!(neighbours.next_timeout(), at(1));
        assert_eq!(neighbours.advance(at(1)), (vec![NAME], 0));
        assert_eq!(neighbours.advance(at(1)), (vec![], 0));
        assert_eq!(neighbours.advance(at(2)), (vec![NAME], 0));
        assert_eq!(neighbours.advance(at(3)), (vec![], 1));
        assert_eq!(neighbours.next_timeout(), Time::NEVER);
        assert!(neighbours.find(at(3), NAME).ask);
    }

    #[test]
    fn who_falls_silent_is_forgotten() {
        let mut neighbours = Neighbours::new();
        neighbours.find(at(0), NAME);
        neighbours.heard(at(0), NAME, MAC);
        assert!(neighbours.find(at(40), NAME).ask);
        for second in 41..=43 {
            neighbours.advance(at(second));
        }
        assert_eq!(neighbours.find(at(43), NAME).mac, None);
    }

    #[test]
    fn room_is_bounded_and_strangers_take_none() {
        let mut neighbours = Neighbours::new();
        neighbours.find(at(0), NAME);
        let frame = [0; 4096];
        let fit = (0..100).filter(|_| neighbours.hold(NAME, &frame)).count();
        assert_eq!(fit, 52);
        let stranger = (None, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)));
        neighbours.heard(at(0), stranger, MAC);
        assert!(!neighbours.hold(stranger, &frame));
        assert_eq!(neighbours.find(at(0), stranger).mac, None);
    }
}
