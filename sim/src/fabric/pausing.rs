//! PFC frames on their way, and the pauses they bring.
//!
//! Who is paused by the end of a channel is the sender on that channel; the frame that says so goes the
//! other way, before anything else that waits there, and takes effect when it has arrived whole and the
//! paused port has had its time to respond. Then no frame begins in that priority until the pause is
//! taken back or runs out. It lasts from when the frame arrived, which is when the port loads its timer: one
//! asked for again lasts on if the frame comes no later than it ends, and one that has ended when the port
//! has had its time pauses nobody. A link that goes down ends all pauses, and loses the frames on it and what the
//! ports have yet to do. Fault injectors do not see PFC frames.

use super::deadlock::PauseCause;
use super::host::Host;
use super::link::{ChannelId, End, LinkSpec, MIN_FRAME, Rate};
use super::medium::Other;
use super::network::Network;
use super::observer::Observer;
use super::pfc::{PfcSpec, QUANTUM};
use super::watchdog::Watchdog;
use crate::card::PriorityMask;
use crate::time::{Span, Time};
use crate::wire::MacAddr;
use crate::wire::pfc::Pfc;

/// How the end of a channel pauses; whom it has paused is in [`Ingress`](super::buffer::Ingress).
#[derive(Clone, Debug)]
pub(super) struct Pauser {
    /// By priority: when the pause must be asked for again.
    due: [Time; 8],
    /// An event for that is planned.
    timer: bool,
    quanta: u16,
    refresh: Span,
}

impl Pauser {
    pub(super) fn new(pfc: Option<PfcSpec>, link: &LinkSpec) -> Pauser {
        Pauser {
            due: [Time::NEVER; 8],
            timer: false,
            quanta: pfc.map_or(0, |pfc| pfc.quanta),
            refresh: pfc.map_or(Span::ZERO, |pfc| pfc.asked_again(link.rate)),
        }
    }

    /// When the first of the pauses `off` must be asked for again.
    fn next(&self, off: PriorityMask) -> Option<Time> {
        priorities(off).map(|p| self.due[usize::from(p)]).min()
    }
}

/// What a PFC frame tells the sender on a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// For which priorities it says something.
    asked: PriorityMask,
    /// Which of them it pauses; the others may go on.
    stop: PriorityMask,
    /// For how long.
    quanta: u16,
    /// How often the link had gone down when it was sent.
    flaps: u32,
}

/// How a channel is paused.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// Priorities whose pauses it obeys.
    pub(super) obeys: PriorityMask,
    /// By priority: when its pause runs out.
    until: [Time; 8],
    /// By priority: since when it is paused.
    since: [Time; 8],
    /// Priorities for which an event at the end of a pause is planned.
    timers: PriorityMask,
    response: Span,
    /// How long 64 KiQuanta last, so that no fraction is lost.
    rate: Rate,
    /// The address its transmitter puts in PFC frames.
    address: MacAddr,
    /// What the PFC frame that waits for it is to say: for which priorities, which of them to pause,
    /// and how long.
    asked: PriorityMask,
    stop: PriorityMask,
    quanta: u16,
    pub(super) watchdog: Option<Watchdog>,
    /// Priorities for which the watchdog looks again.
    pub(super) watched: PriorityMask,
    /// Priorities that the watchdog took for stuck.
    pub(super) stormed: PriorityMask,
    /// By priority: when a pause last came.
    heard: [Time; 8],
    /// By priority: when a packet last found its queue paused and empty.
    filled: [Time; 8],
}

impl Gate {
    pub(super) fn new(
        link: &LinkSpec,
        obeys: PriorityMask,
        watchdog: Option<Watchdog>,
        address: MacAddr,
    ) -> Gate {
        Gate {
            obeys,
            until: [Time::ZERO; 8],
            since: [Time::ZERO; 8],
            timers: PriorityMask::NONE,
            response: link.rate.span(u64::from(link.response_quanta()) * QUANTUM),
            rate: link.rate,
            address,
            asked: PriorityMask::NONE,
            stop: PriorityMask::NONE,
            quanta: 0,
            watchdog,
            watched: PriorityMask::NONE,
            stormed: PriorityMask::NONE,
            heard: [Time::ZERO; 8],
            filled: [Time::ZERO; 8],
        }
    }

    /// How long a pause of so many quanta lasts.
    fn lasts(&self, quanta: u16) -> Span {
        self.rate.span(u64::from(quanta) * QUANTUM)
    }

    /// A packet has come into the empty queue of a priority that is paused.
    pub(super) fn fill(&mut self, priority: u8, now: Time) {
        self.filled[usize::from(priority & 7)] = now;
    }

    /// Since when a priority, which is paused, has been so with something waiting.
    pub(super) fn stuck_since(&self, priority: u8) -> Time {
        let p = usize::from(priority & 7);
        self.since[p].max(self.filled[p])
    }

    /// The link goes down: what was to be said is not.
    pub(super) fn forget(&mut self) {
        self.asked = PriorityMask::NONE;
        self.stop = PriorityMask::NONE;
    }

    /// When a pause of a priority last came.
    pub(super) fn heard(&self, priority: u8) -> Time {
        self.heard[usize::from(priority & 7)]
    }

    /// Since when a priority, which is paused, is so.
    pub(super) fn since(&self, priority: u8) -> Time {
        self.since[usize::from(priority & 7)]
    }
}

/// The priorities in a mask, in rising order.
pub(super) fn priorities(mask: PriorityMask) -> impl Iterator<Item = u8> {
    (0..8).filter(move |&p| mask.contains(p))
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Pauses the sender on a channel, because of a packet that waits for channel `behind`.
    #[cold]
    pub(super) fn stop(&mut self, channel: u32, priority: u8, behind: Option<u32>) {
        let now = self.medium.clock;
        self.pause_log.add(PauseCause {
            time: now,
            channel: ChannelId(channel),
            priority,
            behind: behind.map(ChannelId),
            paused: behind
                .is_some_and(|out| !self.channels[out as usize].ready().contains(priority)),
        });
        let off = &mut self.managed.ingresses[channel as usize].off;
        *off = off.with(priority);
        let pauser = &mut self.managed.pausers[channel as usize];
        let due = now + pauser.refresh;
        pauser.due[usize::from(priority & 7)] = due;
        if !pauser.timer {
            pauser.timer = true;
            self.medium.plan(due, Other::Refresh(channel));
        }
        if let End::Switch(switch) = self.channels[channel as usize].to {
            let node = &mut self.managed.switches[switch as usize];
            let refused = self.managed.ingresses[channel as usize].refused;
            let others = refused.contains(priority) || node.buffer.is_dynamic();
            if others && !node.held.contains(&(channel, priority)) {
                node.held.push((channel, priority));
            }
        }
        self.ask(channel, PriorityMask::NONE.with(priority), true);
    }

    /// Lets the sender on a channel go.
    #[cold]
    pub(super) fn release(&mut self, channel: u32, priority: u8) {
        let from = &mut self.managed.ingresses[channel as usize];
        from.off = from.off.without(priority);
        from.refused = from.refused.without(priority);
        self.ask(channel, PriorityMask::NONE.with(priority), false);
    }

    /// Asks again for the pauses that must be; false if there are none.
    pub(super) fn refresh(&mut self, channel: u32) -> bool {
        let now = self.medium.clock;
        let off = self.managed.ingresses[channel as usize].off;
        let pauser = &mut self.managed.pausers[channel as usize];
        pauser.timer = false;
        let again = priorities(off)
            .filter(|&p| pauser.due[usize::from(p)] <= now)
            .fold(PriorityMask::NONE, PriorityMask::with);
        for p in priorities(again) {
            pauser.due[usize::from(p)] = now + pauser.refresh;
        }
        if let Some(next) = pauser.next(off) {
            pauser.timer = true;
            self.medium.plan(next, Other::Refresh(channel));
        }
        if !again.is_empty() {
            self.ask(channel, again, true);
        }
        !again.is_empty()
    }

    /// Has a PFC frame tell the sender on a channel to stop or to go on. What has not gone out yet goes
    /// out in the same frame, or is taken back.
    fn ask(&mut self, channel: u32, asked: PriorityMask, stop: bool) {
        let quanta = self.managed.pausers[channel as usize].quanta;
        let back = channel ^ 1;
        let gate = &mut self.managed.gates[back as usize];
        gate.quanta = quanta;
        for p in priorities(asked) {
            gate.asked = gate.asked.with(p);
            gate.stop = if stop {
                gate.stop.with(p)
            } else {
                gate.stop.without(p)
            };
        }
        let way = &mut self.channels[back as usize];
        if way.urgent {
            return;
        }
        if way.is_free(self.medium.clock) {
            return self.send_pfc(back);
        }
        way.urgent = true;
        if !way.awaited {
            self.medium.wake(way, back);
        }
    }

    /// Puts the PFC frame that is asked for on a channel, which is free.
    pub(super) fn send_pfc(&mut self, id: u32) {
        let now = self.medium.clock;
        let channel = &mut self.channels[id as usize];
        let gate = &mut self.managed.gates[id as usize];
        let (asked, stop) = (gate.asked, gate.stop);
        let mut frame = Pfc::new(gate.address, asked.0, 0);
        let counters = &mut channel.counters;
        for p in priorities(asked) {
            let counter = &mut counters.by_priority[usize::from(p)];
            if stop.contains(p) {
                frame.quanta[usize::from(p)] = gate.quanta;
                counter.pauses_sent += 1;
            } else {
                counter.resumes_sent += 1;
            }
        }
        counters.frames += 1;
        counters.pfc_frames += 1;
        counters.bytes += u64::from(MIN_FRAME);
        gate.asked = PriorityMask::NONE;
        gate.stop = PriorityMask::NONE;
        channel.urgent = false;
        self.medium.observer.on_pfc(now, ChannelId(id), &frame);
        let arrival = channel.occupy(now, MIN_FRAME);
        let order = Order {
            asked,
            stop,
            quanta: gate.quanta,
            flaps: channel.flaps,
        };
        if !channel.is_down() {
            let channel = id ^ 1;
            self.medium.plan(arrival, Other::Pfc { channel, order });
        }
        // A host asks for its own next turn.
        if channel.managed
            && !channel.awaited
            && !channel.queue.waiting().and(channel.ready()).is_empty()
        {
            self.medium.wake(channel, id);
        }
    }

    /// A PFC frame has come to the sender on a channel: pauses last from now, and what it says takes effect when
    /// the port has had its time. False if it was lost.
    pub(super) fn hear(&mut self, id: u32, order: Order) -> bool {
        let now = self.medium.clock;
        let channel = &self.channels[id as usize];
        if channel.flaps != order.flaps {
            return false;
        }
        let gate = &mut self.managed.gates[id as usize];
        let until = now + gate.lasts(order.quanta);
        for p in priorities(order.stop) {
            gate.until[usize::from(p)] = until;
        }
        let effect = now + gate.response;
        self.medium
            .plan(effect, Other::Pause { channel: id, order });
        true
    }

    /// What a PFC frame said takes effect on a channel; false if the link has been down since.
    pub(super) fn obey(&mut self, id: u32, order: Order) -> bool {
        let now = self.medium.clock;
        let Order { asked, stop, .. } = order;
        let gate = &mut self.managed.gates[id as usize];
        let channel = &mut self.channels[id as usize];
        if channel.flaps != order.flaps {
            return false;
        }
        let mut ended = PriorityMask::NONE;
        for p in priorities(asked) {
            let counters = &mut channel.counters.by_priority[usize::from(p)];
            if !stop.contains(p) {
                counters.resumes_received += 1;
                ended = ended.with(p);
                continue;
            }
            counters.pauses_received += 1;
            gate.heard[usize::from(p)] = now;
            let obeys = gate.obeys.contains(p) && !gate.stormed.contains(p);
            let until = gate.until[usize::from(p)];
            if !obeys || until <= now {
                continue;
            }
            if channel.unpaused.contains(p) {
                channel.unpaused = channel.unpaused.without(p);
                gate.since[usize::from(p)] = now;
                self.medium.observer.on_pause(now, ChannelId(id), p, true);
            }
            // If nothing waits, it is watched from when something does.
            if let Some(watchdog) = gate.watchdog
                && channel.queue.waiting().contains(p)
                && !gate.watched.contains(p)
            {
                gate.watched = gate.watched.with(p);
                let event = Other::Watch {
                    channel: id,
                    priority: p,
                };
                let since = gate.stuck_since(p);
                self.medium.plan((since + watchdog.after).max(now), event);
            }
            if !gate.timers.contains(p) {
                gate.timers = gate.timers.with(p);
                let event = Other::PauseEnd {
                    channel: id,
                    priority: p,
                    last: false,
                };
                self.medium.plan(until, event);
            }
        }
        self.resume(id, ended);
        true
    }

    /// The end of a pause may have come; false if it had been moved away. It comes after whatever else was to
    /// happen at its time, such as that it is asked for again.
    pub(super) fn expire_pause(&mut self, id: u32, priority: u8, last: bool) -> bool {
        let gate = &mut self.managed.gates[id as usize];
        gate.timers = gate.timers.without(priority);
        if self.channels[id as usize].unpaused.contains(priority) || gate.stormed.contains(priority)
        {
            return false;
        }
        let until = gate.until[usize::from(priority & 7)];
        let over = until <= self.medium.clock;
        if !over || !last {
            gate.timers = gate.timers.with(priority);
            let event = Other::PauseEnd {
                channel: id,
                priority,
                last: over,
            };
            self.medium.plan(until.max(self.medium.clock), event);
            return false;
        }
        self.resume(id, PriorityMask::NONE.with(priority));
        true
    }

    /// Ends the pauses of a channel in some priorities.
    pub(super) fn resume(&mut self, id: u32, ended: PriorityMask) {
        let now = self.medium.clock;
        let channel = &mut self.channels[id as usize];
        let gate = &self.managed.gates[id as usize];
        let mut any = false;
        for p in priorities(ended) {
            if channel.unpaused.contains(p) || gate.stormed.contains(p) {
                continue;
            }
            any = true;
            channel.unpaused = channel.unpaused.with(p);
            let counters = &mut channel.counters.by_priority[usize::from(p)];
            counters.paused = counters.paused + now.since(gate.since(p));
            self.medium.observer.on_pause(now, ChannelId(id), p, false);
        }
        if !any {
            return;
        }
        match channel.from {
            End::Host(host) => self.ask_host(host),
            End::Switch(switch) => {
                if !channel.awaited && !channel.queue.waiting().and(channel.ready()).is_empty() {
                    self.serve(switch, id);
                }
            }
        }
    }
}
