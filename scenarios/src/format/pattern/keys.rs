//! The keys of a pattern, and which patterns take which.

use super::Pattern;
use crate::format::schema::{Key, Kind};

/// The patterns whose flows all have the same messages.
pub(in crate::format) const PLAIN: &[&str] =
    &["pairs", "incast", "permutation", "shift", "all-to-all"];
/// Those whose flows each send what they have, one after the other.
pub(in crate::format) const FLOWS: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "file",
    "poisson",
];
/// Those that take `from`.
pub(in crate::format) const FROM: &[&str] = &["pairs", "incast", "poisson", "parameter-server"];
/// Those that take `size`.
pub(in crate::format) const SIZED: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "all-reduce",
    "parameter-server",
];
/// Those that take `count` or `duration`.
pub(in crate::format) const AMOUNT: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "poisson",
];
const COLLECTIVE: &[&str] = &["all-reduce", "parameter-server"];

pub(in crate::format) const PATTERN: Key = Key::with(
    "pattern",
    Kind::Choice(Pattern::NAMES),
    "pairs",
    "`pairs`: each of `from` to each of `to`. `incast`: all of `from` to the one of `to`. `permutation`: each \
     of `hosts` to one other at random and each gets from one. `shift`: each of `hosts` to the one `by` \
     places on. `all-to-all`: each of `hosts` to every other. `file`: what `flows` lists. `poisson`: flows of \
     one message that arrive at random, from any of `from` to any of `to`. `all-reduce`: each of `hosts` in \
     2 (N - 1) steps to the next, each send waiting for the receive before. `parameter-server`: each of \
     `from` to the one of `to`, and back when all have come.",
);
pub(in crate::format) const HOSTS: Key = Key::optional(
    "hosts",
    Kind::CountOrNames(2, 8192),
    "all",
    "Which hosts take part, in this order, or how many, the first ones.",
)
.only(
    "pattern",
    &["permutation", "shift", "all-to-all", "all-reduce"],
);
pub(in crate::format) const BY: Key = Key::with(
    "by",
    Kind::Count(1, 8191),
    "1",
    "How many places on; less than there are hosts.",
)
.only("pattern", &["shift"]);
pub(in crate::format) const FILE: Key = Key::optional(
    "flows",
    Kind::Text,
    "required with `file`",
    "A CSV file beside the scenario: from, to, bytes, start and, where it is not `operation`, the \
     operation, without quotes; start counts from that of the load. `h0,h1,64KiB,12us`.",
)
.only("pattern", &["file"]);
pub(in crate::format) const JITTER: Key = Key::with(
    "jitter",
    Kind::Span(0, 1_000_000_000_000_000),
    "0ps",
    "Each flow starts later by a random span of less than this, all spans equally likely and drawn from the seed and the \
     name of the load. Without, all begin in the same picosecond, and where a queue then overflows it drops the packets of \
     the same senders again and again, whatever the seed.",
)
.only("pattern", PLAIN);
pub(in crate::format) const LOAD: Key = Key::with(
    "load",
    Kind::Ratio,
    "0.5",
    "Payload that arrives, as a share of the rate of the links of all hosts of `from`.",
)
.only("pattern", &["poisson"]);
pub(in crate::format) const SIZES: Key = Key::optional(
    "sizes",
    Kind::Distribution,
    "required with `poisson`",
    "How large flows are: each member a size and the probability that a flow is at most so large, rising \
     to 1; sizes between two members are equally likely, and a first probability above 0 is that of just \
     this size. `[[\"1KB\", 0.5], [\"1MB\", 1]]`.",
)
.only("pattern", &["poisson"]);
pub(in crate::format) const ITERATIONS: Key = Key::with(
    "iterations",
    Kind::Count(1, 65_536),
    "1",
    "How many times, one after the other.",
)
.only("pattern", COLLECTIVE);
pub(in crate::format) const COMPUTE: Key = Key::with(
    "compute",
    Kind::Span(0, 1_000_000_000_000_000),
    "0ps",
    "What each host computes for before each iteration.",
)
.only("pattern", COLLECTIVE);
pub(in crate::format) const SLOW: Key = Key::optional(
    "slow",
    Kind::Names,
    "none",
    "Hosts that compute for `slowdown` times as long.",
)
.only("pattern", COLLECTIVE);
pub(in crate::format) const SLOWDOWN: Key = Key::with(
    "slowdown",
    Kind::Ratio,
    "1.5",
    "How many times as long as the others.",
)
.only("pattern", COLLECTIVE);
pub(in crate::format) const RINGS: Key = Key::with(
    "rings",
    Kind::Count(1, 64),
    "1",
    "Rings over the same hosts that share the bytes, each with queue pairs of its own.",
)
.only("pattern", &["all-reduce"]);
pub(in crate::format) const REPLY: Key = Key::optional(
    "reply",
    Kind::Size(0, 1 << 31),
    "`size`",
    "Bytes that the server sends each worker at the end of an iteration.",
)
.only("pattern", &["parameter-server"]);
pub(in crate::format) const PARALLEL: Key = Key::optional(
    "parallel",
    Kind::Count(1, 8192),
    "all",
    "Workers that the server reads from at the same time, with the operation `read`.",
)
.only("pattern", &["parameter-server"]);
