//! Where a card in real time gets its seed.

/// The operating system gave no randomness.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the operating system gives no random numbers: {0}")]
pub struct SeedError(#[from] getrandom::Error);

/// A seed for a [`Card`](crate::card::Card) that talks to other processes.
///
/// Queue pair numbers, first PSNs, keys and addresses follow from a card's seed. Packets of a process
/// that was killed may still be on their way when the next one has its address; with a fresh seed they
/// name queue pairs and keys that do not exist any more.
///
/// # Errors
///
/// If the operating system has no randomness to give.
pub fn seed() -> Result<u64, SeedError> {
    Ok(getrandom::u64()?)
}

#[cfg(test)]
mod tests {
    use super::seed;

    #[test]
    fn two_seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}
