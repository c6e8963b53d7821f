//! What the format takes can be built.

use super::build::build;
use crate::format::schema::{self, Kind, Section};
use crate::format::{File, Source};

const FILE: &str = "payload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 3\n[link]\n[switch]\n\
    lossless = 3\npfc-threshold = \"64KB\"\necn-kmin = \"20KB\"\n[receiver]\n[card]\n[[traffic]]\nname = \"t\"\n\
    from = \"h1\"\nto = \"h0\"\noperation = \"send\"\nsize = \"64KiB\"\n[[fault]]\nname = \"f\"\nlink = \"h0-s0\"\n";

/// Values at the limits of what a key takes, as settings have them.
fn limits(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Boolean => vec!["true".into(), "false".into()],
        Kind::Count(least, most) => vec![least.to_string(), most.to_string()],
        Kind::Rate(least, most) => vec![format!("{least}bps"), format!("{most}bps")],
        Kind::Span(least, most) => vec![format!("{least}ps"), format!("{most}ps")],
        Kind::Size(least, most) => vec![format!("{least}B"), format!("{most}B")],
        Kind::Probability => vec!["0".into(), "1".into()],
        Kind::Ratio => vec!["0".into(), "1".into(), "65535".into()],
        Kind::Choice(words) => words.iter().map(|w| (*w).to_string()).collect(),
        Kind::Priorities => vec!["0".into(), "[0, 1, 2, 3, 4, 5, 6, 7]".into()],
        Kind::Weights => vec!["[0, 1, 255, 1, 0, 1, 1, 1]".into()],
        _ => Vec::new(),
    }
}

fn settings(section: &Section) -> Vec<String> {
    let path = match section.title {
        "[[traffic]]" => "traffic.t",
        "[[fault]]" => "fault.f",
        title => title.trim_matches(['[', ']']),
    };
    let keys = section.keys.iter();
    let all = keys.flat_map(|key| {
        let all = limits(key.kind).into_iter();
        all.map(move |value| format!("{path}.{}={value}", key.name))
    });
    all.collect()
}

/// What is refused is refused by the format, with its place: nothing that it takes fails when it is built. By itself
/// and in pairs, for those sections that make no great networks.
#[test]
fn what_the_format_takes_can_be_built() {
    let file = File::parse(Source::new("x.toml", FILE).unwrap()).unwrap();
    let (mut built, mut refused) = (0, 0);
    let mut attempt = |settings: &[String]| match file.plan(settings) {
        Err(_) => refused += 1,
        Ok(plan) => {
            built += 1;
            if let Err(error) = build(&plan.points[0].scenario, &[]) {
                panic!("{settings:?}: {error}");
            }
        }
    };
    for section in schema::sections() {
        let pairs = ["[link]", "[switch]", "[receiver]", "[card]", "[[fault]]"];
        let pairs = pairs.contains(&section.title);
        if !pairs && section.title != "[[traffic]]" {
            continue;
        }
        let all = settings(section);
        for (n, one) in all.iter().enumerate() {
            attempt(std::slice::from_ref(one));
            for other in all[..n].iter().filter(|_| pairs) {
                // Twice the same key is a mistake of the command line.
                if one.split('=').next() != other.split('=').next() {
                    attempt(&[one.clone(), other.clone()]);
                }
            }
        }
    }
    assert!(built > 500 && refused > 100, "{built} {refused}");
}
