//! Go-back-0, as early RoCE cards had it: a message that loses a packet starts over at both ends.
//! With one packet in 256 dropped, a message of 4000 packets never ends (Guo et al., SIGCOMM 2016,
//! "livelock").

use super::Recovery;

#[derive(Debug)]
pub(super) struct GoBack0;

impl Recovery for GoBack0 {
    fn name(&self) -> &'static str {
        "go-back-0"
    }

    fn resume(&self, _lost: u64, message: u64) -> u64 {
        message
    }

    fn restarts(&self) -> bool {
        true
    }
}
