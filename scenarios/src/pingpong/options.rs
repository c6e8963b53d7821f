//! The command line.

use softroce_sim::card::Mtu;
use softroce_sim::random::Probability;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Exchange messages between two processes over a software card on loopback.
///
/// Without SERVER it waits for a client; with it, it is the client. Option letters are those of
/// ibv_rc_pingpong.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where the server listens: 127.0.0.1 or localhost unless it was given --bind
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,

    /// TCP port for the exchange of addresses
    #[arg(
        short,
        long,
        value_name = "PORT",
        allow_negative_numbers = true,
        default_value_t = 18515
    )]
    pub port: u16,

    /// Size of a message in bytes
    #[arg(short, long, value_name = "BYTES", allow_negative_numbers = true, default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(0..=MAX_SIZE as i64))]
    pub size: u32,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, value_name = "BYTES", allow_negative_numbers = true, default_value = "1024", value_parser = parse_mtu)]
    pub mtu: Mtu,

    /// Receive requests posted at a time
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub rx_depth: u32,

    /// Messages sent back and forth
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Service level
    #[arg(short = 'l', long, value_name = "SL", allow_negative_numbers = true, default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub sl: u8,

    /// Index of the local GID; the card has one, at index 0
    #[arg(short, long, value_name = "INDEX", allow_negative_numbers = true, default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=0))]
    pub gid_idx: u8,

    /// Compare the data of every message of the ping-pong too
    #[arg(short, long)]
    pub chk: bool,

    /// Address of the card; without it the first of 127.0.0.2 to 127.0.0.254 that is free. Each end needs
    /// an address of its own: over IPv6, which has ::1 alone on loopback, the second end needs one that
    /// was added to the machine
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,

    /// Local ACK timeout exponent: 4.096 us times 2^N; 0 waits for ever
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 14,
          value_parser = clap::value_parser!(u8).range(0..=31))]
    pub timeout: u8,

    /// Retries before a request fails
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 7,
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub retry_cnt: u8,

    /// Give up when nothing has come from the peer for so many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub wait: u32,

    /// Share of packets to drop instead of sending them: 0.1% or 0.001
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, default_value = "0", value_parser = parse_share)]
    pub loss: Probability,

    /// Seed of queue pair number, PSN, keys and losses, instead of random ones
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// Write the frames sent and received to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Largest message: each end keeps six of them in memory.
pub(super) const MAX_SIZE: u32 = 256 << 20;

impl Options {
    pub(super) fn idle_limit(&self) -> Duration {
        Duration::from_secs(self.wait.into())
    }
}

fn parse_mtu(text: &str) -> Result<Mtu, String> {
    text.parse()
        .ok()
        .and_then(Mtu::from_bytes)
        .ok_or_else(|| String::from("must be 256, 512, 1024, 2048 or 4096"))
}

fn parse_share(text: &str) -> Result<Probability, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|n| Probability::new(n / scale))
        .ok_or_else(|| String::from("must be from 0% to 100%, or from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(parse_share("0.1%"), parse_share("0.001"));
        assert_eq!(parse_share("100%"), Ok(Probability::ONE));
        for bad in ["", "%", "-1%", "101%", "1.1", "nan", "x"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_mtu_is_one_of_five() {
        assert_eq!(parse_mtu("4096"), Ok(Mtu::M4096));
        assert!(parse_mtu("1500").is_err());
    }
}
