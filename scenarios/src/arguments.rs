//! Values of options, refused alike by every command: the message names the option, the value and the limit.

use crate::units::{Probability, Rate};
use clap::{ArgMatches, Command};
use softroce_verbs::Mtu;
use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `args` give to the command, or what is wrong with them; the first of them is the program's name.
pub(crate) fn parse<T: clap::Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<T, clap::Error> {
    let mut command = with_negative_values(T::command());
    let mut matches: ArgMatches = command.try_get_matches_from_mut(args)?;
    T::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command))
}

/// A negative number behind an option is its value, which it can refuse, and no other option. Text may begin with a
/// hyphen only behind an equals sign.
fn with_negative_values(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        if arg.is_positional() || !arg.get_action().takes_values() {
            return arg;
        }
        let kind = arg.get_value_parser().type_id();
        let is = |id: TypeId| kind == id;
        if is(TypeId::of::<String>()) || is(TypeId::of::<PathBuf>()) {
            arg
        } else if is(TypeId::of::<Probability>()) || is(TypeId::of::<Rate>()) {
            // They have units, with which they are no numbers to clap.
            arg.allow_hyphen_values(true)
        } else {
            arg.allow_negative_numbers(true)
        }
    });
    let names = command.get_subcommands().map(|c| c.get_name().to_string());
    let names: Vec<String> = names.collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_negative_values)
    })
}

/// An integer from `least` to `most`.
pub(crate) fn integer(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = text.parse().ok().filter(|n| (least..=most).contains(n));
    value.ok_or_else(|| format!("must be an integer from {least} to {most}"))
}

/// A seed, as scenarios have it.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    integer(text, 0, i64::MAX as u64)
}

/// A path MTU.
pub(crate) fn mtu(text: &str) -> Result<Mtu, String> {
    text.parse()
        .ok()
        .and_then(Mtu::from_bytes)
        .ok_or_else(|| String::from("must be 256, 512, 1024, 2048 or 4096"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_one_of_five() {
        assert_eq!(mtu("4096"), Ok(Mtu::M4096));
        for bad in ["1500", "-1", "", "4 KiB"] {
            assert!(mtu(bad).is_err(), "{bad}");
        }
    }
}
