//! Ports of ranks to the switch inside their host.

/// When the port of each rank to a non-blocking switch inside its host (NVSwitch) is free: a port sends
/// one message after another, and receives one after another, in the order in which they are ready.
#[derive(Debug)]
pub struct LocalPorts {
    /// When each rank can send, and when it can receive; empty without ports.
    free: Vec<[u64; 2]>,
}

impl LocalPorts {
    /// Ports of `ranks` ranks; `None` if messages within a host do not share anything.
    pub fn new(ranks: Option<usize>) -> Self {
        Self { free: vec![[0; 2]; ranks.unwrap_or(0)] }
    }

    /// When a message begins that is ready at `now` and takes `wire_ps`. Both ports are taken until it
    /// ends; if `contention` is false, only the port of the sender is.
    pub fn begin(
        &mut self,
        from: usize,
        to: usize,
        now: u64,
        wire_ps: u64,
        contention: bool,
    ) -> u64 {
        if self.free.is_empty() {
            return now;
        }
        let receiver = if contention { self.free[to][1] } else { 0 };
        let begin = now.max(self.free[from][0]).max(receiver);
        let end = begin.saturating_add(wire_ps);
        self.free[from][0] = end;
        self.free[to][1] = end;
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::LocalPorts;

    #[test]
    fn a_port_sends_and_receives_one_message_after_another() {
        let mut ports = LocalPorts::new(Some(4));
        assert_eq!(ports.begin(0, 1, 10, 100, true), 10);
        assert_eq!(ports.begin(0, 2, 20, 100, true), 110, "the port of rank 0 sends");
        assert_eq!(ports.begin(3, 1, 30, 100, true), 110, "the port of rank 1 receives");
        assert_eq!(ports.begin(1, 0, 30, 100, true), 30, "a port sends while it receives");
        assert_eq!(ports.begin(2, 1, 40, 100, false), 40, "receivers are not shared");
        assert_eq!(LocalPorts::new(None).begin(0, 1, 10, 100, true), 10);
    }
}
