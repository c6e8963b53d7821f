//! Expectations against what was measured.

use super::{Report, Run, show};
use crate::format::Plan;
use crate::format::Scenario;
use crate::format::expect::{Asserts, Check, Expectation, Law, Of, Operand};
use crate::law::{GoBackN, RingAllReduce};
use crate::metric::Metric;
use serde::Serialize;

/// An expectation with its verdict.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judgement {
    /// Its position in the file, from 0.
    pub index: usize,
    /// What is measured.
    pub metric: Metric,
    /// Of what, by name; nothing if of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// From when to when, if not over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
    /// What must hold, in words: `at least 90Gbps`.
    pub wanted: String,
    /// The measured value in the unit of the metric: bits per second, picoseconds, bytes, or none.
    pub measured: Option<f64>,
    /// The smallest value that holds; nothing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// The largest value that holds; nothing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// Whether it held. What could not be measured did not hold.
    pub held: bool,
    /// Why it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What of the source it asserts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asserts: Option<Asserts>,
    /// The figure that the source has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
}

/// Judges the expectations of every point of `plan` against `runs`, one for each point in order.
pub fn judge(plan: &Plan, runs: &mut [Run]) {
    for (point, run) in plan.points.iter().zip(runs.iter_mut()) {
        predict(&point.scenario, run);
    }
    let mut all = Vec::new();
    for (n, point) in plan.points.iter().enumerate() {
        let judgements: Vec<Judgement> = point
            .scenario
            .expectations
            .iter()
            .map(|e| judgement(&point.scenario, e, n, runs))
            .collect();
        all.push(judgements);
    }
    for (run, judgements) in runs.iter_mut().zip(all) {
        run.expectations = judgements;
    }
}

/// True for the metrics that need the run without loss, for these expectations.
pub fn needs_clean_run(scenario: &Scenario) -> bool {
    scenario.expectations.iter().any(|e| {
        e.metric == Metric::GoodputShare
            || e.check.operands().any(|o| {
                matches!(
                    o,
                    Operand::Law {
                        law: Law::GoBackN,
                        ..
                    } | Operand::Metric {
                        metric: Metric::GoodputShare,
                        ..
                    }
                )
            })
    })
}

/// Notes in `run` what a law predicts for the loads that an expectation lays beside one.
fn predict(scenario: &Scenario, run: &mut Run) {
    for e in &scenario.expectations {
        for operand in e.check.operands() {
            let Operand::Law {
                law: Law::GoBackN, ..
            } = operand
            else {
                continue;
            };
            let index = load_of(e);
            if let Some(load) = run.traffic.get_mut(index) {
                load.law_share = share(scenario, index);
            }
        }
    }
}

/// The load that an expectation of a goodput is about.
fn load_of(e: &Expectation) -> usize {
    match e.of {
        Of::Traffic(n) => n,
        _ => 0,
    }
}

/// The share of the loss-free goodput that go-back-N leaves a load.
fn share(scenario: &Scenario, load: usize) -> Option<f64> {
    Some(GoBackN::of(scenario, scenario.traffic.get(load)?)?.share())
}

/// What the law of an all-reduce predicts for `metric`.
fn ring(scenario: &Scenario, load: usize, metric: Metric) -> Option<f64> {
    let law = RingAllReduce::of(scenario, scenario.traffic.get(load)?)?;
    Some(match metric {
        Metric::AlgorithmBandwidth => law.algorithm_bps(),
        Metric::BusBandwidth => law.bus_bps(),
        _ => law.iteration(),
    })
}

fn judgement(scenario: &Scenario, e: &Expectation, n: usize, runs: &[Run]) -> Judgement {
    let measured = runs
        .get(n)
        .and_then(|r| r.measure_during(e.during, e.metric, &e.of));
    let value = |o: &Operand| evaluate(scenario, e, o, n, runs);
    let (least, most, wanted, known) = match &e.check {
        Check::Equals(o, tolerance) => {
            let v = value(o);
            let width = v.map(|v| (v * tolerance.get()).abs());
            let mut wanted = format!("equal to {}", words(scenario, e, o, v));
            if tolerance.get() > 0.0 {
                wanted.push_str(&format!(" within {}%", tolerance.get() * 100.0));
            }
            let low = v.zip(width).map(|(v, w)| v - w);
            let high = v.zip(width).map(|(v, w)| v + w);
            (low, high, wanted, v.is_some())
        }
        Check::AtLeast(o) => {
            let v = value(o);
            let wanted = format!("at least {}", words(scenario, e, o, v));
            (v, None, wanted, v.is_some())
        }
        Check::AtMost(o) => {
            let v = value(o);
            let wanted = format!("at most {}", words(scenario, e, o, v));
            (None, v, wanted, v.is_some())
        }
        Check::Between(a, b) => {
            let (low, high) = (value(a), value(b));
            let wanted = format!(
                "between {} and {}",
                words(scenario, e, a, low),
                words(scenario, e, b, high)
            );
            (low, high, wanted, low.is_some() && high.is_some())
        }
    };
    let held = known
        && measured.is_some_and(|m| {
            least.is_none_or(|least| m >= least) && most.is_none_or(|most| m <= most)
        });
    Judgement {
        index: e.index,
        metric: e.metric,
        of: name(scenario, &e.of),
        during: e.during.map(|d| d.to_string()),
        wanted,
        measured,
        least,
        most,
        held,
        because: e.because.clone(),
        asserts: e.asserts,
        published: e.published.clone(),
    }
}

/// The value of an operand at point `n`.
fn evaluate(
    scenario: &Scenario,
    e: &Expectation,
    operand: &Operand,
    n: usize,
    runs: &[Run],
) -> Option<f64> {
    match operand {
        Operand::Constant(value) => Some(*value),
        Operand::Metric {
            metric,
            of,
            during,
            point,
            times,
            ..
        } => {
            let run = runs.get(point.unwrap_or(n))?;
            Some(run.measure_during(*during, *metric, of)? * times.get())
        }
        Operand::Law { law, times } => {
            let index = load_of(e);
            let value = match (law, e.metric) {
                (Law::Ring, metric) => ring(scenario, index, metric)?,
                (Law::GoBackN, Metric::GoodputShare) => share(scenario, index)?,
                (Law::GoBackN, _) => {
                    let share = share(scenario, index)?;
                    let load = runs.get(n)?.traffic.get(index)?;
                    let clean = load.clean_goodput_bps?;
                    share * clean as f64
                }
            };
            Some(value * times.get())
        }
    }
}

fn words(scenario: &Scenario, e: &Expectation, operand: &Operand, value: Option<f64>) -> String {
    let unit = e.metric.unit();
    let shown = show(value, unit);
    let factor = |times: f64| {
        if times == 1.0 {
            String::new()
        } else {
            format!("{times} times ")
        }
    };
    match operand {
        Operand::Constant(_) => shown,
        Operand::Metric {
            metric,
            of,
            during,
            times,
            at,
            ..
        } => {
            let of = name(scenario, of).map_or(String::new(), |n| format!(" of {n}"));
            let at: Vec<_> = at.iter().map(|c| format!(" at {c}")).collect();
            let at = at.concat();
            // The same as on the left goes without saying.
            let during = during.filter(|_| *during != e.during);
            let during = during.map_or(String::new(), |d| format!(" from {d}"));
            format!("{shown} ({}{metric}{of}{during}{at})", factor(times.get()))
        }
        Operand::Law { law, times } => format!("{shown} ({}the law {law})", factor(times.get())),
    }
}

/// What `of` is called.
pub fn name(scenario: &Scenario, of: &Of) -> Option<String> {
    let network = &scenario.network;
    match of {
        Of::All => None,
        Of::Traffic(n) => scenario.traffic.get(*n).map(|t| t.name.clone()),
        Of::Host(n) => network.hosts.get(*n).cloned(),
        Of::Fault(n) => scenario.faults.get(*n).map(|f| f.name.clone()),
        Of::Link(ways) => match ways.as_slice() {
            [one] => Some(network.way_name(*one)),
            [one, ..] => Some(network.links[one.link].name.clone()),
            [] => None,
        },
        Of::Queue(ways, priority) => {
            let link = name(scenario, &Of::Link(ways.clone()))?;
            Some(format!("{link}/{priority}"))
        }
    }
}

/// Puts a report together from the runs of a plan, in order.
pub fn report(scenario: &str, plan: &Plan, mut runs: Vec<Run>) -> Report {
    judge(plan, &mut runs);
    let first = plan.points.first().map(|p| &p.scenario);
    Report {
        scenario: scenario.to_string(),
        title: first.and_then(|s| s.title.clone()),
        source: first.and_then(|s| s.source.clone()),
        look_at: first.and_then(|s| s.look_at.clone()),
        free: first.and_then(|s| s.free.clone()),
        held: runs.iter().all(Run::held),
        axes: plan.axes.clone(),
        runs,
        not_run: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{File, Source};
    use crate::report::{Counts, Drops, Ended, HostReport, NetworkSummary, Status};
    use crate::report::{TrafficReport, WayReport, json, table, text};

    const FILE: &str = r#"
        title = "t"
        [topology]
        kind = "back-to-back"
        [[traffic]]
        name = "flow"
        from = "h0"
        to = "h1"
        operation = "write"
        size = "1MiB"
        depth = 16
        [link]
        loss = 0
        [sweep]
        link.loss = [0, 1e-3]
        [[expect]]
        metric = "goodput"
        of = "flow"
        at-least = "50Gbps"
        because = "the link is fast"
        [[expect]]
        metric = "goodput"
        equals = { at = { link.loss = 0 } }
        tolerance = "10%"
        [[expect]]
        metric = "goodput-share"
        of = "flow"
        equals = { law = "go-back-n", times = 2 }
        [[expect]]
        metric = "latency.p99"
        of = "flow"
        at-most = "1us"
        [[expect]]
        metric = "drops.fault"
        of = "h0->h1"
        between = [1, 3]
        when = { link.loss = 1e-3 }
        asserts = "mechanism"
        published = "one in a thousand, in more words than there is room for beside the figures of a table"
    "#;

    fn plan() -> Plan {
        let source = Source::new("x.toml", FILE).unwrap();
        let plan = File::parse(source).and_then(|f| f.plan(&[]));
        plan.unwrap_or_else(|e| panic!("{e}"))
    }

    fn run(plan: &Plan, n: usize, goodput_bps: u64, drops: u64) -> Run {
        let network = &plan.points[n].scenario.network;
        let way = |name: &str, fault| WayReport {
            name: name.into(),
            frames: 10,
            bytes: 10_000,
            utilisation: 0.5,
            queue_max: 0,
            pfc_frames: 0,
            priorities: Vec::new(),
            drops: Drops {
                fault,
                ..Drops::default()
            },
        };
        Run {
            values: plan.points[n].values.clone(),
            seed: 1,
            ended: Ended::Dry,
            time_ps: 5_000_000,
            events: 100,
            network: NetworkSummary::of(network),
            traffic: vec![TrafficReport {
                name: "flow".into(),
                operation: crate::format::request::Operation::Write,
                transport: crate::format::request::Transport::Rc,
                sizes: None,
                operations: Vec::new(),
                size: 1 << 20,
                queue_pairs: 1,
                goodput_bps,
                clean_goodput_bps: Some(100_000_000_000),
                law_share: None,
                duration_ps: 5_000_000,
                messages: 1,
                unfinished: 0,
                bytes: 1 << 20,
                completions: [(Status::Success, 1)].into(),
                receives: Default::default(),
                damaged: 0,
                latency: None,
                flows: None,
                collective: None,
                congestion: None,
                counts: Counts::default(),
                flow_bytes: Vec::new(),
            }],
            failures: Vec::new(),
            more_failures: 0,
            hosts: network
                .hosts
                .iter()
                .map(|h| HostReport {
                    name: h.clone(),
                    counts: Counts::default(),
                    refused: Default::default(),
                    receiver: None,
                })
                .collect(),
            links: vec![way("h0->h1", drops), way("h1->h0", 0)],
            deadlock: Vec::new(),
            victims: Vec::new(),
            warnings: Vec::new(),
            faults: Vec::new(),
            captures: Vec::new(),
            expectations: Vec::new(),
            parts: Vec::new(),
            skipped: 0,
        }
    }

    fn both() -> Report {
        let plan = plan();
        let runs = vec![
            run(&plan, 0, 95_000_000_000, 0),
            run(&plan, 1, 40_000_000_000, 3),
        ];
        report("x", &plan, runs)
    }

    #[test]
    fn each_expectation_is_judged_at_its_points() {
        let report = both();
        assert!(!report.held);
        let held = |n: usize| -> Vec<bool> {
            report.runs[n].expectations.iter().map(|j| j.held).collect()
        };
        // Twice the law is no share, and a latency that was not measured does not hold.
        assert_eq!(held(0), [true, true, false, false]);
        assert_eq!(held(1), [false, false, false, false, true]);
        let j = &report.runs[1].expectations[1];
        assert_eq!((j.least, j.most), (Some(85.5e9), Some(104.5e9)));
        assert_eq!(
            j.wanted,
            "equal to 95Gbps (goodput at link.loss = 0) within 10%"
        );
        assert_eq!(report.runs[0].expectations[3].measured, None);
    }

    #[test]
    fn a_deadlock_fails_a_run_unless_an_expectation_asks_for_it() {
        let plan = plan();
        let mut run = run(&plan, 0, 95_000_000_000, 0);
        assert!(run.held());
        run.deadlock = ["a->b", "b->a"]
            .map(|link| crate::report::pauses::StuckReport {
                link: link.into(),
                priority: 3,
            })
            .into();
        assert!(!run.held());
        let report = report("x", &plan, vec![run.clone(), run.clone()]);
        let shown = text::render(&report, text::Detail::Full);
        assert!(shown.contains(
            "DEADLOCK: each waits for the next one, for ever: a->b (priority 3), b->a (priority 3), a->b\n"
        ));
        run.expectations = report.runs[0].expectations[..1].to_vec();
        run.expectations[0].metric = Metric::Deadlock;
        assert!(run.expectations[0].held && run.held());
    }

    #[test]
    fn the_forms_of_a_report_say_the_same() {
        let report = both();
        let shown = text::render(&report, text::Detail::Table);
        for part in [
            "-- link.loss = 0.001",
            "  held    goodput of flow is 95Gbps: at least 50Gbps\n          because the link is fast\n",
            "  FAILED  goodput of flow is 40Gbps: at least 50Gbps",
            "  FAILED  goodput of flow: 1 of 2 runs\n",
            "latency.p99 of flow is -: at most 1us",
            "flow kept 40.00% of its goodput without loss; the law says 39.34%",
            "FAILED: 6 of 9 expectations",
            "is 3: between 1 and 3\n          mechanism\n",
            "  asserts    metric                 measured  expected  published\n",
            "  mechanism  drops.fault of h0->h1         3    1 to 3  one in a thousand, in more",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        let value: serde_json::Value =
            serde_json::from_str(&json(std::slice::from_ref(&report))).unwrap();
        assert_eq!(value["schema"], 1);
        let first = &value["reports"][0];
        assert_eq!(first["held"], false);
        let fifth = &first["runs"][1]["expectations"][4];
        assert_eq!(
            (&fifth["held"], &fifth["asserts"]),
            (&true.into(), &"mechanism".into())
        );
        let told = fifth["published"].as_str().unwrap();
        assert!(told.starts_with("one in a thousand"));
        let table = shown.split("beside what is published\n").nth(1).unwrap();
        let lines: Vec<_> = table.lines().take_while(|l| !l.is_empty()).collect();
        assert!(
            lines.len() > 2 && lines.iter().all(|l| l.len() <= 100),
            "{table}"
        );
        let words = lines[1..].join(" ");
        let words: Vec<_> = words.split_whitespace().collect();
        assert!(words.join(" ").ends_with(told), "{table}");
        assert_eq!(first["runs"][0]["traffic"][0]["completions"]["success"], 1);
        let law = report.runs[1].traffic[0].law_share.unwrap();
        assert_eq!(
            table::csv(&report),
            "link.loss,goodput (bits-per-second),goodput-share,law,retransmissions,naks.sequence,\
             timeouts,drops,verdict\n"
                .to_string()
                + &format!(
                    "0,95000000000,0.95,1,0,0,0,0,FAILED\n0.001,40000000000,0.4,{law},0,0,0,3,FAILED\n"
                )
        );
        assert_eq!(table::render(&report).lines().count(), 4);
    }
}
