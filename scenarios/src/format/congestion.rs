//! Of `[card]`: congestion control, and how marked packets are answered.

use super::choices::choices;
use super::reader::Reader;
use super::schema::{Key, Kind};
use super::topology::RATE;
use crate::units::{Probability, Rate, Size, Span};
use softroce_sim::card::congestion::{
    CongestionControl, Dcqcn, EarlyMark, Fixed, Notification, Scope, Window,
};
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
        /// Those of the simulations in HPCC's paper.
        Hpcc = "hpcc",
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

choices! {
    /// What becomes of a mark within the least time between two CNPs.
    pub enum CnpEarlyMark {
        /// It makes a CNP at the end of that time.
        Kept = "kept",
        /// It makes none.
        Forgotten = "forgotten",
    }
}

const FIXED: &[&str] = &["fixed"];
const DCQCN: &[&str] = &["dcqcn"];
const BOTH: &[&str] = &["fixed", "dcqcn"];
const TIMER: Kind = Kind::Span(0, 10_000_000_000_000);
const STEP: Kind = Kind::Rate(1_000, 10_000_000_000_000);

/// Keys of notification, which mean nothing if no card of a scenario answers marks.
const CNP: [&str; 6] = [
    "cnp-interval",
    "cnp-scope",
    "cnp-early-mark",
    "cnp-delay",
    "cnp-priority",
    "cnp-dscp",
];

const fn dcqcn_key(
    name: &'static str,
    kind: Kind,
    otherwise: &'static str,
    about: &'static str,
) -> Key {
    Key::optional(name, kind, otherwise, about).used("congestion", DCQCN)
}

pub(super) const KEYS: [Key; 27] = [
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
    .used("congestion", FIXED),
    Key::optional(
        "window",
        Kind::Size(1, 1 << 40),
        "no limit",
        "Bytes of requests that a queue pair may have without acknowledgement; one packet always may be. \
         DCQCN's paper and ConnectX cards have none.",
    )
    .used("congestion", BOTH),
    Key::with(
        "window-follows-rate",
        Kind::Boolean,
        "false",
        "The window is that at the rate of the link, and shrinks and grows with the rate.",
    )
    .used("congestion", DCQCN),
    Key::with(
        "dcqcn-set",
        Kind::Choice(DcqcnSet::NAMES),
        "paper",
        "Whose parameters hold where the keys below say nothing else: those of DCQCN's paper; the defaults of \
         ConnectX cards, with their way to count steps and to raise alpha; or what the simulations of HPCC's \
         paper call DCQCN, which is like ConnectX with steps that grow with the rate of the link.",
    )
    .used("congestion", DCQCN),
    dcqcn_key(
        "dcqcn-g",
        Kind::Probability,
        "1/256; `connectx` 5/1024",
        "Weight of what is new in alpha, the estimate of congestion (`dce_tcp_g`).",
    ),
    dcqcn_key(
        "dcqcn-initial-alpha",
        Kind::Probability,
        "1; `connectx` 1023/1024",
        "Alpha at the first CNP (`initial_alpha_value`): with 1 it halves the rate.",
    ),
    dcqcn_key(
        "dcqcn-alpha-timer",
        TIMER,
        "55us; `connectx`, `hpcc` 1us",
        "Time without CNP after which alpha falls (`dce_tcp_rtt`); in the paper more than `cnp-interval`. 0 \
         for never.",
    ),
    dcqcn_key(
        "dcqcn-rate-timer",
        TIMER,
        "55us; `connectx`, `hpcc` 300us",
        "Time between steps up (`rpg_time_reset`). 0 for never.",
    ),
    dcqcn_key(
        "dcqcn-byte-counter",
        Kind::Size(0, 1 << 40),
        "10MB; `connectx`, `hpcc` 0",
        "Bytes on the wire between steps up (`rpg_byte_reset`). 0 for never.",
    ),
    dcqcn_key(
        "dcqcn-fast-recovery",
        Kind::Count(1, 1000),
        "5; `connectx`, `hpcc` 1",
        "Steps of fast recovery, called F (`rpg_threshold`).",
    ),
    dcqcn_key(
        "dcqcn-ai-rate",
        STEP,
        "40Mbps; `connectx` 5Mbps; `hpcc` 1/5000 of the link",
        "Added to the target rate in additive increase (`rpg_ai_rate`); at most the rate of the link.",
    ),
    dcqcn_key(
        "dcqcn-hai-rate",
        STEP,
        "200Mbps; `connectx` 50Mbps; `hpcc` 1/500 of the link",
        "Added to the target rate in hyper increase (`rpg_hai_rate`); at most the rate of the link. The paper \
         gives none: 200Mbps is its author's simulator.",
    ),
    dcqcn_key(
        "dcqcn-min-rate",
        STEP,
        "1Mbps; `hpcc` 100Mbps",
        "No cut goes below it (`rpg_min_rate`); at most the rate of the link.",
    ),
    dcqcn_key(
        "dcqcn-cut-exponent",
        Kind::Count(0, 31),
        "11",
        "A cut takes alpha, in 1024ths, divided by 2 to this power (`rpg_gd`); 11 is alpha / 2.",
    ),
    dcqcn_key(
        "dcqcn-min-dec-fac",
        Kind::Count(0, 100),
        "0; `connectx` 50",
        "The least that one cut leaves, in percent of the rate (`rpg_min_dec_fac`).",
    ),
    dcqcn_key(
        "dcqcn-clamp-target",
        Kind::Boolean,
        "true; `connectx`, `hpcc` false",
        "Every cut makes the rate before it the target (`clamp_tgt_rate`).",
    ),
    dcqcn_key(
        "dcqcn-clamp-after-time",
        Kind::Boolean,
        "false; `connectx`, `hpcc` true",
        "A cut after a step up by the clock does (`clamp_tgt_rate_after_time_inc`).",
    ),
    dcqcn_key(
        "dcqcn-monitor-period",
        TIMER,
        "0; `connectx`, `hpcc` 4us",
        "The least time between two cuts (`rate_reduce_monitor_period`): a CNP within it cuts at its end. 0: \
         every CNP cuts.",
    ),
    dcqcn_key(
        "dcqcn-first-cnp-rate",
        STEP,
        "that of the link",
        "The rate that the first CNP cuts (`rate_to_set_on_first_cnp`); at most that of the link.",
    ),
    Key::optional(
        "cnp",
        Kind::Boolean,
        "true if any card has `congestion` `dcqcn`, else false",
        "Marked packets are answered with congestion notification packets (RoCEv2 alone has them).",
    ),
    Key::optional(
        "cnp-interval",
        TIMER,
        "50us; `connectx`, `hpcc` 4us",
        "The least time between two CNPs of the same `cnp-scope` (`min_time_between_cnps`); what \
         becomes of a mark within it says `cnp-early-mark`. Which defaults hold is said by the `dcqcn-set` of the card \
         that sends CNPs.",
    ),
    Key::optional(
        "cnp-scope",
        Kind::Choice(CnpScope::NAMES),
        "qp; `connectx` port",
        "Among which CNPs that time is kept: those to one queue pair, to one address, or all of the port.",
    ),
    Key::optional(
        "cnp-early-mark",
        Kind::Choice(CnpEarlyMark::NAMES),
        "kept; `connectx` forgotten",
        "What becomes of a mark within that time. `kept`: it makes a CNP at the end of it, one however many there \
         were, as in DCQCN's paper, where a CNP goes at the end of each interval in which a packet was marked. \
         `forgotten`: it makes none, so that at rest a third more is marked. What ConnectX cards do is not known.",
    ),
    Key::with(
        "cnp-delay",
        TIMER,
        "0ps",
        "From the arrival of a marked packet until its CNP is ready.",
    ),
    Key::with("cnp-priority", Kind::Count(0, 7), "6", "Ethernet priority of CNPs."),
    Key::with("cnp-dscp", Kind::Count(0, 63), "48", "DSCP of CNPs."),
];

/// What `[card]` says of congestion control.
pub(super) struct Congestion {
    pub(super) control: CongestionControl,
    /// How marked packets are answered if they are.
    notification: Notification,
    /// Whether they are, if the card says so.
    answers: Option<bool>,
}

impl Congestion {
    /// How marked packets are answered; `any` if some card of the scenario hears of them.
    pub(super) fn notification(&self, any: bool) -> Option<Notification> {
        self.answers.unwrap_or(any).then_some(self.notification)
    }
}

/// Reads congestion control and notification of a card; `rocev2` is false if it has neither marks nor CNPs.
pub(super) fn read(reader: &Reader<'_>, rocev2: bool) -> Congestion {
    let control: Control = reader.get("congestion");
    let set: DcqcnSet = reader.get("dcqcn-set");
    let control = match control {
        Control::None => CongestionControl::None,
        Control::Fixed => fixed(reader),
        Control::Dcqcn => CongestionControl::Dcqcn(dcqcn(
            reader,
            match set {
                DcqcnSet::Paper => Dcqcn::PAPER,
                DcqcnSet::ConnectX => Dcqcn::CONNECTX,
                // Its steps wait for the rate of the link.
                DcqcnSet::Hpcc => Dcqcn::hpcc(rate::Rate::from_gbps(100)),
            },
        )),
    };
    let needs = "needs RoCEv2, but gid = \"rocev1\" has neither marks nor CNPs";
    if control.heeds_marks() && !rocev2 {
        reader.say("congestion", needs);
    }
    let answers = reader.opt("cnp");
    if answers == Some(true) && !rocev2 {
        reader.say("cnp", needs);
    }
    let base = match set {
        DcqcnSet::Paper => Notification::PAPER,
        DcqcnSet::ConnectX => Notification::CONNECTX,
        // Every ACK tells of marks there, and a sender looks every 4 us.
        DcqcnSet::Hpcc => Notification {
            interval: Span::from_us(4),
            ..Notification::PAPER
        },
    };
    Congestion {
        control,
        notification: Notification {
            interval: reader.opt("cnp-interval").unwrap_or(base.interval),
            scope: match reader.opt("cnp-scope") {
                Some(CnpScope::QueuePair) => Scope::QueuePair,
                Some(CnpScope::Address) => Scope::Address,
                Some(CnpScope::Port) => Scope::Port,
                None => base.scope,
            },
            priority: reader.get("cnp-priority"),
            dscp: reader.get("cnp-dscp"),
            delay: reader.get("cnp-delay"),
            early: match reader.opt("cnp-early-mark") {
                Some(CnpEarlyMark::Kept) => EarlyMark::Kept,
                Some(CnpEarlyMark::Forgotten) => EarlyMark::Forgotten,
                None => base.early,
            },
        },
        answers,
    }
}

/// Reports keys of notification where nobody answers marks and nothing says who might.
pub(super) fn check_unanswered(reader: &Reader<'_>) {
    if reader.has("cnp") || reader.has("congestion") {
        return;
    }
    for key in CNP.into_iter().filter(|key| reader.has_itself(key)) {
        reader.say(
            key,
            "means nothing without \"cnp\" = true or congestion = \"dcqcn\" at any card",
        );
    }
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
    let share = |key, otherwise| reader.opt(key).map_or(otherwise, Probability::get);
    let follows_rate = reader.get("window-follows-rate");
    let window = reader.opt("window").map(|Size(bytes)| Window {
        bytes,
        follows_rate,
    });
    if window.is_none() && reader.has("window-follows-rate") {
        reader.say("window-follows-rate", "means nothing without \"window\"");
    }
    Dcqcn {
        g: share("dcqcn-g", set.g),
        initial_alpha: share("dcqcn-initial-alpha", set.initial_alpha),
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
        cut_exponent: reader.opt("dcqcn-cut-exponent").unwrap_or(set.cut_exponent),
        min_dec_fac: reader.opt("dcqcn-min-dec-fac").unwrap_or(set.min_dec_fac),
        clamp_target: reader.opt("dcqcn-clamp-target").unwrap_or(set.clamp_target),
        clamp_target_after_time_inc: reader
            .opt("dcqcn-clamp-after-time")
            .unwrap_or(set.clamp_target_after_time_inc),
        monitor_period: span("dcqcn-monitor-period", set.monitor_period),
        first_cnp_rate: reader
            .opt("dcqcn-first-cnp-rate")
            .and_then(sim_rate)
            .or(set.first_cnp_rate),
        window: window.or(set.window),
        ..set
    }
}

/// Fits to a link of rate `line` what the set of parameters has grow with it, and the file does not give.
pub(super) fn fit(reader: &Reader<'_>, control: &mut CongestionControl, line: Rate) {
    let CongestionControl::Dcqcn(own) = control else {
        return;
    };
    if let (DcqcnSet::Hpcc, Some(line)) = (reader.get("dcqcn-set"), sim_rate(line)) {
        *own = dcqcn(reader, Dcqcn::hpcc(line));
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
        "first_cnp_rate" => "dcqcn-first-cnp-rate",
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
