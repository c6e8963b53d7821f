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
    /// Hardware, or the kernel's own Soft-RoCE, by libibverbs.
    Ibverbs,
}

impl DeviceKind {
    /// In a few words.
    pub const fn name(self) -> &'static str {
        match self {
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

/// The devices that there are: what libibverbs lists, if there is a libibverbs.
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Vec<Device> {
    #[cfg(target_os = "linux")]
    let names = provider::ibverbs::device_names();
    #[cfg(not(target_os = "linux"))]
    let names = Vec::<String>::new();
    let kind = DeviceKind::Ibverbs;
    names
        .into_iter()
        .map(|name| Device { name, kind })
        .collect()
}

/// Opens a device by name. Behind the name of one of libibverbs', `@` and a number choose a place in its GID
/// table: `mlx5_0@3`; without it, the first RoCEv2 address of IPv4 is taken.
///
/// # Errors
///
/// [`Error::NoDevice`] names the devices that there are.
#[doc(alias = "ibv_open_device")]
pub fn open(name: &str) -> Result<Context> {
    #[cfg(target_os = "linux")]
    if let Some(device) = provider::ibverbs::open(name)? {
        return Ok(Context::new(Arc::new(device)));
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
