//! libibverbs, found at run time.

use super::abi::*;
use crate::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $out:ty)?;)*) => {
        /// Functions of libibverbs. The library stays loaded for good.
        #[derive(Clone, Copy)]
        pub(super) struct Verbs {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)*
        }

        impl Verbs {
            /// Functions that must not be called: for tests, which put in their own.
            #[cfg(test)]
            pub(super) fn none() -> Verbs {
                Verbs {
                    $($name: {
                        unsafe extern "C" fn none($(_: $arg),*) $(-> $out)? {
                            unreachable!("{} was not put in", stringify!($name))
                        }
                        none
                    },)*
                }
            }

            fn bind(library: &Library) -> std::result::Result<Verbs, libloading::Error> {
                // SAFETY: the types are those of libibverbs' header for the default version of each symbol.
                unsafe {
                    Ok(Verbs {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                    })
                }
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: fn(*mut *mut ibv_device);
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    _ibv_query_gid_ex: fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut ibv_cq, u32);
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq: fn(*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq: fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
    ibv_attach_mcast: fn(*mut ibv_qp, *const [u64; 2], u16) -> c_int;
    ibv_detach_mcast: fn(*mut ibv_qp, *const [u64; 2], u16) -> c_int;
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event: fn(*mut ibv_async_event);
}

/// libibverbs, if there is one.
pub(super) fn verbs() -> Option<&'static Verbs> {
    static VERBS: OnceLock<Option<Verbs>> = OnceLock::new();
    VERBS
        .get_or_init(|| {
            // SAFETY: libibverbs' constructors do nothing that a Rust program must not do.
            let library = unsafe { Library::new("libibverbs.so.1") }.ok()?;
            let verbs = Verbs::bind(&library).ok();
            // Its drivers keep threads and handlers: it is not unloaded.
            std::mem::forget(library);
            verbs
        })
        .as_ref()
}

/// What a call that tells by its return value came to: 0, or an error number.
pub(super) fn check(call: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(last_error(call)),
        n => Err(Error::Os {
            call: call.into(),
            source: std::io::Error::from_raw_os_error(n.abs()),
        }),
    }
}

/// What a call that gives a pointer came to: NULL with errno, or the object.
pub(super) fn check_pointer<T>(call: &str, pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() {
        return Err(last_error(call));
    }
    Ok(pointer)
}

pub(super) fn last_error(call: &str) -> Error {
    Error::Os {
        call: call.into(),
        source: std::io::Error::last_os_error(),
    }
}

/// Names of the devices that libibverbs lists; none if there is no libibverbs.
pub(super) fn device_names() -> Vec<String> {
    let Some(verbs) = verbs() else {
        return Vec::new();
    };
    let mut names = Vec::new();
    let mut each = |name: &str, _: *mut ibv_device| {
        names.push(name.to_string());
        false
    };
    walk(verbs, &mut each);
    names
}

/// Opens the device called `name`; `None` if libibverbs lists none of that name.
pub(super) fn open(verbs: &Verbs, name: &str) -> Result<Option<*mut ibv_context>> {
    let mut opened = Ok(None);
    walk(verbs, &mut |found: &str, device| {
        if found != name {
            return false;
        }
        // SAFETY: the device is of the list that is being walked.
        let context = unsafe { (verbs.ibv_open_device)(device) };
        opened = check_pointer(&format!("ibv_open_device of {name}"), context).map(Some);
        true
    });
    opened
}

/// What an opened device can do.
pub(super) fn device_attr(verbs: &Verbs, context: *mut ibv_context) -> Result<ibv_device_attr> {
    // SAFETY: all its fields may be zero; the call fills them in.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open.
    let code = unsafe { (verbs.ibv_query_device)(context, &raw mut attr) };
    check("ibv_query_device", code)?;
    Ok(attr)
}

/// The vendor that the kernel's Soft-RoCE says it is of.
const SOFT_ROCE: u32 = 0xff_ffff;

/// Flags that say that a completion of an opened device has a key that was invalidated. Soft-RoCE hands on
/// the kernel's own, which is libibverbs' for a right checksum of IP, and of those it says nothing.
pub(super) fn invalidated(verbs: &Verbs, context: *mut ibv_context) -> c_uint {
    match device_attr(verbs, context) {
        Ok(attr) if attr.vendor_id == SOFT_ROCE => IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK,
        _ => IBV_WC_WITH_INV,
    }
}

/// Calls `each` with every device until it says that is enough.
fn walk(verbs: &Verbs, each: &mut dyn FnMut(&str, *mut ibv_device) -> bool) {
    let mut count = 0;
    // SAFETY: the list is read up to its count, and freed once.
    unsafe {
        let list = (verbs.ibv_get_device_list)(&raw mut count);
        if list.is_null() {
            return;
        }
        for i in 0..count.max(0) as usize {
            let device = *list.add(i);
            let name = (verbs.ibv_get_device_name)(device);
            if name.is_null() {
                continue;
            }
            if each(&CStr::from_ptr(name).to_string_lossy(), device) {
                break;
            }
        }
        (verbs.ibv_free_device_list)(list);
    }
}
