//! What a network has to be able to do, so that programs can live in it.

use softroce_sim::card::Card;
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{HostId, Network, Observer};
use softroce_sim::time::Time;
use softroce_sim::wire::{Gid, MacAddr};
use std::any::Any;

/// A network in virtual time whose hosts have cards.
pub trait Fabric: Send {
    /// Names of the hosts.
    fn hosts(&self) -> Vec<String>;

    /// The host at a place of [`Fabric::hosts`].
    fn host(&self, place: usize) -> HostId;

    /// The present.
    fn now(&self) -> Time;

    /// When something happens next; `None` if nothing will.
    fn next_event(&self) -> Option<Time>;

    /// Lets the next thing happen.
    fn step(&mut self);

    /// Lets everything happen that happens before `until`, and goes there.
    fn run_until(&mut self, until: Time);

    /// The card of a host.
    fn card(&mut self, host: HostId) -> &mut Card;

    /// True if the card of a host has news that nobody took.
    fn has_news(&self, host: HostId) -> bool;

    /// Completions of the card of a host so far.
    fn completed(&self, host: HostId) -> u64;

    /// Packets that the card of a host has taken in so far: only they change the host's memory from outside.
    fn arrived(&self, host: HostId) -> u64;

    /// A card was changed.
    fn kick(&mut self, host: HostId);

    /// Addresses of all hosts: of their cards and of Ethernet.
    fn neighbours(&self) -> Vec<(Gid, MacAddr)>;

    /// Itself, for whoever knows what it is.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<O: Observer + Send + 'static> Fabric for Network<Machine, O> {
    fn hosts(&self) -> Vec<String> {
        let hosts = self.topology().hosts();
        hosts.iter().map(|h| h.name.clone()).collect()
    }

    fn host(&self, place: usize) -> HostId {
        HostId::new(place)
    }

    fn now(&self) -> Time {
        Network::now(self)
    }

    fn next_event(&self) -> Option<Time> {
        Network::next_event(self)
    }

    fn step(&mut self) {
        Network::step(self);
    }

    fn run_until(&mut self, until: Time) {
        Network::run_until(self, until);
    }

    fn card(&mut self, host: HostId) -> &mut Card {
        self.host_mut(host).card_mut()
    }

    fn has_news(&self, host: HostId) -> bool {
        Network::host(self, host).card().has_news()
    }

    fn completed(&self, host: HostId) -> u64 {
        Network::host(self, host).card().completed()
    }

    fn arrived(&self, host: HostId) -> u64 {
        Network::host(self, host).arrived()
    }

    fn kick(&mut self, host: HostId) {
        Network::kick(self, host);
    }

    fn neighbours(&self) -> Vec<(Gid, MacAddr)> {
        let hosts = self.topology().hosts();
        hosts.iter().map(|h| (h.gid(), h.mac)).collect()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
