//! Multicast groups.

use super::*;

/// As many multicast groups as the device says, and no more.
#[test]
fn a_card_hears_as_many_groups_as_it_says() {
    let mut world = World::new(network());
    world
        .start("h0", |context| {
            let most = context.query_device()?.max_mcast_grp;
            let pd = context.alloc_pd()?;
            let cq = context.create_cq(16, None)?;
            let mut all = [pd.create_qp(QpType::Ud), pd.create_qp(QpType::Ud)]
                .map(|qp| qp.cq(&cq).build().unwrap());
            let group = |n: u32| Gid::from(Ipv4Addr::from(0xef01_0000 + n));
            for n in 0..most {
                all[n as usize % 2].attach_mcast(group(n))?;
            }
            let full = all[0].attach_mcast(group(most)).unwrap_err().to_string();
            assert!(
                full.contains(&format!("{most} multicast groups exist")),
                "{full}"
            );
            // One more queue pair in a group is no more groups, and one group less has room for another.
            all[0].attach_mcast(group(1))?;
            all[0].detach_mcast(group(0))?;
            all[1].attach_mcast(group(most))
        })
        .unwrap();
    for outcome in world.run() {
        outcome.unwrap();
    }
}

/// A member of the group at its host; when each of three datagrams came, in nanoseconds, and its last byte.
fn listen(context: &Context, group: Gid) -> Result<Vec<(u128, u8)>> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16, None)?;
    let mut qp = pd.create_qp(QpType::Ud).cq(&cq).build()?;
    let mr = pd.reg_new(200, Access::LOCAL_WRITE)?;
    qp.activate(7, Psn::new(1))?;
    qp.attach_mcast(group)?;
    let mut heard = Vec::new();
    for wr_id in 0..3 {
        let sges = &[mr.sge(0, 200)];
        qp.post_recv(&RecvRequest { wr_id, sges })?;
        let completion = cq.wait(Duration::from_millis(1))?;
        assert_eq!((completion.wr_id, completion.byte_len), (wr_id, 41));
        let mut last = [0];
        mr.memory().read_at(40, &mut last);
        heard.push((context.now().as_nanos(), last[0]));
    }
    Ok(heard)
}

/// Sends three datagrams of one byte to the group, 10 us apart.
fn speak(context: &Context, group: Gid) -> Result<Vec<(u128, u8)>> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16, None)?;
    let mut qp = pd
        .create_qp(QpType::Ud)
        .cq(&cq)
        .max_inline_data(8)
        .build()?;
    qp.activate(7, Psn::new(1))?;
    let to = pd.create_ah(&AddressVector::new(group))?;
    for n in 1..4 {
        context.sleep(Duration::from_micros(10))?;
        qp.post_send(&SendRequest {
            to: Some(to.to(QpNumber::MULTICAST, 7)),
            inline: Some(&[n]),
            ..SendRequest::new(n.into(), Work::Send, &[])
        })?;
        cq.wait(Duration::from_millis(1))?;
    }
    Ok(Vec::new())
}

#[test]
fn a_group_is_reached_through_switches() {
    let group = Gid::from(Ipv4Addr::new(239, 129, 2, 3));
    let network = network_of(Topology::fat_tree(4, link(), SwitchSpec::default()).unwrap());
    let mut world = World::new(network);
    world
        .start("h0", move |context| speak(&context, group))
        .unwrap();
    // Beside the sender, in its pod, in another.
    for host in ["h1", "h2", "h15"] {
        world
            .start(host, move |context| listen(&context, group))
            .unwrap();
    }
    let outcomes: Vec<_> = world.run().into_iter().map(Result::unwrap).collect();
    // Two, four and six links of 500 ns; a frame of Ethernet, IPv4, UDP, BTH, DETH, 4 bytes, ICRC, FCS and what
    // is before and behind it lasts 14 + 20 + 8 + 12 + 8 + 4 + 4 + 4 + 20 = 94 bytes, 7.52 ns, on each; then up to
    // 100 ns until the program looks.
    for (heard, links) in outcomes[1..].iter().zip([2, 4, 6]) {
        assert_eq!(heard.iter().map(|h| h.1).collect::<Vec<_>>(), [1, 2, 3]);
        let first = 10_000 + links * (500 + 8);
        assert!((first - 10..first + 120).contains(&heard[0].0), "{heard:?}");
    }
}
