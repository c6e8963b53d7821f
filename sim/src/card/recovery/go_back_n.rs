//! Go-back-N, as the specification has it: nothing that arrived in order is sent again.

use super::Recovery;

#[derive(Debug)]
pub(super) struct GoBackN;

impl Recovery for GoBackN {
    fn name(&self) -> &'static str {
        "go-back-n"
    }

    fn resume(&self, lost: u64, _message: u64) -> u64 {
        lost
    }

    fn restarts(&self) -> bool {
        false
    }
}
