//! Schemes over given paths, link hashes, decoders.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_fabric::{Fabric, Routes};
use tailback_telemetry::decode::cost::Choice;
use tailback_telemetry::decode::{Classes, Hash, Packets, check, classes, published, scores};
use tailback_telemetry::hash::{GaloisField, LinkHash};
use tailback_telemetry::link_times::{self, LinkRecord, SampleRows};
use tailback_telemetry::scheme::{
    Compact, Coordinated, Csig, EdgeMarking, EntropyEcn, FullInt, FullReservoirs, HashSlots,
    NodeMarking, PacketPaths, Scheme, SchemeColumns, SingleBit, SlotScheme, XorDigest, mix, run,
};

use crate::errors::raise;
use crate::network::Network;
use crate::table::columns;

type Array<'py, T> = Bound<'py, PyArray1<T>>;

fn gf(field_bits: u32, bits: u32) -> PyResult<Hash> {
    let field = GaloisField::new(field_bits).map_err(|_| {
        PyValueError::new_err(format!(
            "unsupported field GF(2^{field_bits}); valid: n = 8, 16, 24 and 32"
        ))
    })?;
    Ok(Hash { field, bits })
}

/// An operation on a scheme, generic over its type.
trait SchemeVisitor {
    type Out;
    fn with<S: Scheme + Sync>(self, scheme: S) -> Self::Out;
}

/// Reservoirs of `size` hashes of links, with counts of 4 bits.
fn slots(scheme: SlotScheme, hash: LinkHash, bits: u32, size: u32) -> PyResult<HashSlots> {
    let wrong = || PyValueError::new_err(format!("reservoirs of {size} hashes of {bits} bits"));
    HashSlots::new(scheme, hash, size, bits, 4).ok_or_else(wrong)
}

fn dispatch<U: SchemeVisitor>(
    name: &str,
    hash: LinkHash,
    bits: u32,
    size: u32,
    probability: f64,
    action: U,
) -> PyResult<U::Out> {
    let in_range = |low: u32, value: u32, high: u32, what: &str| {
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        Err(PyValueError::new_err(format!("{what} of {value}; valid: {low} to {high}")))
    };
    if !(probability > 0.0 && probability <= 1.0) {
        return Err(PyValueError::new_err(format!(
            "probability of {probability}; valid: above 0, up to 1"
        )));
    }
    let bits = in_range(1, bits, 8, "hash bits")?;
    Ok(match name {
        "full" => {
            let slots = in_range(1, size, 8, "reservoir size")? as u8;
            let scheme = FullReservoirs::new(slots)
                .ok_or_else(|| PyValueError::new_err("slots is out of range; valid: 1 to 8"))?;
            action.with(scheme)
        }
        "single_bit" => {
            let count_bits = in_range(1, size, 8, "count bits")?;
            action.with(SingleBit { hash, bits, count_bits })
        }
        "compact" => {
            let count_bits = in_range(1, size, 8, "count bits")?;
            action.with(Compact { hash, bits, count_bits })
        }
        "coordinated" => action.with(Coordinated { hash, bits }),
        "single_bit_slots" => action.with(slots(SlotScheme::SingleBit, hash, bits, size)?),
        "compact_slots" => action.with(slots(SlotScheme::Compact, hash, bits, size)?),
        "coordinated_slots" => action.with(slots(SlotScheme::Coordinated, hash, bits, size)?),
        "node_marking" => action.with(NodeMarking { probability, link_bits: 24 }),
        "edge_marking" => action.with(EdgeMarking { probability, link_bits: 24, distance_bits: 5 }),
        "xor_digest" => action.with(XorDigest { hash, bits, probability }),
        "full_int" => {
            let max_hops = in_range(1, size, 16, "hops")? as u8;
            action.with(FullInt { max_hops, link_bits: 24 })
        }
        "csig" => action.with(Csig),
        "entropy_ecn" => action.with(EntropyEcn),
        other => {
            return Err(PyValueError::new_err(format!(
                "no scheme {other:?}; valid: full, single_bit, compact, coordinated, node_marking, \
                 edge_marking, xor_digest, full_int, csig, entropy_ecn, single_bit_slots, \
                 compact_slots, coordinated_slots"
            )));
        }
    })
}

struct DescribeScheme;

impl SchemeVisitor for DescribeScheme {
    type Out = (u32, Option<u32>, bool);
    fn with<S: Scheme + Sync>(self, scheme: S) -> Self::Out {
        (scheme.header_bits(), scheme.hash_bits(), scheme.unbiased())
    }
}

struct RunScheme<'a, 'py>(Python<'py>, PacketPaths<'a>, u64);

impl SchemeVisitor for RunScheme<'_, '_> {
    type Out = SchemeColumns;
    fn with<S: Scheme + Sync>(self, scheme: S) -> SchemeColumns {
        let RunScheme(py, paths, seed) = self;
        py.detach(|| run(&scheme, &paths, seed))
    }
}

/// (header bits, hash bits or None, unbiased) of a scheme.
#[pyfunction]
#[pyo3(signature = (name, bits = 1, size = 4, probability = 0.2))]
fn scheme_facts(
    name: &str,
    bits: u32,
    size: u32,
    probability: f64,
) -> PyResult<(u32, Option<u32>, bool)> {
    dispatch(name, LinkHash::Mult, bits, size, probability, DescribeScheme)
}

/// Sends packets along given paths; returns the header samples of their receivers, as columns.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (name, ids, hops, links, levels, seed, *, bits = 1, size = 4,
    probability = 0.2, hash = "gf", field_bits = 24))]
fn run_scheme<'py>(
    py: Python<'py>,
    name: &str,
    ids: PyReadonlyArray1<'py, u32>,
    hops: PyReadonlyArray1<'py, u8>,
    links: PyReadonlyArray2<'py, u32>,
    levels: PyReadonlyArray2<'py, u8>,
    seed: u64,
    bits: u32,
    size: u32,
    probability: f64,
    hash: &str,
    field_bits: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let hash = LinkHash::parse(hash, field_bits).map_err(raise)?;
    let stride = links.as_array().ncols();
    let paths = PacketPaths {
        ids: ids.as_slice()?,
        hops: hops.as_slice()?,
        links: links.as_slice()?,
        levels: levels.as_slice()?,
        stride,
    };
    let entries = paths.ids.len() * stride;
    let longest = usize::from(paths.hops.iter().copied().max().unwrap_or(0));
    if paths.hops.len() != paths.ids.len()
        || paths.links.len() != entries
        || paths.levels.len() != entries
        || longest > stride
    {
        return Err(PyValueError::new_err(
            "ids, hops, links and levels have different numbers of packets",
        ));
    }
    let samples = dispatch(name, hash, bits, size, probability, RunScheme(py, paths, seed))?;
    Ok(columns!(py, samples; packet, congested, seen, hop, weight))
}

/// Hashes of packets and links, one for each pair of entries.
#[pyfunction]
fn link_hash<'py>(
    py: Python<'py>,
    name: &str,
    ids: PyReadonlyArray1<'py, u32>,
    links: PyReadonlyArray1<'py, u32>,
    bits: u32,
    field_bits: u32,
) -> PyResult<Array<'py, u8>> {
    let hash = LinkHash::parse(name, field_bits).map_err(raise)?;
    if !(1..=8).contains(&bits) {
        return Err(PyValueError::new_err(format!("hash bits of {bits}; valid: 1 to 8")));
    }
    let pairs = ids.as_slice()?.iter().zip(links.as_slice()?);
    let values: Vec<u8> = pairs.map(|(&id, &d)| hash.value(id, d, bits) as u8).collect();
    Ok(values.into_pyarray(py))
}

fn decoder_choice(name: &str) -> Result<Option<Choice>, String> {
    match name {
        "auto" => Ok(None),
        "direct" => Ok(Some(Choice::Direct)),
        "transform" => Ok(Some(Choice::Transform)),
        other => Err(format!("no decoder {other:?}; valid: direct, transform, auto")),
    }
}

/// Scores of links: Σ weight × (2^bits × [hash = H(id, link)] − 1), by "direct", "transform" or "auto".
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn decode<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
    hashes: PyReadonlyArray1<'py, u8>,
    weights: PyReadonlyArray1<'py, u8>,
    links: PyReadonlyArray1<'py, u32>,
    bits: u32,
    field_bits: u32,
    how: &str,
) -> PyResult<Array<'py, i64>> {
    let hash = gf(field_bits, bits)?;
    let packets =
        Packets { ids: ids.as_slice()?, hashes: hashes.as_slice()?, weights: weights.as_slice()? };
    let links = links.as_slice()?;
    let totals = py
        .detach(|| -> Result<Vec<i64>, String> {
            check(hash, &packets, links).map_err(|error| error.to_string())?;
            Ok(scores(hash, &packets, links, decoder_choice(how)?))
        })
        .map_err(raise)?;
    Ok(totals.into_pyarray(py))
}

/// Scores of links by the published one-bit hash H_mult', which is not linear: by direct tests only.
#[pyfunction]
fn decode_published<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
    hashes: PyReadonlyArray1<'py, u8>,
    weights: PyReadonlyArray1<'py, u8>,
    links: PyReadonlyArray1<'py, u32>,
) -> PyResult<Array<'py, i64>> {
    let (ids, hashes) = (ids.as_slice()?, hashes.as_slice()?);
    let (weights, links) = (weights.as_slice()?, links.as_slice()?);
    let totals = py.detach(|| published::scores(ids, hashes, weights, links)).map_err(raise)?;
    Ok(totals.into_pyarray(py))
}

/// Scores of links, each over the packets of the classes in which it is a candidate.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (ids, hashes, weights, *, class_of_packet, class_start, class_links, links,
    bits, field_bits, how = "auto"))]
fn decode_classes<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
    hashes: PyReadonlyArray1<'py, u8>,
    weights: PyReadonlyArray1<'py, u8>,
    class_of_packet: PyReadonlyArray1<'py, u32>,
    class_start: PyReadonlyArray1<'py, u64>,
    class_links: PyReadonlyArray1<'py, u32>,
    links: PyReadonlyArray1<'py, u32>,
    bits: u32,
    field_bits: u32,
    how: &str,
) -> PyResult<Array<'py, i64>> {
    let hash = gf(field_bits, bits)?;
    let how = decoder_choice(how).map_err(raise)?;
    let packets =
        Packets { ids: ids.as_slice()?, hashes: hashes.as_slice()?, weights: weights.as_slice()? };
    let start: Vec<usize> = class_start.as_slice()?.iter().map(|&x| x as usize).collect();
    let table = Classes {
        of_packet: class_of_packet.as_slice()?,
        start: &start,
        links: class_links.as_slice()?,
    };
    let links = links.as_slice()?;
    let totals =
        py.detach(|| classes::scores(hash, &packets, &table, links, how)).map_err(raise)?;
    Ok(totals.into_pyarray(py))
}

/// A path for each (source, destination): links after the injection link, chosen uniformly among the
/// route candidates of each switch. Returns the number of links of each, and the links in rows.
#[pyfunction]
fn random_paths<'py>(
    py: Python<'py>,
    network: &Network,
    sources: PyReadonlyArray1<'py, u32>,
    destinations: PyReadonlyArray1<'py, u32>,
    seed: u64,
    most_hops: usize,
) -> PyResult<(Array<'py, u8>, Array<'py, u32>)> {
    let (from, to) = (sources.as_slice()?, destinations.as_slice()?);
    let (fabric, routes) = (&network.fabric, &network.routes);
    if from.len() != to.len() || from.iter().chain(to).any(|&node| node >= fabric.n_nodes) {
        return Err(PyValueError::new_err("sources and destinations must be equally many nodes"));
    }
    let made = py.detach(|| -> Result<_, String> {
        let mut hops = Vec::with_capacity(from.len());
        let mut links = vec![0u32; from.len() * most_hops];
        for (packet, (&a, &b)) in from.iter().zip(to).enumerate() {
            routes.require(fabric, a, b).map_err(|error| error.to_string())?;
            let row = &mut links[packet * most_hops..(packet + 1) * most_hops];
            hops.push(walk(fabric, routes, (a, b), mix(seed ^ mix(packet as u64)), row)?);
        }
        Ok((hops, links))
    });
    let (hops, links) = made.map_err(raise)?;
    Ok((hops.into_pyarray(py), links.into_pyarray(py)))
}

fn walk(
    fabric: &Fabric,
    routes: &Routes,
    (from, to): (u32, u32),
    random: u64,
    row: &mut [u32],
) -> Result<u8, String> {
    let max_links = row.len();
    let too_long = || format!("a path from node {from} to {to} has more than {max_links} links");
    let last = routes.ejection[to as usize];
    let goal = fabric.link_src[last as usize];
    let mut at = fabric.link_dst[routes.injection[from as usize] as usize];
    let mut hops = 0usize;
    if !(1..=usize::from(u8::MAX)).contains(&max_links) {
        return Err(too_long());
    }
    while at != goal {
        let choices = routes.candidates(at - fabric.n_nodes, to);
        let draw = mix(random.wrapping_add(hops as u64)) >> 32;
        let link = choices[((draw * choices.len() as u64) >> 32) as usize];
        if hops + 1 >= max_links {
            return Err(too_long());
        }
        row[hops] = link;
        hops += 1;
        at = fabric.link_dst[link as usize];
    }
    row[hops] = last;
    Ok(hops as u8 + 1)
}

/// (link, window, pair) of samples, or of the record of a run (link, window) and its packets.
type Places<'py> = (PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u32>);
type Counts<'py> = Vec<PyReadonlyArray1<'py, u64>>;

/// (window, pair, link, columns) of samples by the time at the link.
type DatedColumns<'py> = (Array<'py, u32>, Array<'py, u32>, Array<'py, u32>, Vec<Array<'py, u64>>);

/// Samples by the time at the link.
///
/// `at` has the links and windows of arrival; `columns` has the columns of all packets and of
/// congested ones. `record` has links, windows, the packets that left, and the packets that met
/// congestion. `size` is the number of links and of windows.
#[pyfunction]
fn date_samples<'py>(
    py: Python<'py>,
    at: Places<'py>,
    pair: PyReadonlyArray1<'py, u32>,
    columns: (Counts<'py>, Counts<'py>),
    record: (Places<'py>, Counts<'py>),
    size: (usize, usize),
) -> PyResult<DatedColumns<'py>> {
    let [hop, congested, recorded] = [&columns.0, &columns.1, &record.1]
        .map(|of| of.iter().map(|column| column.as_slice()).collect::<Result<Vec<&[u64]>, _>>());
    let (hop, congested, recorded) = (hop?, congested?, recorded?);
    let &[left, met] = recorded.as_slice() else {
        return Err(PyValueError::new_err(
            "a record has packets that left and that met congestion",
        ));
    };
    let rows = SampleRows {
        link: at.0.as_slice()?,
        window: at.1.as_slice()?,
        pair: pair.as_slice()?,
        columns: [&hop, &congested],
    };
    let places = &record.0;
    let record = LinkRecord { link: places.0.as_slice()?, window: places.1.as_slice()?, left, met };
    let dated = py.detach(|| link_times::date_samples(rows, record, size));
    let columns = dated.columns.into_iter().map(|column| column.into_pyarray(py)).collect();
    let [window, pair, link] =
        [dated.window, dated.pair, dated.link].map(|column| column.into_pyarray(py));
    Ok((window, pair, link, columns))
}

/// Adds the functions of this file to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(date_samples, m)?)?;
    m.add_function(wrap_pyfunction!(scheme_facts, m)?)?;
    m.add_function(wrap_pyfunction!(run_scheme, m)?)?;
    m.add_function(wrap_pyfunction!(link_hash, m)?)?;
    m.add_function(wrap_pyfunction!(decode, m)?)?;
    m.add_function(wrap_pyfunction!(decode_published, m)?)?;
    m.add_function(wrap_pyfunction!(decode_classes, m)?)?;
    m.add_function(wrap_pyfunction!(random_paths, m)?)
}
