//! Interfaces that are the two directions of one link.

use softroce_sim::wire::capture::Interface;
use std::collections::HashMap;

/// Interfaces whose names are looked at; a file with more of them is no capture of links.
const MOST: usize = 1 << 16;

/// Which interfaces make a link, by their names: `A->B` and `B->A`.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The first interface of the link that each belongs to.
    first: Vec<u32>,
    by_name: HashMap<String, u32>,
}

impl Links {
    /// Takes note of interfaces that have appeared.
    pub(super) fn learn(&mut self, interfaces: &[Interface]) {
        for interface in interfaces.iter().take(MOST).skip(self.first.len()) {
            let own = self.first.len() as u32;
            let name = interface.name.as_deref().unwrap_or_default();
            let ends = name.split_once("->");
            // Taken out, so that names that a later section repeats make a link of their own.
            let first = ends.and_then(|(from, to)| self.by_name.remove(&format!("{to}->{from}")));
            if ends.is_some() && first.is_none() {
                self.by_name.insert(name.to_owned(), own);
            }
            self.first.push(first.unwrap_or(own));
        }
    }

    /// The interface that stands for the link.
    pub(super) fn of(&self, interface: u32) -> u32 {
        let first = self.first.get(interface as usize);
        first.copied().unwrap_or(interface)
    }
}
