//! All-reduce and parameter server: the flows that wait for each other.

use super::{Collective, CollectiveKind, Context, Flows};
use crate::format::request::Operation;
use crate::format::traffic::Own;
use crate::units::{Ratio, Size, Span};
use softroce_sim::fabric::collective::Ring;

/// The most rounds of a collective times its members.
const MAX_ROUNDS: u64 = 1 << 22;

impl Context<'_> {
    pub(super) fn all_reduce(&self) -> Flows {
        if !matches!(
            self.operation,
            Operation::Send | Operation::SendImm | Operation::WriteImm
        ) {
            self.reader.say(
                "operation",
                "tells the next host nothing; all-reduce takes \"write-imm\", \"send\" or \"send-imm\"",
            );
            return Flows::default();
        }
        let Some(hosts) = self.members("hosts", &[]) else {
            return Flows::default();
        };
        let rings: u32 = self.reader.get("rings");
        let n = hosts.len();
        let collective = self.collective(CollectiveKind::AllReduce { rings }, &hosts);
        if !self.fits(n as u64 * u64::from(rings)) {
            return Flows::default();
        }
        Flows {
            pairs: (0..n).map(|i| (hosts[i], hosts[(i + 1) % n])).collect(),
            qps: Some(rings),
            messages: Some(Ring::steps(n).saturating_mul(collective.iterations)),
            size: Some(Size(Ring::chunk(collective.bytes.0, n, rings as usize))),
            collective: Some(collective),
            ..Flows::default()
        }
    }

    pub(super) fn parameter_server(&self) -> Flows {
        let Some(server) = self.one() else {
            return Flows::default();
        };
        let workers = self.from(&[server]).unwrap_or_else(|| self.all_but(server));
        let n = workers.len();
        let parallel: Option<u32> = self.reader.opt("parallel");
        let (pull, push) = match self.operation {
            Operation::Read => {
                let all = u32::try_from(n).unwrap_or(u32::MAX);
                (Some(parallel.unwrap_or(all)), Operation::WriteImm)
            }
            Operation::Send | Operation::SendImm | Operation::WriteImm => (None, self.operation),
            _ => {
                self.reader.say(
                    "operation",
                    "tells the server nothing; workers push by \"write-imm\", \"send\" or \"send-imm\", \
                     and a server pulls by \"read\"",
                );
                return Flows::default();
            }
        };
        if pull.is_none() && parallel.is_some() {
            self.reader.say(
                "parallel",
                "is for a server that pulls, with the operation \"read\"",
            );
        }
        let ways = if pull.is_some() { 3 } else { 2 };
        if !self.fits(n as u64 * ways) {
            return Flows::default();
        }
        let mut collective = self.collective(CollectiveKind::ParameterServer { pull }, &workers);
        let (bytes, reply) = (collective.bytes, self.reader.opt("reply"));
        let own = |size, operation| Own {
            size,
            start: Span::ZERO,
            operation,
        };
        let up = workers.iter().map(|&w| {
            let size = if pull.is_some() { Size(0) } else { bytes };
            ((w, server), own(size, push))
        });
        let reply = own(reply.unwrap_or(bytes), Operation::WriteImm);
        let down = workers.iter().map(|&w| ((server, w), reply));
        let reads = workers
            .iter()
            .map(|&w| ((server, w), own(bytes, Operation::Read)));
        let reads = reads.take(if pull.is_some() { n } else { 0 });
        let (pairs, own) = up.chain(down).chain(reads).unzip();
        collective.members.push((server, Span::ZERO));
        Flows {
            pairs,
            own,
            messages: Some(collective.iterations),
            qps: Some(1),
            collective: Some(collective),
            ..Flows::default()
        }
    }

    fn collective(&self, kind: CollectiveKind, hosts: &[usize]) -> Collective {
        let compute: Span = self.reader.get("compute");
        let slow = match self.reader.has("slow") {
            true => self.named("slow").unwrap_or_default(),
            false => Vec::new(),
        };
        if let Some(&other) = slow.iter().find(|h| !hosts.contains(h)) {
            let name = &self.network.hosts[other];
            self.reader
                .say("slow", format!("names \"{name}\", which has no part in it"));
        }
        let factor: Ratio = self.reader.get("slowdown");
        let longer = compute.as_ps() as f64 * factor.get();
        if longer >= 1e18 {
            self.reader
                .say("slowdown", "makes a host compute for more than 1000000s");
        }
        let iterations: u64 = self.reader.get("iterations");
        if iterations.saturating_mul(hosts.len() as u64) > MAX_ROUNDS {
            let told = format!(
                "of {} hosts are too many to keep; the limit is {MAX_ROUNDS} in all",
                hosts.len()
            );
            self.reader.say("iterations", told);
        }
        let time = |host: &usize| match slow.contains(host) {
            true => Span::from_ps(longer as u64),
            false => compute,
        };
        Collective {
            kind,
            members: hosts.iter().map(|h| (*h, time(h))).collect(),
            iterations,
            bytes: self.size(),
        }
    }
}
