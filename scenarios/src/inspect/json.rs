//! Inspections for programs: JSON lines.
//!
//! Each line is an object with `schema` ([`SCHEMA`]) and `type`: a `packet` for each RoCE packet
//! ([`Packet`] with its findings), in the end a `summary` ([`Inspection`]: connections, counts and
//! all findings that are stored, those included that belong to no packet's line). Where the file breaks off, an
//! `error` with its `message` follows the summary.

use super::{InspectError, Inspection, Options, SCHEMA, inspect_each};
use serde::Serialize;
use std::io::{self, Read, Write};

#[derive(Serialize)]
struct Line<'a, T> {
    schema: u32,
    r#type: &'a str,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Message {
    message: String,
}

/// Inspects a capture and writes it as JSON lines while reading: see the fields of [`Packet`] and
/// [`Inspection`]; each line has `schema` and `type` (`packet`, `summary`, `error`).
///
/// [`Packet`]: super::Packet
///
/// # Errors
///
/// As [`inspect_each`].
pub fn write_json(
    reader: impl Read,
    name: &str,
    options: &Options,
    out: &mut impl Write,
) -> Result<Inspection, InspectError> {
    let result = inspect_each(reader, name, options, |packet| line("packet", packet, out));
    let written = match &result {
        Ok(inspection) => line("summary", inspection, out),
        Err(InspectError::Output(_)) => Ok(()),
        Err(e) => {
            let summary = e.partial().filter(|i| i.packets > 0);
            summary
                .map_or(Ok(()), |i| line("summary", i, out))
                .and_then(|()| {
                    let message = e.to_string();
                    line("error", Message { message }, out)
                })
        }
    };
    written.map_err(InspectError::Output)?;
    result
}

fn line(kind: &str, content: impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let line = Line {
        schema: SCHEMA,
        r#type: kind,
        content,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
