//! Of `[card]`: congestion control, and how marked packets are answered.

use super::choices::choices;
use super::reader::Reader;
use super::schema::{Key, Kind};
use super::topology::RATE;
use crate::units::{Probability, Rate, Size, Span};
use softroce_sim::card::congestion::{CongestionControl, Dcqcn, Fixed, Notification, Scope};
use softroce_sim::rate;

choices! {
    /// Which congestion control a card has.
    pub enum Control {
        /// None.
        None = "none",
        /// A rate, a window, or both, that never change.
        Fixed = "fixed",
        /// DCQCN.
        Dcqcn = "dcqcn",
    }
}

choices! {
    /// Whose parameters DCQCN begins from.
    pub enum DcqcnSet {
        /// Those of its paper.
        Paper = "paper",
        /// Those of ConnectX cards.
        ConnectX = "connectx",
    }
}

choices! {
    /// Among which CNPs the least time between two is kept.
    pub enum CnpScope {
        /// Those to one queue pair.
        QueuePair = "qp",
        /// Those to one address.
        Address = "address",
        /// All of the port.
        Port = "port",
    }
}

const FIXED: &[&str] = &["fixed"];
const DCQCN: &[&str] = &["dcqcn"];
const TIMER: Kind = Kind::Span(0, 10_000_000_000_000);
const STEP: Kind = Kind::Rate(1_000, 10_000_000_000_000);

const CNP: [&str; 4] = ["cnp-interval", "cnp-scope", "cnp-priority", "cnp-dscp"];

pub(super) const KEYS: [Key; 17] = [
    Key::with(
        "congestion",
        Kind::Choice(Control::NAMES),
        "none",
        "Congestion control of every queue pair: none, a rate or window that never changes, or DCQCN, which \
         slows down for CNPs. Only with DCQCN are requests and READ responses ECN-capable, so that switches \
         mark them. Rates are on the wire, preambles and gaps included; a flow begins at that of the link.",
    ),
    Key::optional(
        "rate-limit",
        RATE,
        "that of the link",
        "Rate of a queue pair, at most that of the link.",
    )
    .only("congestion", FIXED),
    Key::optional(
        "window",
        Kind::Size(1, 1 << 40),
        "no limit",
        "Bytes of requests that a queue pair may have without acknowledgement; one packet always may be.",
    )
    .only("congestion", FIXED),
    Key::with(
        "dcqcn-set",
        Kind::Choice(DcqcnSet::NAMES),
        "paper",
        "Whose parameters hold where the keys below say nothing else: those of DCQCN's paper, or the defaults \
         of ConnectX cards, with their way to count steps.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-g",
        Kind::Probability,
        "1/256; `connectx` 5/1024",
        "Weight of what is new in alpha, the estimate of congestion.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-alpha-timer",
        TIMER,
        "55us; `connectx` 1us",
        "Time without CNP after which alpha falls; in the paper more than `cnp-interval`. 0 for never.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-rate-timer",
        TIMER,
        "55us; `connectx` 300us",
        "Time between steps up. 0 for never.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-byte-counter",
        Kind::Size(0, 1 << 40),
        "10MB; `connectx` 0",
        "Bytes on the wire between steps up. 0 for never.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-fast-recovery",
        Kind::Count(1, 1000),
        "5; `connectx` 1",
        "Steps of fast recovery, called F.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-ai-rate",
        STEP,
        "40Mbps; `connectx` 5Mbps",
        "Added to the target rate in additive increase; at most the rate of the link.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-hai-rate",
        STEP,
        "200Mbps; `connectx` 50Mbps",
        "Added to the target rate in hyper increase; at most the rate of the link. The paper gives none: \
         200Mbps is its author's simulator.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "dcqcn-min-rate",
        STEP,
        "1Mbps",
        "No cut goes below it; at most the rate of the link.",
    )
    .only("congestion", DCQCN),
    Key::optional(
        "cnp",
        Kind::Boolean,
        "true with `congestion` `dcqcn`, else false",
        "Marked packets are answered with congestion notification packets (RoCEv2 alone has them).",
    ),
    Key::optional(
        "cnp-interval",
        TIMER,
        "50us; `connectx` 4us",
        "The least time between two CNPs of the same `cnp-scope`; a mark within it makes none.",
    ),
    Key::optional(
        "cnp-scope",
        Kind::Choice(CnpScope::NAMES),
        "qp; `connectx` port",
        "Among which CNPs that time is kept: those to one queue pair, to one address, or all of the port.",
    ),
    Key::with("cnp-priority", Kind::Count(0, 7), "6", "Ethernet priority of CNPs."),
    Key::with("cnp-dscp", Kind::Count(0, 63), "48", "DSCP of CNPs."),
];

/// Reads congestion control and notification of a card; `rocev2` is false if it has neither marks nor CNPs.
pub(super) fn read(reader: &Reader<'_>, rocev2: bool) -> (CongestionControl, Option<Notification>) {
    let control: Control = reader.get("congestion");
    let set: DcqcnSet = reader.get("dcqcn-set");
    let connectx = control == Control::Dcqcn && set == DcqcnSet::ConnectX;
    let congestion = match control {
        Control::None => CongestionControl::None,
        Control::Fixed => fixed(reader),
        Control::Dcqcn => CongestionControl::Dcqcn(dcqcn(
            reader,
            match set {
                DcqcnSet::Paper => Dcqcn::PAPER,
                DcqcnSet::ConnectX => Dcqcn::CONNECTX,
            },
        )),
    };
    let needs = "needs RoCEv2, but gid = \"rocev1\" has neither marks nor CNPs";
    if control == Control::Dcqcn && !rocev2 {
        reader.say("congestion", needs);
    }
    let given = reader.opt("cnp");
    if given == Some(true) && !rocev2 {
        reader.say("cnp", needs);
    }
    let answers = given.unwrap_or(control == Control::Dcqcn);
    if !answers {
        for key in CNP.into_iter().filter(|key| reader.has_itself(key)) {
            reader.say(
                key,
                "means nothing without \"cnp\" = true or congestion = \"dcqcn\"",
            );
        }
    }
    let base = match connectx {
        true => Notification::CONNECTX,
        false => Notification::PAPER,
    };
    let notification = Notification {
        interval: reader.opt("cnp-interval").unwrap_or(base.interval),
        scope: match reader.opt("cnp-scope") {
            Some(CnpScope::QueuePair) => Scope::QueuePair,
            Some(CnpScope::Address) => Scope::Address,
            Some(CnpScope::Port) => Scope::Port,
            None => base.scope,
        },
        priority: reader.get("cnp-priority"),
        dscp: reader.get("cnp-dscp"),
        ..base
    };
    (congestion, answers.then_some(notification))
}

/// As the simulator has it; the kinds of the keys leave out zero.
fn sim_rate(rate: Rate) -> Option<rate::Rate> {
    rate::Rate::from_bps(rate.0)
}

fn fixed(reader: &Reader<'_>) -> CongestionControl {
    if !reader.has("rate-limit") && !reader.has("window") {
        reader.say(
            "congestion",
            "needs a \"rate-limit\", a \"window\", or both",
        );
    }
    CongestionControl::Fixed(Fixed {
        rate: reader.opt("rate-limit").and_then(sim_rate),
        window: reader.opt("window").map(|Size(bytes)| bytes),
    })
}

fn dcqcn(reader: &Reader<'_>, set: Dcqcn) -> Dcqcn {
    let rate = |key, otherwise| reader.opt(key).and_then(sim_rate).unwrap_or(otherwise);
    let span = |key, otherwise| reader.opt::<Span>(key).unwrap_or(otherwise);
    Dcqcn {
        g: reader.opt("dcqcn-g").map_or(set.g, Probability::get),
        alpha_timer: span("dcqcn-alpha-timer", set.alpha_timer),
        rate_timer: span("dcqcn-rate-timer", set.rate_timer),
        byte_counter: reader
            .opt("dcqcn-byte-counter")
            .map_or(set.byte_counter, |Size(n)| n),
        fast_recovery: reader
            .opt("dcqcn-fast-recovery")
            .unwrap_or(set.fast_recovery),
        additive: rate("dcqcn-ai-rate", set.additive),
        hyper: rate("dcqcn-hai-rate", set.hyper),
        min_rate: rate("dcqcn-min-rate", set.min_rate),
        ..set
    }
}

/// Reports the first parameter that a link of rate `line`, that of `host`, does not allow.
pub(super) fn check(reader: &Reader<'_>, control: &CongestionControl, host: &str, line: Rate) {
    let Some(Err(wrong)) = sim_rate(line).map(|line| control.check(line)) else {
        return;
    };
    let key = match wrong.parameter {
        "rate" => "rate-limit",
        "additive" => "dcqcn-ai-rate",
        "hyper" => "dcqcn-hai-rate",
        "min_rate" => "dcqcn-min-rate",
        // The kinds of the keys have the other limits.
        other => other,
    };
    let limit = format!("more than {line}, the rate of the link of host \"{host}\"");
    if reader.has(key) {
        reader.say(key, format_args!("is {limit}"));
    } else {
        let value = &wrong.value;
        reader.say(
            "congestion",
            format_args!("has a {key} of {value}, {limit}"),
        );
    }
}
