//! How a packet passes a channel that has fault injectors.

use crate::fabric::counters::DropCause;
use crate::fabric::faults::{Action, FaultRecord};
use crate::fabric::host::Host;
use crate::fabric::link::{Channel, ChannelId};
use crate::fabric::losses::Why;
use crate::fabric::medium::{Medium, Other};
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
        if channel.is_down() {
            return self.discard(channel, id, slot, DropCause::LinkDown);
        }
        let packet = self.packets.get(slot);
        let (mut first, mut damager) = (None, None);
        let verdict = self.injectors[id as usize].judge(
            packet,
            &self.flows.routes()[packet.route.index()],
            |hit| {
                let record = FaultRecord {
                    time: self.clock,
                    channel: ChannelId(id),
                    fault: hit.fault,
                    action: hit.action,
                    route: packet.route,
                    bth: packet.bth,
                    sighting: hit.sighting,
                };
                if matches!(record.action, Action::Drop) && first.is_none() {
                    first = Some(record.fault);
                }
                if matches!(record.action, Action::CorruptOnLink) {
                    damager.get_or_insert(record.fault);
                }
                if matches!(record.action, Action::CorruptInDevice) {
                    let fault = Some(record.fault);
                    self.losses
                        .add(self.clock, record.channel, Why::Damaged, fault, packet);
                }
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
        // Each copy is another reference to the payload, also where the first one is dropped.
        for _ in &verdict.copies {
            self.pool.retain(packet.payload);
        }
        if let Some(position) = damager.filter(|_| !verdict.drop) {
            self.injectors[id as usize].note_damaged(slot, position);
        }
        if verdict.drop {
            self.lose(channel, id, slot, DropCause::Fault, first);
        } else if verdict.delay > Span::ZERO {
            let late = Other::Late {
                channel: id,
                slot,
                flaps: channel.flaps,
            };
            self.plan(arrival + verdict.delay, late);
        } else if let Some((packets, limit)) = verdict.reorder {
            let deadline = arrival + limit;
            self.injectors[id as usize].hold(slot, packets, deadline);
            self.plan(deadline, Other::Overdue(id));
        } else {
            self.line_up(channel, id, slot, arrival);
            // Those held back that have let enough packets past them follow on its heels.
            self.injectors[id as usize].pass();
            while let Some(held) = self.injectors[id as usize].passed() {
                self.line_up(channel, id, held, arrival);
            }
        }
        for delay in verdict.copies {
            let copy = self.packets.insert(packet);
            channel.counters.duplicates += 1;
            if let Some(position) = damager {
                self.injectors[id as usize].note_damaged(copy, position);
            }
            if delay > Span::ZERO {
                self.plan(
                    arrival + delay,
                    Other::Late {
                        channel: id,
                        slot: copy,
                        flaps: channel.flaps,
                    },
                );
            } else {
                self.line_up(channel, id, copy, arrival);
            }
        }
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// A packet has come in out of the order of its channel, unless its link has been down meanwhile.
    #[cold]
    pub(in crate::fabric) fn arrive_late(&mut self, channel: u32, slot: u32, flaps: u32) {
        let way = &mut self.channels[channel as usize];
        if way.flaps != flaps {
            return self.medium.discard(way, channel, slot, DropCause::LinkDown);
        }
        self.come_in(channel, slot);
    }

    /// A packet comes to the end of a channel other than by the channel's own event.
    #[cold]
    pub(in crate::fabric) fn come_in(&mut self, channel: u32, slot: u32) {
        let to = self.channels[channel as usize].to;
        self.arrive(channel, to, slot);
    }

    /// Lets go of the packets that a channel has held for as long as it may; false if there are none.
    #[cold]
    pub(in crate::fabric) fn release_overdue(&mut self, channel: u32) -> bool {
        let mut any = false;
        while let Some(slot) = self.medium.injectors[channel as usize].overdue(self.medium.clock) {
            self.come_in(channel, slot);
            any = true;
        }
        any
    }
}
