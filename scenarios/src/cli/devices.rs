//! The devices of this machine.

use super::output::Output;
use super::{Outcome, complain};
use serde::Serialize;
use softroce_verbs::attributes::{DeviceAttributes, PortAttributes};
use softroce_verbs::{Context, Device, Error, Gid, devices};
use std::fmt::Write;

#[derive(clap::Args, Debug)]
pub(super) struct DevicesArgs {
    /// Open each device, and tell what it is like.
    #[arg(long, short)]
    verbose: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// `schema` changes when a field changes its meaning or goes.
#[derive(Serialize)]
struct Listing {
    schema: u32,
    devices: Vec<DeviceReport>,
}

#[derive(Serialize)]
struct DeviceReport {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Details {
    fw_ver: String,
    node_guid: String,
    vendor_id: u32,
    vendor_part_id: u32,
    atomic_cap: &'static str,
    limits: Vec<(&'static str, u64)>,
    ports: Vec<PortReport>,
}

#[derive(Serialize)]
struct PortReport {
    port: u8,
    state: &'static str,
    link_layer: &'static str,
    active_width: u8,
    active_speed: u32,
    max_mtu: u16,
    active_mtu: u16,
    max_msg_sz: u32,
    gids: Vec<GidReport>,
}

#[derive(Serialize)]
struct GidReport {
    index: u32,
    gid: String,
    #[serde(rename = "type")]
    gid_type: &'static str,
}

/// Lists them; it has failed if one that was to be opened does not open.
pub(super) fn devices_command(args: &DevicesArgs, out: &mut Output) -> Outcome {
    let reports: Vec<_> = devices().iter().map(|d| report(d, args.verbose)).collect();
    let mut outcome = Outcome::Held;
    for report in &reports {
        if let Some(error) = &report.error {
            complain(format!("{}: {error}", report.name));
            outcome = Outcome::Failed;
        }
    }
    if args.json {
        let listing = Listing {
            schema: 1,
            devices: reports,
        };
        let text = serde_json::to_string_pretty(&listing).expect("plain data");
        out.write(&(text + "\n"));
        return outcome;
    }
    out.write(&text(&reports));
    outcome
}

fn report(device: &Device, verbose: bool) -> DeviceReport {
    let details = verbose.then(|| device.open().and_then(|context| details(&context)));
    let (details, error) = match details.transpose() {
        Ok(details) => (details, None),
        Err(error) => (None, Some(error.to_string())),
    };
    DeviceReport {
        name: device.name().into(),
        kind: device.kind().name(),
        details,
        error,
    }
}

fn details(context: &Context) -> Result<Details, Error> {
    let device = context.query_device()?;
    let ports = (1..=device.phys_port_cnt).map(|number| {
        let port = context.query_port(number)?;
        Ok::<_, Error>(port_report(context, number, &port))
    });
    let ports = ports.collect::<Result<_, _>>()?;
    Ok(Details {
        node_guid: guid(device.node_guid),
        vendor_id: device.vendor_id,
        vendor_part_id: device.vendor_part_id,
        atomic_cap: device.atomic_cap.name(),
        limits: limits(&device),
        ports,
        fw_ver: device.fw_ver,
    })
}

/// As `ibv_devinfo` writes it: `0002:c903:0012:3456`.
fn guid(guid: u64) -> String {
    let part = |n: u32| guid >> (16 * n) & 0xffff;
    format!(
        "{:04x}:{:04x}:{:04x}:{:04x}",
        part(3),
        part(2),
        part(1),
        part(0)
    )
}

fn limits(device: &DeviceAttributes) -> Vec<(&'static str, u64)> {
    vec![
        ("max_mr_size", device.max_mr_size),
        ("max_qp", device.max_qp.into()),
        ("max_qp_wr", device.max_qp_wr.into()),
        ("max_sge", device.max_sge.into()),
        ("max_cq", device.max_cq.into()),
        ("max_cqe", device.max_cqe.into()),
        ("max_mr", device.max_mr.into()),
        ("max_pd", device.max_pd.into()),
        ("max_qp_rd_atom", device.max_qp_rd_atom.into()),
        ("max_qp_init_rd_atom", device.max_qp_init_rd_atom.into()),
        ("max_mw", device.max_mw.into()),
        ("max_ah", device.max_ah.into()),
        ("max_srq", device.max_srq.into()),
        ("max_srq_wr", device.max_srq_wr.into()),
        ("max_srq_sge", device.max_srq_sge.into()),
        ("max_mcast_grp", device.max_mcast_grp.into()),
        ("max_pkeys", device.max_pkeys.into()),
    ]
}

fn port_report(context: &Context, number: u8, port: &PortAttributes) -> PortReport {
    let gids = (0..port.gid_tbl_len).filter_map(|index| {
        // A place of the table that is not in use is no entry, or one of zeros.
        let entry = context.query_gid(number, index).ok()?;
        (entry.gid != Gid([0; 16])).then(|| GidReport {
            index,
            gid: entry.gid.to_string(),
            gid_type: entry.gid_type.name(),
        })
    });
    PortReport {
        port: number,
        state: port.state.name(),
        link_layer: port.link_layer.name(),
        active_width: port.active_width,
        active_speed: port.active_speed,
        max_mtu: port.max_mtu.bytes(),
        active_mtu: port.active_mtu.bytes(),
        max_msg_sz: port.max_msg_sz,
        gids: gids.collect(),
    }
}

fn text(reports: &[DeviceReport]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut text, reports);
    text
}

fn write_text(out: &mut String, reports: &[DeviceReport]) -> std::fmt::Result {
    let name = |r: &DeviceReport| r.name.len();
    let width = reports
        .iter()
        .map(name)
        .max()
        .unwrap_or(0)
        .max("sim:NAME".len());
    writeln!(out, "{:width$}  kind", "device")?;
    for report in reports {
        writeln!(out, "{:width$}  {}", report.name, report.kind)?;
        let Some(details) = &report.details else {
            continue;
        };
        let mut line = |key: &str, value: String| writeln!(out, "    {key:<20}  {value}");
        line("fw_ver", details.fw_ver.clone())?;
        line("node_guid", details.node_guid.clone())?;
        line("vendor_id", format!("{:#06x}", details.vendor_id))?;
        line("vendor_part_id", details.vendor_part_id.to_string())?;
        line("atomic_cap", details.atomic_cap.into())?;
        line("phys_port_cnt", details.ports.len().to_string())?;
        for &(key, value) in &details.limits {
            line(key, value.to_string())?;
        }
        for port in &details.ports {
            writeln!(out, "    port {}", port.port)?;
            let mut line = |key: &str, value: String| writeln!(out, "        {key:<16}  {value}");
            line("state", port.state.into())?;
            line("link_layer", port.link_layer.into())?;
            if port.active_width > 0 && port.active_speed > 0 {
                let (lanes, speed) = (port.active_width, port.active_speed);
                line("active_width", format!("{lanes} lanes"))?;
                line("active_speed", format!("{speed} Mb/s each"))?;
            }
            line("max_mtu", port.max_mtu.to_string())?;
            line("active_mtu", port.active_mtu.to_string())?;
            line("max_msg_sz", port.max_msg_sz.to_string())?;
            for gid in &port.gids {
                line(
                    &format!("GID[{}]", gid.index),
                    format!("{}, {}", gid.gid, gid.gid_type),
                )?;
            }
        }
    }
    writeln!(
        out,
        "{:width$}  a scenario's network in virtual time: a file, or a name of `softroce list`",
        "sim:NAME"
    )
}
