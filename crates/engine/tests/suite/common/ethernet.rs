//! Random settings of DCQCN and priority flow control.

use proptest::prelude::*;
use tailback_engine::{Dcqcn, FlowControl, Settings};
use tailback_fabric::Fabric;

/// DCQCN with timers so short that all its phases occur in runs of some microseconds.
pub fn any_dcqcn() -> impl Strategy<Value = Dcqcn> {
    (0u64..3000, 1u64..20_000, 0.01f64..=1.0, 1u64..3_000_000, 1u64..3_000_000, 500u64..50_000)
        .prop_map(|(kmin_bytes, range, share, cnp, timer, byte_counter_bytes)| Dcqcn {
            kmin_bytes,
            kmax_bytes: kmin_bytes + range,
            pmax: share,
            g: share,
            cnp_interval_ps: cnp,
            alpha_timer_ps: timer,
            increase_timer_ps: timer,
            byte_counter_bytes,
            recovery_steps: 2,
            ..Dcqcn::default()
        })
}

/// Credits, or pauses at thresholds down to nothing.
pub fn any_flow_control() -> impl Strategy<Value = FlowControl> {
    let pfc = (0u32..20_000, 0u32..20_000)
        .prop_map(|(a, b)| FlowControl::Pfc { xoff_bytes: a.max(b), xon_bytes: a.min(b) });
    prop_oneof![2 => Just(FlowControl::Credits), 1 => pfc]
}

/// The same with the smallest buffers from which no packet is lost, where links pause.
pub fn with_headroom(fabric: &Fabric, settings: &Settings) -> Settings {
    let FlowControl::Pfc { xoff_bytes, .. } = settings.flow_control else {
        return settings.clone();
    };
    let of_link = |(&gbps, &ps): (&f64, &u64)| settings.headroom_bytes(gbps, ps);
    let headroom = fabric.link_gbps.iter().zip(&fabric.link_delay_ps).map(of_link).max();
    let buffer_bytes = xoff_bytes + u32::try_from(headroom.unwrap_or(0)).unwrap();
    Settings { buffer_bytes, ..settings.clone() }
}
