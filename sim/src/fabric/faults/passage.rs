//! How a packet passes a channel that has fault injectors.

use crate::fabric::counters::DropCause;
use crate::fabric::host::Host;
use crate::fabric::link::{Channel, ChannelId};
use crate::fabric::medium::{Event, Medium};
use crate::fabric::network::Network;
use crate::fabric::observer::Observer;
use crate::time::{Span, Time};
use crate::wire::{Damage, Ecn};

impl<O: Observer> Medium<O> {
    /// Asks a channel's injectors what becomes of a packet that, left alone, comes in at `arrival`.
    #[cold]
    pub(in crate::fabric) fn transmit_faultily(
        &mut self,
        channel: &mut Channel,
        id: u32,
        slot: u32,
        arrival: Time,
    ) {
        let packet = self.packets.get(slot);
        let verdict = self.injectors[id as usize].judge(
            self.clock,
            ChannelId(id),
            packet,
            &self.flows.routes()[packet.route.index()],
            |record| {
                self.observer.on_fault(&record);
                self.fault_log.add(record);
            },
        );
        let packet = self.packets.get_mut(slot);
        match verdict.damage {
            Damage::Link => packet.damage = Damage::Link,
            Damage::Device if packet.damage == Damage::None => packet.damage = Damage::Device,
            _ => {}
        }
        if verdict.mark && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Experienced;
        }
        let packet = *packet;
        if verdict.drop {
            self.discard(channel, id, slot, DropCause::Fault);
        } else if verdict.delay > Span::ZERO {
            self.come_late(id, slot, arrival + verdict.delay);
        } else if let Some((packets, limit)) = verdict.reorder {
            let deadline = arrival + limit;
            self.injectors[id as usize].hold(slot, packets, deadline);
            self.events.push(deadline, Event::new(Event::OVERDUE, id));
        } else {
            self.line_up(channel, id, slot, arrival);
            // Those held back that have let enough packets past them follow on its heels.
            self.injectors[id as usize].pass();
            while let Some(held) = self.injectors[id as usize].passed() {
                self.line_up(channel, id, held, arrival);
            }
        }
        for delay in verdict.copies {
            // Each copy is another reference to the payload, also where the first one is dropped.
            self.pool.retain(packet.payload);
            let copy = self.packets.insert(packet);
            channel.counters.duplicates += 1;
            if delay > Span::ZERO {
                self.come_late(id, copy, arrival + delay);
            } else {
                self.line_up(channel, id, copy, arrival);
            }
        }
    }

    /// Has a packet arrive by itself, out of the order of its channel.
    fn come_late(&mut self, channel: u32, slot: u32, arrival: Time) {
        self.packets.set_channel(slot, channel);
        self.events.push(arrival, Event::new(Event::LATE, slot));
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// A packet has come in out of the order of its channel.
    #[cold]
    pub(in crate::fabric) fn arrive_late(&mut self, channel: u32, slot: u32) {
        let to = self.channels[channel as usize].to;
        self.arrive(channel, to, slot);
    }

    /// Lets go of the packets that a channel has held for as long as it may.
    #[cold]
    pub(in crate::fabric) fn release_overdue(&mut self, channel: u32) {
        while let Some(slot) = self.medium.injectors[channel as usize].overdue(self.medium.clock) {
            self.arrive_late(channel, slot);
        }
    }
}
