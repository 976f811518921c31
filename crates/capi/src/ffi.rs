//! The C interface. Every function checks its pointers, catches panics and returns a status.
//!
//! Threads: only one thread at a time may use a receiver; calls with the same receiver must not overlap,
//! even if they only read. Different receivers are independent: give each thread its own, and
//! merge them.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use tailback_telemetry::packet_id::{FlowKey, packet_id};

use crate::receiver::{Receiver, ReceiverError, ReceiverScheme};

/// Version of the binary interface: it is incremented when a struct or function changes.
pub const TAILBACK_ABI: u32 = 3;

/// Used in place of a context: all contexts together.
pub const TAILBACK_ALL_CONTEXTS: u32 = 0xffff_ffff;

/// What a call returns.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailbackStatus {
    /// Success.
    Ok = 0,
    /// A pointer is null, or the size of a struct is not that of this version.
    BadArgument = 1,
    /// A number is out of range.
    OutOfRange = 2,
    /// No candidate links were given for this source.
    UnknownSource = 3,
    /// The link does not exist.
    UnknownLink = 4,
    /// A memory limit is reached: too many contexts or candidates.
    NoRoom = 5,
    /// The receivers have different schemes, numbers of links, packets per sample or paths.
    Different = 6,
    /// The array is too small; the number needed was written.
    TooSmall = 7,
    /// Internal error: the call was aborted, and the receiver must be freed.
    Internal = 8,
}

/// What switches write into packets.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailbackScheme {
    /// Two whole links with counts, 64 bits; hash_bits and count_bits are not used.
    Full = 0,
    /// Congested bit, hash, count of hops.
    Compact = 1,
    /// Congested bit and hash; count_bits is not used.
    Coordinated = 2,
    /// Hash and count of hops, then hash and count of congested hops.
    SingleBit = 3,
    /// No sample but a mark (ECN, FECN) in bit 0 of the header, on packets that may be marked. A source is the
    /// number of a path, with one link a hop; hash_bits and count_bits are not used.
    EntropyEcn = 4,
}

/// The network and its telemetry.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TailbackConfig {
    /// sizeof(tailback_config).
    pub struct_size: usize,
    /// A tailback_scheme.
    pub scheme: u32,
    /// Bits of a hash, 1 to 8.
    pub hash_bits: u32,
    /// Bits of a count of hops, 1 to 8.
    pub count_bits: u32,
    /// Directed links of the network, numbered from 0; below 2^24.
    pub links: u32,
    /// One in this many packets carries a sample, up to 1000000; 0 and 1 mean every packet. Hand over only packets
    /// that carry one.
    pub one_in: u32,
}

/// Estimates for one link.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TailbackEstimate {
    /// Number of the link.
    pub link: u32,
    /// Not used.
    pub reserved: u32,
    /// Packets whose sample matched the link.
    pub samples: u64,
    /// Estimated number of packets that crossed it; by chance it may be below 0 or above the number sent.
    pub packets: f64,
    /// Standard error of packets.
    pub packets_error: f64,
    /// Estimated number of packets that met congestion there.
    pub congested: f64,
    /// Standard error of congested.
    pub congested_error: f64,
}

/// Sums the samples of received packets. Opaque to C.
pub struct TailbackReceiver(Receiver);

impl From<ReceiverError> for TailbackStatus {
    fn from(error: ReceiverError) -> Self {
        match error {
            ReceiverError::Range => Self::OutOfRange,
            ReceiverError::UnknownSource => Self::UnknownSource,
            ReceiverError::UnknownLink => Self::UnknownLink,
            ReceiverError::LimitReached => Self::NoRoom,
            ReceiverError::Different => Self::Different,
        }
    }
}

/// Runs `action` and returns its status; no panic crosses the boundary.
fn guarded(action: impl FnOnce() -> Result<(), TailbackStatus>) -> TailbackStatus {
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Ok(())) => TailbackStatus::Ok,
        Ok(Err(status)) => status,
        Err(_) => TailbackStatus::Internal,
    }
}

/// Version of the library, like "0.1.0": a static string.
#[unsafe(no_mangle)]
pub extern "C" fn tailback_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Binary interface of the library: equal to TAILBACK_ABI of the matching header.
#[unsafe(no_mangle)]
pub extern "C" fn tailback_abi() -> u32 {
    TAILBACK_ABI
}

/// Text of a status: a static string. Accepts any number.
#[unsafe(no_mangle)]
pub extern "C" fn tailback_status_text(status: c_int) -> *const c_char {
    let text: &[u8] = match status {
        0 => b"success\0",
        1 => b"a pointer is null, or the size of a struct is not that of this version\0",
        2 => b"a number is out of range\0",
        3 => b"no candidate links were given for this source\0",
        4 => b"the link does not exist\0",
        5 => b"too many contexts or candidates\0",
        6 => {
            b"the receivers have different schemes, numbers of links, packets per sample or paths\0"
        }
        7 => b"the array is too small\0",
        8 => b"internal error; free the receiver\0",
        _ => b"unknown status\0",
    };
    text.as_ptr().cast()
}

/// Id of a packet: 24 bits from its sequence number, the local ids of its endpoints (in IP networks the
/// last three bytes of the addresses) and its queue pair (the receiver's, or the sender's for datagrams).
#[unsafe(no_mangle)]
pub extern "C" fn tailback_packet_id(
    psn: u32,
    source: u32,
    destination: u32,
    queue_pair: u32,
) -> u32 {
    packet_id(psn, FlowKey { source, destination, queue_pair })
}

/// Creates a receiver; release it with tailback_receiver_free.
///
/// # Safety
/// `config` points to a tailback_config, `receiver` to a pointer to be written. Null is rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_new(
    config: *const TailbackConfig,
    receiver: *mut *mut TailbackReceiver,
) -> TailbackStatus {
    guarded(|| {
        if config.is_null() || receiver.is_null() {
            return Err(TailbackStatus::BadArgument);
        }
        // SAFETY: not null, and a size_t is its first field whatever the version is; the rest is read
        // only when the size says that it is there. Fields are integers: any bits are valid.
        let size = unsafe { config.cast::<usize>().read() };
        if size != size_of::<TailbackConfig>() {
            return Err(TailbackStatus::BadArgument);
        }
        // SAFETY: as above, and the struct has the size of this version.
        let config = unsafe { config.read() };
        let TailbackConfig { hash_bits, count_bits, .. } = config;
        let scheme = match config.scheme {
            0 => ReceiverScheme::Full,
            1 => ReceiverScheme::Compact { hash_bits, count_bits },
            2 => ReceiverScheme::Coordinated { hash_bits },
            3 => ReceiverScheme::SingleBit { hash_bits, count_bits },
            4 => ReceiverScheme::EntropyEcn,
            _ => return Err(TailbackStatus::OutOfRange),
        };
        let made =
            Box::new(TailbackReceiver(Receiver::new(scheme, config.links, config.one_in.max(1))?));
        // SAFETY: not null, and the caller says that a pointer may be written there.
        unsafe { receiver.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Releases a receiver; null is allowed.
///
/// # Safety
/// `receiver` is null or came from tailback_receiver_new and has not been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_free(receiver: *mut TailbackReceiver) {
    if !receiver.is_null() {
        // SAFETY: it came from Box::into_raw and is released once, as the caller says.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(receiver) })));
    }
}

/// Adds the candidate links of a source at a hop: hop 0 first, the ejection link of this node last.
/// Scheme full needs none.
///
/// If only some switches write samples, leave out the links of the others; at a hop where none does, `count` is 0
/// and `links` may be null. With scheme coordinated, either all switches of a hop write or none.
///
/// # Safety
/// `receiver` is from tailback_receiver_new; `links` points to `count` numbers. Other nulls are rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_add_hop(
    receiver: *mut TailbackReceiver,
    source: u32,
    hop: u32,
    links: *const u32,
    count: usize,
) -> TailbackStatus {
    guarded(|| {
        // SAFETY: null or a receiver that no other call uses meanwhile, as the caller says.
        let receiver = unsafe { receiver.as_mut() }.ok_or(TailbackStatus::BadArgument)?;
        if (links.is_null() && count > 0) || count > 1 << 24 {
            return Err(TailbackStatus::BadArgument);
        }
        // SAFETY: not null, `count` numbers as the caller says, far below isize::MAX bytes.
        let links = if count > 0 { unsafe { slice::from_raw_parts(links, count) } } else { &[] };
        Ok(receiver.0.add_hop(source, hop as usize, links)?)
    })
}

/// Adds a received packet: its id, its header (bit 0 is the lowest reserved bit), its source, for which
/// hops were added, and the calling context it belongs to.
///
/// # Safety
/// `receiver` is from tailback_receiver_new; null is rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_take(
    receiver: *mut TailbackReceiver,
    id: u32,
    header: u64,
    source: u32,
    context: u32,
) -> TailbackStatus {
    guarded(|| {
        // SAFETY: null or a receiver that no other call uses meanwhile, as the caller says.
        let receiver = unsafe { receiver.as_mut() }.ok_or(TailbackStatus::BadArgument)?;
        if context == TAILBACK_ALL_CONTEXTS {
            return Err(TailbackStatus::OutOfRange);
        }
        Ok(receiver.0.take(id, header, source, context)?)
    })
}

/// Adds the packets of another receiver of the same network, which is not changed.
///
/// # Safety
/// Both are from tailback_receiver_new; null, or the same receiver twice, is rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_merge(
    into: *mut TailbackReceiver,
    from: *const TailbackReceiver,
) -> TailbackStatus {
    guarded(|| {
        if into.cast_const() == from {
            return Err(TailbackStatus::BadArgument);
        }
        // SAFETY: null or two different receivers that no other call uses meanwhile.
        let (into, from) = unsafe { (into.as_mut(), from.as_ref()) };
        let into = into.ok_or(TailbackStatus::BadArgument)?;
        Ok(into.0.merge(&from.ok_or(TailbackStatus::BadArgument)?.0)?)
    })
}

/// Number of packets added, and of those among them that carried no sample.
///
/// # Safety
/// `receiver` is from tailback_receiver_new; `received` and `empty` point to numbers. Null is rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_counts(
    receiver: *const TailbackReceiver,
    received: *mut u64,
    empty: *mut u64,
) -> TailbackStatus {
    guarded(|| {
        // SAFETY: null or a receiver that no other call uses meanwhile, as the caller says.
        let receiver = unsafe { receiver.as_ref() }.ok_or(TailbackStatus::BadArgument)?;
        if received.is_null() || empty.is_null() {
            return Err(TailbackStatus::BadArgument);
        }
        let counts = receiver.0.received();
        // SAFETY: not null, and the caller says that a number may be written to each.
        unsafe {
            received.write(counts.0);
            empty.write(counts.1);
        }
        Ok(())
    })
}

/// Estimates for every link that packets of a context may have crossed, in order of link number.
///
/// Always writes their number to `count`, and nothing else if `capacity` is less: call it with `capacity`
/// 0 to find out how many there are.
///
/// # Safety
/// `receiver` is from tailback_receiver_new, `estimates` points to space for `capacity` of them (null if
/// that is 0), `count` to a number. Other nulls are rejected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailback_receiver_estimates(
    receiver: *const TailbackReceiver,
    context: u32,
    estimates: *mut TailbackEstimate,
    capacity: usize,
    count: *mut usize,
) -> TailbackStatus {
    guarded(|| {
        // SAFETY: null or a receiver that no other call uses meanwhile, as the caller says.
        let receiver = unsafe { receiver.as_ref() }.ok_or(TailbackStatus::BadArgument)?;
        if count.is_null() || (estimates.is_null() && capacity > 0) {
            return Err(TailbackStatus::BadArgument);
        }
        let rows = receiver.0.estimates((context != TAILBACK_ALL_CONTEXTS).then_some(context));
        // SAFETY: not null, and the caller says that a number may be written there.
        unsafe { count.write(rows.len()) };
        if rows.len() > capacity {
            return Err(TailbackStatus::TooSmall);
        }
        for (at, row) in rows.iter().enumerate() {
            let out = TailbackEstimate {
                link: row.link,
                reserved: 0,
                samples: row.samples,
                packets: row.packets.0,
                packets_error: row.packets.1,
                congested: row.congested.0,
                congested_error: row.congested.1,
            };
            // SAFETY: `at` is below `capacity`, for which there is room as the caller says.
            unsafe { estimates.add(at).write(out) };
        }
        Ok(())
    })
}
