//! `[[fault]]` for a port in real time: what goes wrong with the packets that a software card sends.

use super::diagnostic::{Diagnostics, Origin, Sink};
use super::fault::{FAULT, Injection, injection};
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::{File, scenario};
use std::sync::LazyLock;

/// Keys of a fault that mean something in a network alone.
const OF_A_NETWORK: [&str; 3] = ["link", "traffic", "qp"];

static PORT: LazyLock<Section> = LazyLock::new(|| Section {
    title: "faults of a port",
    about: "What goes wrong with the packets that a card in real time sends.",
    named: None,
    keys: Vec::leak(vec![Key::required(
        "fault",
        Kind::Tables(&PORT_FAULT),
        "The faults, in the order in which they act.",
    )]),
});

static PORT_FAULT: LazyLock<Section> = LazyLock::new(|| {
    let keys = FAULT.keys.iter().copied();
    Section {
        title: FAULT.title,
        about: FAULT.about,
        named: None,
        keys: Vec::leak(keys.filter(|k| !OF_A_NETWORK.contains(&k.name)).collect()),
    }
});

/// A fault of a port.
#[derive(Clone, PartialEq, Debug)]
pub struct PortFault {
    /// Its name.
    pub name: String,
    /// What it does.
    pub injection: Injection,
}

/// Reads a file of `[[fault]]` tables as a scenario has them, without the keys that name a link or a load. The
/// PSNs that `psn-offset` counts are those of each queue pair by itself.
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn read(file: &File) -> Result<Vec<PortFault>, Diagnostics> {
    let sink = Sink::default();
    let root = Reader::new(&PORT, &file.document, Origin::FILE, "", &sink);
    let mut all: Vec<PortFault> = Vec::new();
    for (n, (table, origin)) in root.tables("fault").into_iter().enumerate() {
        let label = scenario::label("fault", n, table);
        let reader = Reader::new(&PORT_FAULT, table, origin, label, &sink);
        let name = scenario::name(&reader, n, "fault", all.iter().map(|f| &f.name));
        let injection = injection(&reader);
        all.push(PortFault { name, injection });
    }
    if all.is_empty() && !root.has("fault") {
        sink.say(
            Origin::FILE,
            "there is no [[fault]], so nothing would go wrong",
        );
    }
    sink.finish(&file.source, &[])?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Action, Pick, PsnPick};
    use super::*;
    use crate::format::Source;

    fn parse(text: &str) -> Result<Vec<PortFault>, String> {
        let file =
            File::parse(Source::new("faults.toml", text).unwrap()).map_err(|e| e.to_string())?;
        read(&file).map_err(|e| e.to_string())
    }

    #[test]
    fn faults_are_read_as_in_a_scenario() {
        let faults = parse(
            "[[fault]]\nname = \"marks\"\nkind = \"every\"\nevery = 10\naction = \"mark-ecn\"\n\
             [[fault]]\nkind = \"exact\"\npsn-offset = 4\ncopy = 1\npackets = \"data\"\n",
        )
        .unwrap();
        assert_eq!(faults[0].name, "marks");
        let every = Pick::Every {
            every: 10,
            phase: 10,
        };
        assert_eq!(faults[0].injection.pick, every);
        assert_eq!(faults[0].injection.action, Action::MarkEcn);
        assert_eq!(faults[1].injection.filter.psn, Some(PsnPick::Relative(4)));
        assert_eq!(faults[1].injection.filter.copy, Some(1));
    }

    #[test]
    fn what_means_nothing_on_a_port_is_refused() {
        for (text, wrong) in [
            ("", "there is no [[fault]]"),
            ("seed = 1\n[[fault]]\nrate = 0.1\n", "unknown key \"seed\""),
            ("[[fault]]\nlink = \"h0-h1\"\n", "unknown key \"link\""),
            ("[[fault]]\ntraffic = \"a\"\n", "unknown key \"traffic\""),
            ("[[fault]]\nrate = 2\n", "from 0 to 1"),
            (
                "[[fault]]\nname = \"a\"\n[[fault]]\nname = \"a\"\n",
                "another [[fault]]",
            ),
            ("[[fault]\n", "faults.toml:1"),
        ] {
            let errors = parse(text).unwrap_err();
            assert!(errors.contains(wrong), "{text:?}: {errors}");
        }
    }
}
