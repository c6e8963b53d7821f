//! Devices, by name.

use crate::error::{Error, Result};
use crate::{Context, provider};
use std::sync::Arc;

/// A device that can be opened (`ibv_device`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_device")]
pub struct Device {
    name: String,
    kind: DeviceKind,
}

/// Where a device's card is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A software card on a socket.
    Software,
    /// Hardware, or the kernel's own Soft-RoCE, by libibverbs.
    Ibverbs,
}

impl DeviceKind {
    /// In a few words.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Software => "software",
            DeviceKind::Ibverbs => "libibverbs",
        }
    }
}

impl Device {
    /// Its name.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its card is.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// If it has gone, or the operating system does not let it be opened.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        open(&self.name)
    }
}

/// The software card that every machine has.
const SOFTWARE: &str = "softroce0";

/// The devices that there are: a software card, and what libibverbs lists, if there is a libibverbs.
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Vec<Device> {
    let device = |kind| move |name| Device { name, kind };
    #[cfg(target_os = "linux")]
    let names = [
        (DeviceKind::Software, vec![SOFTWARE.to_string()]),
        (DeviceKind::Ibverbs, provider::ibverbs::device_names()),
    ];
    #[cfg(not(target_os = "linux"))]
    let names: [(DeviceKind, Vec<String>); 0] = [];
    let each = names.into_iter();
    each.flat_map(|(kind, names)| names.into_iter().map(device(kind)))
        .collect()
}

/// Opens a device by name.
///
/// * `softroce0`: a software card at the first free address from 127.0.0.2 on; `softroce0@127.0.0.7` is at
///   that address of this machine.
/// * One of libibverbs': `mlx5_0`; the first RoCEv2 address of IPv4 in its GID table is taken. `mlx5_0@3`
///   takes the third place of the table.
///
/// # Errors
///
/// [`Error::NoDevice`] names the devices that there are; [`Error::BadName`] if what is behind the `@` is no address, or no
/// place of a table.
#[doc(alias = "ibv_open_device")]
pub fn open(name: &str) -> Result<Context> {
    #[cfg(target_os = "linux")]
    {
        if let Some(card) = software(name)? {
            return Ok(card.open()?.context());
        }
        if let Some(device) = provider::ibverbs::open(name)? {
            return Ok(Context::new(Arc::new(device)));
        }
    }
    let known: Vec<String> = devices().into_iter().map(|d| d.name).collect();
    Err(Error::NoDevice {
        name: name.into(),
        known: match known[..] {
            [] => "none".into(),
            _ => known.join(", "),
        },
    })
}

/// The software card that `name` means, if it means one; whoever opens it may change it before.
///
/// # Errors
///
/// [`Error::BadName`] if what is behind the `@` is no address.
#[cfg(target_os = "linux")]
pub fn software(name: &str) -> Result<Option<provider::port::SoftwareCard>> {
    let (device, address) = match name.split_once('@') {
        Some((device, address)) => (device, Some(address)),
        None => (name, None),
    };
    if device != SOFTWARE {
        return Ok(None);
    }
    let mut card = provider::port::SoftwareCard::new(SOFTWARE);
    if let Some(address) = address {
        let parsed = address.parse().map_err(|_| {
            let why = format!("{address:?} is not an IP address, as in {SOFTWARE}@127.0.0.7");
            Error::BadName {
                name: name.into(),
                why,
            }
        })?;
        card.udp.address = Some(parsed);
    }
    Ok(Some(card))
}
