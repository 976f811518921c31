//! Reading any damaged capture ends in an error that names a byte, or in counts that add up.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p tailback-capture --test hostile` tries more.

use proptest::prelude::*;
use tailback_capture::{CaptureLog, FileSummary, PacketColumns, Skip};

/// LRH and BTH of a packet, or with a GRH between them, payload and checksums zero.
fn infiniband(psn: u32, grh: bool) -> Vec<u8> {
    let payload = 12;
    let words = (8 + 40 * usize::from(grh) + 12 + payload + 4) / 4;
    let mut out = vec![0, 2 + u8::from(grh), 0, 9, 0, words as u8, 0, 7];
    if grh {
        out.extend([0x60, 0, 0, 0, 0, 28, 0x1b, 64]);
        out.extend([1; 32]);
    }
    out.extend(transport(psn, payload));
    out.extend([0; 2]);
    out
}

fn transport(psn: u32, payload: usize) -> Vec<u8> {
    let mut out = vec![4, 0x40, 0xff, 0xff, 0xc0 | (psn % 64) as u8, 0, 0, 66, 0];
    out.extend(&psn.to_be_bytes()[1..]);
    out.resize(12 + payload + 4, 0);
    out
}

fn roce(psn: u32, v6: bool, tags: usize) -> Vec<u8> {
    let bth = transport(psn, 12);
    let mut out = vec![2; 12];
    out.extend([0x81, 0, 0, 5].repeat(tags));
    let udp = (8 + bth.len()) as u8;
    if v6 {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, udp, 17, 64]);
        out.extend([[0; 13].as_slice(), &[0, 0, 7], &[0; 13], &[0, 0, 9]].concat());
    } else {
        out.extend([8, 0, 0x45, 0, 0, 20 + udp, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.extend([10, 0, 0, 7, 10, 0, 0, 9]);
    }
    out.extend([0xc0, 0, 0x12, 0xb7, 0, udp, 0, 0]);
    out.extend(bth);
    out
}

/// A packet of TCP from port 50000 to 5001 with 10 bytes; the flags of a SYN are 2.
fn tcp(sequence: u32, flags: u8) -> Vec<u8> {
    let mut out = vec![2; 12];
    out.extend([8, 0, 0x45, 3, 0, 54, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 7, 10, 0, 0, 9]);
    out.extend([0xc3, 0x50, 0x13, 0x89]);
    out.extend(sequence.to_be_bytes());
    // Acknowledgement, header of 24 bytes, flags, window, checksum, urgent pointer, an option.
    out.extend([0, 0, 0, 0, 6 << 4, flags, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
    out.extend([7; 10]);
    out
}

fn put(out: &mut Vec<u8>, word: u32, big: bool) {
    out.extend(if big { word.to_be_bytes() } else { word.to_le_bytes() });
}

fn pcap(frames: &[Vec<u8>], link: u32, ns: bool, big: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let magic = if ns { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let version = if big { 0x0002_0004 } else { 0x0004_0002 };
    for word in [magic, version, 0, 0, 65535, link] {
        put(&mut out, word, big);
    }
    for (at, frame) in frames.iter().enumerate() {
        for word in [1_700_000_000, at as u32, frame.len() as u32, frame.len() as u32] {
            put(&mut out, word, big);
        }
        out.extend(frame);
    }
    out
}

fn block(out: &mut Vec<u8>, kind: u32, mut body: Vec<u8>, big: bool) {
    body.resize(body.len().next_multiple_of(4), 0);
    let length = body.len() as u32 + 12;
    put(out, kind, big);
    put(out, length, big);
    out.extend(body);
    put(out, length, big);
}

fn pcapng(frames: &[Vec<u8>], link: u16, big: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = Vec::new();
    put(&mut body, 0x1a2b_3c4d, big);
    body.extend([half(1), half(0)].concat());
    body.extend([0xff; 8]);
    block(&mut out, 0x0a0d_0d0a, body, big);
    // Nanoseconds: option 9 is 9.
    let mut body = [half(link), half(0), half(0), half(0), half(9), half(1)].concat();
    body.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    block(&mut out, 1, body, big);
    for (at, frame) in frames.iter().enumerate() {
        let time = 1_700_000_000_000_000_000_u64 + at as u64;
        let mut body = Vec::new();
        let length = frame.len() as u32;
        for word in [0, (time >> 32) as u32, time as u32, length, length] {
            put(&mut body, word, big);
        }
        body.extend(frame);
        block(&mut out, 6, body, big);
    }
    out
}

fn erf(frames: &[Vec<u8>], kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        out.extend(((1_700_000_000_u64 << 32) + (at as u64) * 5).to_le_bytes());
        let pad = if kind == 2 { 2 } else { 0 };
        let (record, wire) = ((16 + pad + frame.len()) as u16, frame.len() as u16);
        out.extend([kind, 4]);
        out.extend([record.to_be_bytes(), [0, 0], wire.to_be_bytes()].concat());
        out.extend(vec![0; pad]);
        out.extend(frame);
    }
    out
}

fn captures() -> Vec<Vec<u8>> {
    let ib: Vec<_> = (0..20).map(|psn| infiniband(psn, psn % 2 == 1)).collect();
    let ip: Vec<_> = (0..20).map(|psn| roce(psn, psn % 2 == 1, psn as usize % 3)).collect();
    let in_erf: Vec<_> = ib.iter().map(|frame| erf(std::slice::from_ref(frame), 21)).collect();
    vec![
        pcap(&ib, 247, true, false),
        pcap(&ib, 247, false, true),
        pcap(&in_erf, 197, true, false),
        pcap(&ip, 1, true, true),
        pcap(&ip, 1, false, false),
        pcapng(&ib, 247, false),
        pcapng(&ip, 1, true),
        erf(&ib, 21),
        erf(&ip, 2),
    ]
}

fn read(bytes: &[u8], most: usize) -> Result<(FileSummary, PacketColumns, u64), (u64, String)> {
    let mut log = CaptureLog::new(most, true);
    let summary = log.read_from(bytes).map_err(|error| (error.offset, error.to_string()))?;
    let one_in = log.one_in();
    Ok((summary, log.into_columns().0, one_in))
}

#[test]
fn every_format_holds_the_same_packets() {
    for (number, bytes) in captures().iter().enumerate() {
        let (summary, packets, _) = read(bytes, 1 << 20).unwrap();
        assert_eq!((summary.packets, summary.cut_at), (20, None), "capture {number}");
        assert!(packets.psn.iter().copied().eq(0..20), "capture {number}");
        assert!(packets.sample.iter().copied().eq(0..20) && packets.queue_pair == [66; 20]);
        assert!(packets.size_bytes == [12; 20], "capture {number}");
        assert!(packets.time_ns.windows(2).all(|two| two[0] <= two[1]));
        assert_eq!(packets.time_ns[0], 1_700_000_000_000_000_000);
    }
}

#[test]
fn frames_without_a_transport_header_are_counted_by_reason() {
    let mut frames: Vec<_> = (0..4).map(|psn| roce(psn, false, 0)).collect();
    frames.push(vec![0; 60]);
    let mut fragment = roce(9, false, 0);
    fragment[20] = 0x20;
    frames.push(fragment);
    frames.push(roce(9, false, 0)[..44].to_vec());
    let mut other = roce(9, false, 0);
    other[36] = 0;
    frames.push(other);
    let mut wrong = roce(9, false, 0);
    wrong[17] = 255;
    frames.push(wrong);
    let mut bytes = pcap(&frames, 1, true, false);
    // The seventh frame was longer on the wire than what was kept of it.
    let at = 24 + frames[..6].iter().map(|frame| 16 + frame.len()).sum::<usize>();
    bytes[at + 12] = 74;
    let (summary, ..) = read(&bytes, 100).unwrap();
    let of = |skip: Skip| summary.skipped[skip as usize].frames;
    assert_eq!((summary.frames, summary.packets), (9, 4));
    assert_eq!(
        [Skip::Other, Skip::Fragment, Skip::Truncated, Skip::Malformed].map(of),
        [2, 1, 1, 1]
    );
    assert_eq!(summary.skipped[Skip::Truncated as usize].first_offset, at as u64);
}

#[test]
fn a_truncated_capture_keeps_earlier_packets() {
    for (number, bytes) in captures().iter().enumerate() {
        let intact = read(bytes, 100).unwrap().1;
        let mut most = 0;
        for length in 0..bytes.len() {
            match read(&bytes[..length], 100) {
                Ok((summary, packets, _)) => {
                    assert_eq!(
                        packets.psn[..],
                        intact.psn[..packets.psn.len()],
                        "{number}: {length}"
                    );
                    // Without a part of a record, the file ends where a packet does.
                    assert!(
                        summary.cut_at.is_some_and(|at| at < length as u64)
                            || length < 4
                            || packets.psn.len() < 20
                    );
                    assert!(packets.psn.len() >= most);
                    most = packets.psn.len();
                }
                // Too short to detect the format.
                Err((offset, _)) => assert!(length < 16 && offset == 0, "{number}: {length}"),
            }
        }
        assert_eq!(most, 19, "capture {number}");
    }
}

#[test]
fn excess_tags_and_fragments_are_skipped() {
    let mut fragment = roce(3, true, 1);
    // Next header 44 of IPv6, behind one VLAN tag.
    fragment[18 + 6] = 44;
    let mut last_fragment = roce(4, false, 0);
    last_fragment[21] = 1;
    let mut frames = vec![fragment, last_fragment];
    frames.extend((0..300).map(|tags| roce(tags as u32, tags % 2 == 0, tags)));
    let (summary, packets, _) = read(&pcap(&frames, 1, true, false), 1000).unwrap();
    let of = |skip: Skip| summary.skipped[skip as usize].frames;
    // Up to four tags are read.
    assert_eq!(packets.psn, [0, 1, 2, 3, 4]);
    assert_eq!([Skip::Fragment, Skip::Malformed].map(of), [2, 295]);
    assert_eq!(summary.frames, 302);
}

#[test]
fn a_tag_of_unknown_type_is_passed_over_and_arp_is_no_packet() {
    let mut frames: Vec<_> = (0..2).map(|psn| roce(psn, psn == 1, 0)).collect();
    for frame in &mut frames {
        frame.splice(12..12, [0x99, 1, 0x2b, 0x85]);
    }
    let mut arp = frames[0][..12].to_vec();
    arp.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    arp.resize(60, 0);
    frames.push(arp);
    let (summary, packets, _) = read(&pcap(&frames, 1, true, false), 100).unwrap();
    assert_eq!((packets.psn, packets.csig), (vec![0, 1], vec![0, 0]));
    assert_eq!(summary.skipped[Skip::Other as usize].frames, 1);
}

#[test]
fn a_csig_tag_may_precede_vlan_tags() {
    let tag = [0x99, 0, 0x2b, 0x85];
    let mut frames: Vec<_> = (0..3).map(|psn| roce(psn, psn == 1, 1)).collect();
    frames[0].splice(12..12, tag);
    frames[1].splice(16..16, tag);
    let mut cut = frames[0][..14].to_vec();
    cut.push(0x2b);
    frames.push(cut);
    let (summary, packets, _) = read(&pcap(&frames, 1, true, false), 100).unwrap();
    assert_eq!(packets.csig, [0x1_2b85, 0x1_2b85, 0]);
    assert_eq!(summary.skipped[Skip::Malformed as usize].frames, 1);
}

#[test]
fn bytes_of_tcp_are_numbered_from_the_syn() {
    let start = u32::MAX - 5;
    let wrapped = start.wrapping_add(11);
    let far = start.wrapping_add(1 + 0x7fff_0000);
    let further = far.wrapping_add(0x7fff_0000);
    let sequences = [start.wrapping_add(1), wrapped, start.wrapping_add(1), far, further, 2];
    let mut frames: Vec<_> = sequences.iter().map(|&sequence| tcp(sequence, 16)).collect();
    frames.insert(0, tcp(start, 2));
    let without = pcap(&frames[1..], 1, true, false);
    let (_, packets, _) = read(&pcap(&frames, 1, true, false), 100).unwrap();
    // The last one's number is 7 as well as 2^32 + 7, which is nearer to the one before.
    let numbers = [-1, 0, 10, 0, 0x7fff_0000, 0xfffe_0000, (1 << 32) + 7];
    assert_eq!(packets.stream_byte, numbers);
    assert!(packets.entropy == [50000; 7] && packets.port == [5001; 7]);
    assert!(packets.ecn == [3; 7] && packets.size_bytes == [10; 7]);
    assert!(packets.protocol == [6; 7]);
    assert_eq!(read(&without, 100).unwrap().1.stream_byte, [-1; 6]);
    let mut log = CaptureLog::new(100, false);
    let summary = log.read_from(&without[..]).unwrap();
    assert_eq!((summary.packets, summary.skipped[Skip::Other as usize].frames), (0, 6));
}

#[test]
fn faults_name_their_byte() {
    let frames: Vec<_> = (0..3).map(|psn| infiniband(psn, false)).collect();
    let capture = pcap(&frames, 247, true, false);
    let second = 24 + 16 + frames[0].len();
    let changed = |at: usize, bytes: &[u8]| {
        let mut out = capture.clone();
        out[at..at + bytes.len()].copy_from_slice(bytes);
        read(&out, 100).unwrap_err()
    };
    let (offset, text) = changed(second + 8, &[0xff; 4]);
    assert!(offset == second as u64 && text.contains("4294967295 bytes"), "{offset}: {text}");
    let (offset, text) = changed(second + 4, &1_000_000_000_u32.to_le_bytes());
    assert!(offset == second as u64 && text.contains("1000000000 ns"), "{offset}: {text}");
    let (offset, text) = changed(second, &[0; 4]);
    assert!(offset == second as u64 && text.contains("away from the first"), "{offset}: {text}");
    let (offset, text) = changed(20, &[9]);
    assert!(offset == 20 && text.contains("link type 9"), "{offset}: {text}");
    let cut = read(&capture[..second + 20], 100).unwrap().0;
    assert_eq!((cut.packets, cut.cut_at), (1, Some(second as u64)));
    for (start, says) in [(vec![0x1f, 0x8b, 8, 0], "compressed"), (b"hello".to_vec(), "neither")] {
        assert!(read(&start, 100).unwrap_err().1.contains(says));
    }
    assert!(read(&[], 100).is_err());
}

#[test]
fn a_full_log_halves_its_share() {
    let frames: Vec<_> = (0..20_000).map(|psn| infiniband(psn, false)).collect();
    let bytes = pcap(&frames, 247, true, false);
    let (summary, packets, one_in) = read(&bytes, 3000).unwrap();
    assert_eq!((summary.packets, one_in), (20_000, 8));
    let expected = 20_000.0 / 8.0;
    assert!((packets.psn.len() as f64 - expected).abs() < 5.0 * f64::sqrt(expected));
    assert!(packets.psn.len() == packets.sample.len() && packets.psn.len() == packets.id.len());
}

#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Word(usize, u32),
    Cut(usize, usize),
    Repeat(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = 0..2000_usize;
    let word = prop_oneof![Just(0), Just(u32::MAX), Just(1 << 31), Just(16), any::<u32>()];
    let change = prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place.clone(), word).prop_map(|(at, word)| Change::Word(at, word)),
        (place.clone(), 0..60_usize).prop_map(|(at, n)| Change::Cut(at, n)),
        (place, 0..60_usize).prop_map(|(at, n)| Change::Repeat(at, n)),
    ];
    prop::collection::vec(change, 1..8)
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let length = bytes.len().max(1);
    match *change {
        Change::Set(at, byte) => bytes.iter_mut().skip(at % length).take(1).for_each(|b| *b = byte),
        Change::Word(at, word) => {
            let places = bytes.iter_mut().skip(at % length).take(4);
            places.zip(word.to_le_bytes()).for_each(|(b, byte)| *b = byte);
        }
        Change::Cut(at, n) => {
            drop(bytes.drain((at % length).min(bytes.len())..bytes.len().min(at % length + n)))
        }
        Change::Repeat(at, n) => {
            let again = bytes.iter().skip(at % length).take(n).copied().collect::<Vec<_>>();
            let at = (at % length).min(bytes.len());
            bytes.splice(at..at, again);
        }
    }
}

proptest! {
    #[test]
    fn damaged_captures_neither_panic_nor_lose_count(which in 0..9_usize, changes in changes()) {
        let mut bytes = captures().swap_remove(which);
        for change in &changes {
            apply(&mut bytes, change);
        }
        match read(&bytes, 8) {
            Err((offset, text)) => {
                prop_assert!(offset <= bytes.len() as u64 && !text.is_empty());
            }
            Ok((summary, packets, _)) => {
                let skipped: u64 = summary.skipped.iter().map(|skip| skip.frames).sum();
                prop_assert_eq!(summary.frames, summary.packets + skipped);
                prop_assert!(packets.psn.len() <= 8);
                prop_assert!(summary.cut_at.is_none_or(|at| at < bytes.len() as u64));
            }
        }
    }
}
