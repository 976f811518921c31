//! Random numbers of the engine: a function of (seed, stream, packet, hop).

use tailback_random::splitmix;

pub(crate) use tailback_random::below;

/// Purpose of a random number; streams are independent.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub enum Stream {
    /// Choice among route candidates.
    Route = 0x9e37_79b9_7f4a_7c15,
    /// Choice of a detour.
    Detour = 0xa076_1d64_78bd_642f,
    /// Reservoir decisions.
    Reservoir = 0xd1b5_4a32_d192_ed03,
    /// Probabilistic congestion marks.
    Mark = 0x8cb9_2ba7_2f3d_8dd7,
    /// Offset of a paced flow within its first interval.
    Pace = 0xe703_7ed1_a0b4_28db,
    /// First packet sequence number of a queue pair.
    SequenceNumber = 0x5851_f42d_4c95_7f2d,
    /// Whether the sample of a packet is lost.
    HeaderLoss = 0x2c1b_3c6d_297a_2d4f,
    /// Reservoir decisions that the sending adapter draws.
    SenderBits = 0x6c62_272e_07bb_0142,
    /// ECN marks of DCQCN.
    Ecn = 0x94d0_49bb_1331_11eb,
}

/// Random numbers for one purpose.
#[derive(Debug, Clone, Copy)]
pub struct RandomSource(u64);

impl RandomSource {
    /// The source of a run with this seed.
    #[inline]
    pub fn new(seed: u64, stream: Stream) -> Self {
        Self(splitmix(seed ^ stream as u64))
    }

    /// 64 random bits for one hop of one packet.
    ///
    /// Two rounds of the splitmix64 finaliser (Steele, Lea and Flood, OOPSLA 2014) over the packet and
    /// hop, offset by the seed and the stream.
    #[inline]
    pub fn draw(self, packet: u64, hop: u64) -> u64 {
        splitmix(self.0.wrapping_add(packet.wrapping_mul(0x2545_f491_4f6c_dd1d)) ^ (hop << 56))
    }
}

/// Draws from a source made on the spot.
#[inline]
pub fn random(seed: u64, stream: Stream, packet: u64, hop: u64) -> u64 {
    RandomSource::new(seed, stream).draw(packet, hop)
}
