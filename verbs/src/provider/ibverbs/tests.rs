//! Against a libibverbs that is made up: functions of the tests, with the library's own structures.

use super::*;
use crate::provider::CompletionQueue as _;
use crate::{Completion, CompletionKind, Immediate};
use std::collections::VecDeque;
use std::ffi::c_char;

unsafe extern "C" fn close_device(_: *mut ibv_context) -> c_int {
    0
}

/// A context whose functions are `verbs`; it stays for good.
fn context(verbs: Verbs) -> Arc<IbvContext> {
    let verbs = Box::leak(Box::new(Verbs {
        ibv_close_device: close_device,
        ..verbs
    }));
    // SAFETY: every field is a number, a pointer or a function that need not be there.
    let context: ibv_context = unsafe { std::mem::zeroed() };
    Arc::new(IbvContext {
        verbs,
        context: Box::leak(Box::new(context)),
        invalidated: IBV_WC_WITH_INV,
        keys: Mutex::default(),
    })
}

fn provider(verbs: Verbs) -> IbvProvider {
    IbvProvider {
        name: "made-up0".into(),
        number: crate::provider::next_number(),
        context: context(verbs),
        gid_index: 0,
        memberships: groups::Memberships::default(),
        opened: Instant::now(),
    }
}

fn wc(wr_id: u64, status: c_int, opcode: c_int) -> ibv_wc {
    // SAFETY: every field is a number.
    let blank: ibv_wc = unsafe { std::mem::zeroed() };
    ibv_wc {
        wr_id,
        status,
        opcode,
        vendor_err: 0x81,
        imm_data: 0x0403_0201u32.to_be(),
        wc_flags: IBV_WC_WITH_IMM | IBV_WC_GRH,
        ..blank
    }
}

/// A completion queue of the driver's: what each call gives.
struct Script {
    ready: VecDeque<ibv_wc>,
    /// What a call gives that finds none.
    empty: c_int,
}

unsafe extern "C" fn poll(cq: *mut ibv_cq, count: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: the tests make no other completion queues, and there is room for as many as are asked for.
    unsafe {
        let script = &mut *cq.cast::<Script>();
        if script.ready.is_empty() {
            return script.empty;
        }
        let mut given = 0;
        while given < count
            && let Some(wc) = script.ready.pop_front()
        {
            out.add(given as usize).write(wc);
            given += 1;
        }
        given
    }
}

/// All that polling gives, `room` completions at a time, until it fails or there is no more.
fn polled(script: &mut Script, room: usize) -> (Vec<Completion>, Option<Error>) {
    let cq = (&raw mut *script).cast();
    let mut queue = queues::CompletionQueue::with(context(Verbs::none()), cq, poll);
    let mut all = Vec::new();
    loop {
        let mut out = vec![Completion::BLANK; room];
        match queue.poll(&mut out) {
            Ok(0) => return (all, None),
            Ok(n) => all.extend_from_slice(&out[..n]),
            Err(e) => return (all, Some(e)),
        }
    }
}

#[test]
fn no_completion_is_lost_whatever_its_status_is() {
    for room in [1, 3, 16, 40, 100] {
        let statuses = (0..40).chain([-1, c_int::MAX]);
        let ready: VecDeque<ibv_wc> = statuses
            .clone()
            .zip(100..)
            .map(|(s, id)| wc(id, s, 0))
            .collect();
        let count = ready.len();
        let (all, failed) = polled(&mut Script { ready, empty: 0 }, room);
        assert!(failed.is_none());
        assert_eq!(all.len(), count, "{room} at a time");
        for (completion, (status, id)) in all.iter().zip(statuses.zip(100..)) {
            assert_eq!(completion.wr_id, id);
            assert_eq!(completion.status.number(), status as u32);
            let vendor_err = if status == 0 { 0 } else { 0x81 };
            assert_eq!(completion.vendor_err, vendor_err, "{}", completion.status);
        }
        assert_eq!(all[16].status.to_string(), "rem-abort-err (16)");
        assert_eq!(all[21].status.to_string(), "general-err (21)");
        assert_eq!(all[39].status.to_string(), "unknown (39)");
    }
}

#[test]
fn a_driver_that_fails_after_completions_is_told_of_behind_them() {
    for (count, room) in [(0, 40), (16, 40), (32, 40), (16, 16), (5, 40)] {
        let ready = (0..count).map(|id| wc(id, 0, 0)).collect();
        let (all, failed) = polled(&mut Script { ready, empty: -2 }, room);
        assert_eq!(all.len() as u64, count, "{room} at a time");
        let failed = failed.unwrap();
        assert_eq!(failed.kind(), ErrorKind::Io);
        // -2 is not ENOENT, nor -1 what errno happens to be.
        let text = failed.to_string();
        assert!(
            text.contains("ibv_poll_cq") && text.contains("-2"),
            "{text}"
        );
        let Error::Os { source, .. } = failed else {
            panic!("{text}");
        };
        assert_eq!(source.raw_os_error(), None);
    }
}

#[test]
fn immediate_data_is_of_receives_that_succeed() {
    let cases = [
        (0, 0, CompletionKind::Send, false),
        (0, 1, CompletionKind::Write, false),
        (0, 128, CompletionKind::Receive, true),
        (0, 129, CompletionKind::ReceiveWithImmediate, true),
        (5, 128, CompletionKind::Receive, false),
        (16, 129, CompletionKind::ReceiveWithImmediate, false),
    ];
    let ready = cases.iter().map(|&(s, o, ..)| wc(1, s, o)).collect();
    let (all, _) = polled(&mut Script { ready, empty: 0 }, 40);
    assert_eq!(all.len(), cases.len());
    for (completion, (_, _, kind, arrived)) in all.iter().zip(cases) {
        assert_eq!(completion.kind, kind);
        let expected = arrived.then_some(Immediate([4, 3, 2, 1]));
        assert_eq!((completion.immediate, completion.grh), (expected, arrived));
    }
}

unsafe extern "C" fn create_qp(_: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's structure; every field of a queue pair may be zero. It stays for good.
    unsafe {
        let cap = &mut (*init).cap;
        cap.max_send_wr = cap.max_send_wr.next_power_of_two();
        cap.max_inline_data = cap.max_inline_data.max(60);
        Box::leak(Box::new(std::mem::zeroed::<ibv_qp>()))
    }
}

#[test]
fn a_queue_pair_says_what_it_was_granted() {
    let provider = provider(Verbs {
        ibv_create_qp: create_qp,
        ..Verbs::none()
    });
    let spec = QpSpec {
        qp_type: crate::QpType::Rc,
        pd: 0,
        send_cq: 0,
        recv_cq: 0,
        srq: None,
        max_send_wr: 100,
        max_recv_wr: 50,
        max_send_sge: 3,
        max_recv_sge: 2,
        max_inline: 8,
    };
    let (_, qp) = provider.create_qp(&spec).unwrap();
    let granted = crate::QpCap {
        max_send_wr: 128,
        max_recv_wr: 50,
        max_send_sge: 3,
        max_recv_sge: 2,
        max_inline_data: 60,
    };
    assert_eq!(qp.cap(), granted);
}

#[test]
fn an_address_with_a_field_that_libibverbs_has_no_place_for_is_refused() {
    // Nothing of libibverbs is called.
    let provider = provider(Verbs::none());
    let address = AddressVector {
        udp_src: Some(0xc001),
        ..AddressVector::new(Gid([1; 16]))
    };
    let attributes = QpAttributes {
        address: Some(address),
        ..QpAttributes::default()
    };
    let refusals = [
        provider.create_ah(0, &address).err(),
        provider.modify_qp(0, &attributes).err(),
    ];
    for refused in refusals {
        let refused = refused.unwrap();
        assert_eq!(refused.kind(), ErrorKind::NotSupported);
        assert_eq!(
            refused.to_string(),
            "device made-up0 has no way to set udp_src of an address vector; the kernel chooses it"
        );
    }
}

/// One port, with a GID table of four places, of which one is in use.
mod one_port {
    use super::*;

    pub(super) unsafe extern "C" fn device(
        _: *mut ibv_context,
        attr: *mut ibv_device_attr,
    ) -> c_int {
        // SAFETY: the caller's structure.
        unsafe {
            (*attr).phys_port_cnt = 1;
            (*attr).atomic_cap = 1;
            (*attr).fw_ver[0] = b'7' as c_char;
        }
        0
    }

    pub(super) unsafe extern "C" fn port(
        _: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
    ) -> c_int {
        if port != 1 {
            return 22;
        }
        // SAFETY: the caller's structure.
        unsafe {
            (*attr).state = 4;
            (*attr).gid_tbl_len = 4;
            (*attr).link_layer = 2;
            (*attr).active_width = 2;
            (*attr).active_speed = 32;
        }
        0
    }

    pub(super) unsafe extern "C" fn gid(
        _: *mut ibv_context,
        port: u32,
        index: u32,
        _: *mut ibv_gid_entry,
        _: u32,
        _: usize,
    ) -> c_int {
        // EINVAL and ENODATA, as the kernel has them.
        match (port, index) {
            (1, 0) => 0,
            (1, 1..4) => 61,
            _ => 22,
        }
    }
}

#[test]
fn what_a_device_does_not_have_is_not_found_as_on_software_cards() {
    let provider = provider(Verbs {
        ibv_query_device: one_port::device,
        ibv_query_port: one_port::port,
        _ibv_query_gid_ex: one_port::gid,
        ..Verbs::none()
    });
    let attributes = provider.query_device().unwrap();
    assert_eq!(attributes.atomic_cap, crate::attributes::AtomicCap::Hca);
    let port = provider.query_port(1).unwrap();
    assert_eq!(port.link_layer, crate::attributes::LinkLayer::Ethernet);
    assert_eq!((port.active_width, port.active_speed), (4, 25_000));
    assert!(provider.query_gid(1, 0).is_ok());
    let missing = [
        provider.query_port(0).map(drop),
        provider.query_port(2).map(drop),
        provider.query_gid(1, 1).map(drop),
        provider.query_gid(1, 4).map(drop),
        provider.query_gid(2, 0).map(drop),
    ];
    for missing in missing {
        let missing = missing.unwrap_err();
        assert!(matches!(missing, Error::NoSuch { .. }), "{missing}");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_window_is_bound_to_a_region_there_is_and_only_if_it_is_of_type_1() {
    let mr = std::ptr::dangling_mut::<ibv_mr>();
    let keys = Keys {
        regions: BTreeMap::from([(7, mr)]),
        ..Keys::default()
    };
    let binding = |lkey, len| Binding {
        lkey: LocalKey(lkey),
        addr: 64,
        len,
        access: Access::REMOTE_WRITE,
        zero_based: false,
    };
    for len in [0, 100] {
        let request = bind_request(&keys, TYPE_1, &binding(7, len)).unwrap();
        assert_eq!((request.bind_info.mr, request.bind_info.length), (mr, len));
        for (kind, lkey) in [(TYPE_1, 8), (TYPE_1, 0), (2, 7), (2, 8)] {
            let refused = bind_request(&keys, kind, &binding(lkey, len)).err();
            let refused = refused.expect("a refusal");
            assert_eq!(
                refused.kind(),
                ErrorKind::InvalidArgument,
                "{kind} {lkey}: {refused}"
            );
        }
    }
}
