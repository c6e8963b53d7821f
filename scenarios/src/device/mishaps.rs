//! What goes wrong on a software card, because it is asked for.

use super::LaunchError;
use crate::format::{Content, File, Source, port};
use crate::run;
use crate::units::{self, Probability};
use clap::Args;
use softroce_sim::card::CardConfig;
use softroce_sim::card::congestion::{CongestionControl, Dcqcn, Notification};
use softroce_sim::faults::{Action, Fault, Pattern};
use softroce_sim::port::PortConfig;
use softroce_sim::rate::Rate;
use std::path::PathBuf;

/// What goes wrong, on purpose, with the packets that a software card in real time sends.
#[derive(Args, Clone, Default, Debug)]
pub struct MishapArgs {
    /// Share of packets that softroce0 drops instead of sending them: 0.1% or 0.001.
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub loss: Probability,
    /// What else goes wrong with them: a file of `[[fault]]` tables as a scenario has them, without link, traffic
    /// and qp. Their random numbers are the same each time; --seed gives others.
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// The most that softroce0 sends, in bits of Ethernet frames: 100Mbps, 2.5Gbps.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<units::Rate>,
    /// What softroce0 does about congestion: answers marks by CNPs and slows down when one comes, or nothing.
    /// DCQCN begins at --rate, or at 10Gbps.
    #[arg(long, value_enum, value_name = "NAME", default_value = "none")]
    pub congestion_control: PortControl,
}

/// Congestion control of a card in real time.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PortControl {
    /// None.
    #[default]
    None,
    /// DCQCN, with the parameters of ConnectX cards.
    Dcqcn,
}

impl MishapArgs {
    /// The first option that is given, and what does the same in a scenario's network.
    pub(super) fn given(&self) -> Option<(&'static str, &'static str)> {
        if self.loss != Probability::ZERO {
            Some(("--loss", "--set link.loss=SHARE"))
        } else if self.faults.is_some() {
            Some(("--faults", "the scenario's [[fault]]"))
        } else if self.rate.is_some() {
            Some(("--rate", "--set link.rate=RATE"))
        } else if self.congestion_control != PortControl::None {
            Some(("--congestion-control", "--set card.congestion=NAME"))
        } else {
            None
        }
    }

    /// Sets up a card so.
    pub(super) fn set_up_card(&self, card: &mut CardConfig) {
        if let Some(rate) = self.rate.and_then(|units::Rate(bits)| Rate::from_bps(bits)) {
            card.line_rate = rate;
        }
        if self.congestion_control == PortControl::Dcqcn {
            if self.rate.is_none() {
                card.line_rate = Rate::from_gbps(10);
            }
            card.congestion = CongestionControl::Dcqcn(Dcqcn::CONNECTX);
            card.notification = Some(Notification::CONNECTX);
        }
    }

    /// Sets up a port so.
    pub(super) fn set_up(
        &self,
        seed: Option<u64>,
        port: &mut PortConfig,
    ) -> Result<(), LaunchError> {
        if self.loss != Probability::ZERO {
            let random = Pattern::Random(self.loss.draw());
            port.faults.push(Fault::new(Action::Drop).when(random));
        }
        if let Some(path) = &self.faults {
            let source = Source::read(path, Content::Faults).map_err(LaunchError::Faults)?;
            let file = File::parse(source).map_err(LaunchError::Scenario)?;
            let faults = port::read(&file).map_err(LaunchError::Scenario)?;
            let faults = faults.iter().map(|f| run::injection::fault(&f.injection));
            port.faults.extend(faults);
        }
        if let Some(units::Rate(bits)) = self.rate {
            let rate = Rate::from_bps(bits);
            port.rate = Some(rate.ok_or_else(|| {
                LaunchError::Arguments("--rate 0: nothing could ever be sent".into())
            })?);
        }
        port.fault_seed = seed.unwrap_or(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an option's message says to write in its place is taken.
    #[test]
    fn what_does_the_same_in_a_scenario_is_a_key_of_it() {
        let none = MishapArgs::default;
        let given = [
            MishapArgs {
                loss: "0.1".parse().unwrap(),
                ..none()
            },
            MishapArgs {
                rate: Some(units::Rate(1_000_000_000)),
                ..none()
            },
            MishapArgs {
                congestion_control: PortControl::Dcqcn,
                ..none()
            },
        ];
        for mishaps in given {
            let (option, instead) = mishaps.given().unwrap();
            let setting = instead.strip_prefix("--set ").unwrap();
            let setting = setting
                .replace("SHARE", "0.1")
                .replace("RATE", "10Gbps")
                .replace("NAME", "dcqcn");
            let told = super::super::read("two-hosts", &[setting]).map(|_| ());
            assert!(told.is_ok(), "{option}: {instead}: {}", told.unwrap_err());
        }
    }
}
