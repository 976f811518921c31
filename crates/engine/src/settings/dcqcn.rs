//! Settings of DCQCN, the congestion control of RDMA over Converged Ethernet.

use serde::Deserialize;

use super::units::{MAX_DELAY_PS, size, time};
use crate::error::{DCQCN, EngineError, TableName};

/// Constants of DCQCN (Zhu et al., SIGCOMM 2015).
///
/// The defaults are those of the paper (sections 3 and 5). Where it refers to QCN, they are those
/// of QCN's management (IEEE8021-CN-MIB of 802.1Qau): hyper increase ten times the additive one,
/// and a lowest rate of 5 Mb/s.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dcqcn {
    /// Queue of an output above which packets may be marked.
    pub kmin_bytes: u64,
    /// Queue above which every packet is marked.
    pub kmax_bytes: u64,
    /// Probability of a mark just below `kmax_bytes`.
    pub pmax: f64,
    /// Least time between two notifications (CNP) of a receiver to one sender.
    pub cnp_interval_ps: u64,
    /// Weight of the newest observation in alpha.
    pub g: f64,
    /// Time without a notification after which alpha decays.
    pub alpha_timer_ps: u64,
    /// Time between two increases by the timer.
    pub increase_timer_ps: u64,
    /// Bytes between two increases by the byte counter.
    pub byte_counter_bytes: u64,
    /// Increases by timer or byte counter that only recover the rate before the last decrease.
    pub recovery_steps: u32,
    /// Additive increase of the target rate.
    pub additive_mbps: f64,
    /// Hyper increase, of which step i adds i times as much.
    pub hyper_mbps: f64,
    /// No decrease leads to a lower rate.
    pub least_mbps: f64,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            kmin_bytes: 5_000,
            kmax_bytes: 200_000,
            pmax: 0.01,
            cnp_interval_ps: 50_000_000,
            g: 1.0 / 256.0,
            alpha_timer_ps: 55_000_000,
            increase_timer_ps: 55_000_000,
            byte_counter_bytes: 10_000_000,
            recovery_steps: 5,
            additive_mbps: 40.0,
            hyper_mbps: 400.0,
            least_mbps: 5.0,
        }
    }
}

impl Dcqcn {
    /// Checks the values.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        if self.kmin_bytes >= self.kmax_bytes {
            let problem = format!("is not below kmax = {}", size(self.kmax_bytes));
            let remedy = "give less than kmax, or raise kmax";
            return DCQCN.refuse("kmin", size(self.kmin_bytes), problem, remedy);
        }
        for (key, share) in [("pmax", self.pmax), ("g", self.g)] {
            if !(share > 0.0 && share <= 1.0) {
                return DCQCN.range(key, share, "give a share above 0, at most 1");
            }
        }
        for (key, ps) in
            [("alpha_timer", self.alpha_timer_ps), ("increase_timer", self.increase_timer_ps)]
        {
            if ps == 0 || ps > MAX_DELAY_PS {
                return DCQCN.range(key, time(ps), "give a time above 0, like 55 us");
            }
        }
        if self.cnp_interval_ps > MAX_DELAY_PS {
            let remedy = "give a time like 50 us";
            return DCQCN.range("cnp_interval", time(self.cnp_interval_ps), remedy);
        }
        if self.byte_counter_bytes == 0 {
            return DCQCN.range("byte_counter", "0 B", "give a size above 0, like 10 MB");
        }
        check_rates(DCQCN, self)
    }
}

/// Rates of increase and the lowest rate are above 0: otherwise a flow could stop forever.
fn check_rates(table: TableName, dcqcn: &Dcqcn) -> Result<(), EngineError> {
    for (key, mbps) in [
        ("additive_increase", dcqcn.additive_mbps),
        ("hyper_increase", dcqcn.hyper_mbps),
        ("least_rate", dcqcn.least_mbps),
    ] {
        if !(mbps > 0.0 && mbps.is_finite()) {
            let remedy = "give a rate above 0, like 40 Mb/s";
            return table.range(key, format!("{mbps} Mb/s"), remedy);
        }
    }
    Ok(())
}
