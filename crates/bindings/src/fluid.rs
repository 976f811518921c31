//! Rates, the fluid engine and permutations for Python: columns in, columns out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_fluid::permutation::{
    DefaultPort, Evaluation, PermutationRouting, random_permutation,
};
use tailback_fluid::{
    Detour, FlowPaths, FlowSet, PathChoice, Policy, RankSettings, Rounds, Router, Tree, Work,
};

use crate::errors::raise;
use crate::network::Network;
use crate::program::PlacedProgram;
use crate::settings::settings_of;
use crate::table::{columns, rows};
use crate::topologies::NetworkRouting;

/// (start, link, share) of `tailback.fluid.FlowPaths`.
type PathColumns<'py> =
    (PyReadonlyArray1<'py, u64>, PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, f64>);

/// (arity, levels, width) of a tree.
type TreeShape = (u32, u32, u32);

/// Adds the functions of the fluid model to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FluidOutcome>()?;
    m.add_function(wrap_pyfunction!(fluid_max_min, m)?)?;
    m.add_function(wrap_pyfunction!(fluid_assignment, m)?)?;
    m.add_function(wrap_pyfunction!(fluid_flows, m)?)?;
    m.add_function(wrap_pyfunction!(fluid_paths, m)?)?;
    m.add_function(wrap_pyfunction!(fluid_program, m)?)?;
    m.add_function(wrap_pyfunction!(fluid_rounds, m)?)?;
    m.add_function(wrap_pyfunction!(tree_permutations, m)?)?;
    m.add_function(wrap_pyfunction!(tree_paths, m)?)?;
    m.add_function(wrap_pyfunction!(tree_ports, m)?)
}

fn paths_of(columns: &PathColumns<'_>) -> PyResult<FlowPaths> {
    Ok(FlowPaths {
        start: columns.0.as_slice()?.to_vec(),
        link: columns.1.as_slice()?.to_vec(),
        share: columns.2.as_slice()?.to_vec(),
    })
}

fn set_work(out: &Bound<'_, PyDict>, work: Work) -> PyResult<()> {
    out.set_item("settlements", work.settlements)?;
    out.set_item("rates_set", work.rates_set)
}

fn policy_of(name: &str) -> PyResult<Policy> {
    match name {
        "max-min" => Ok(Policy::MaxMin),
        "assignment" => Ok(Policy::Assignment),
        _ => Err(raise(format!("unknown rates {name:?}; valid: max-min, assignment"))),
    }
}

fn choice_of(name: &str) -> PyResult<PathChoice> {
    match name {
        "deterministic" => Ok(PathChoice::Deterministic),
        "random" => Ok(PathChoice::Random),
        "least-flows" => Ok(PathChoice::LeastFlows),
        "split" => Ok(PathChoice::Split),
        "spread" => Ok(PathChoice::Spread),
        "pooled" => {
            Err(raise("paths \"pooled\" name trunks, not links: they are for rank programs alone"))
        }
        _ => Err(raise(format!(
            "unknown paths {name:?}; valid: deterministic, random, least-flows, split, spread"
        ))),
    }
}

fn rule_of(table: &str, adaptive: bool, margin: u32) -> PyResult<PermutationRouting> {
    let default = match table {
        "d-mod-k" => DefaultPort::DModK,
        "random" => DefaultPort::RandomTable,
        _ => return Err(raise(format!("unknown table {table:?}; valid: d-mod-k, random"))),
    };
    Ok(PermutationRouting { default, adaptive, margin })
}

/// Weighted max-min fair rates in Gb/s.
#[pyfunction]
fn fluid_max_min<'py>(
    py: Python<'py>,
    capacity: PyReadonlyArray1<'py, f64>,
    paths: PathColumns<'py>,
    weight: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (capacity, paths, weight) = (capacity.as_slice()?, paths_of(&paths)?, weight.as_slice()?);
    let rates = py.detach(|| tailback_fluid::max_min(capacity, &paths, weight)).map_err(raise)?;
    Ok(rates.into_pyarray(py))
}

/// The assignment's rates in Gb/s, and the weight of each link by its capacity.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn fluid_assignment<'py>(
    py: Python<'py>,
    capacity: PyReadonlyArray1<'py, f64>,
    paths: PathColumns<'py>,
    weight: PyReadonlyArray1<'py, f64>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
    let (capacity, paths, weight) = (capacity.as_slice()?, paths_of(&paths)?, weight.as_slice()?);
    let (rates, heavy) =
        py.detach(|| tailback_fluid::assignment(capacity, &paths, weight)).map_err(raise)?;
    Ok((rates.into_pyarray(py), heavy.into_pyarray(py)))
}

fn flow_set(
    start_ps: &PyReadonlyArray1<'_, u64>,
    bytes: &PyReadonlyArray1<'_, u64>,
    weight: &[f64],
    paths: &PathColumns<'_>,
) -> PyResult<FlowSet> {
    Ok(FlowSet {
        start_ps: start_ps.as_slice()?.to_vec(),
        bytes: bytes.as_slice()?.to_vec(),
        weight: weight.to_vec(),
        paths: paths_of(paths)?,
    })
}

/// Simulates flows; returns their ends in picoseconds and the computational effort.
#[pyfunction]
#[pyo3(signature = (capacity, *, start_ps, bytes, weight, paths, rates))]
fn fluid_flows<'py>(
    py: Python<'py>,
    capacity: PyReadonlyArray1<'py, f64>,
    start_ps: PyReadonlyArray1<'py, u64>,
    bytes: PyReadonlyArray1<'py, u64>,
    weight: PyReadonlyArray1<'py, f64>,
    paths: PathColumns<'py>,
    rates: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let policy = policy_of(rates)?;
    let capacity = capacity.as_slice()?.to_vec();
    let flows = flow_set(&start_ps, &bytes, weight.as_slice()?, &paths)?;
    let times =
        py.detach(|| tailback_fluid::simulate_flows(capacity, &flows, policy)).map_err(raise)?;
    let out = columns!(py, times; end_ps);
    set_work(&out, times.work)?;
    Ok(out)
}

/// Paths of flows between nodes, chosen one after the other with all earlier ones in place.
#[pyfunction]
#[pyo3(signature = (network, src, dst, choice, seed, routing=None))]
fn fluid_paths<'py>(
    py: Python<'py>,
    network: &Network,
    src: PyReadonlyArray1<'py, u32>,
    dst: PyReadonlyArray1<'py, u32>,
    choice: &str,
    seed: u64,
    routing: Option<&NetworkRouting>,
) -> PyResult<Bound<'py, PyDict>> {
    let choice = choice_of(choice)?;
    let (src, dst) = (src.as_slice()?, dst.as_slice()?);
    if src.len() != dst.len() {
        return Err(raise(format!(
            "{} sources, {} destinations: the numbers must be equal",
            src.len(),
            dst.len()
        )));
    }
    let fabric = &network.fabric;
    let plan = routing.map_or(&network.plan, |routing| &routing.plan);
    let made = py.detach(|| {
        let mut router = Router::new(fabric, plan, choice, Detour::Never, seed);
        let mut paths = FlowPaths { start: vec![0], ..FlowPaths::default() };
        let mut path = Vec::new();
        for (flow, (&from, &to)) in src.iter().zip(dst).enumerate() {
            router.path(from, to, flow as u64, &mut path)?;
            router.occupy(&path);
            paths.link.extend(path.iter().map(|&(link, _)| link));
            if matches!(choice, PathChoice::Split | PathChoice::Spread) {
                paths.share.extend(path.iter().map(|&(_, share)| share));
            }
            paths.start.push(paths.link.len() as u64);
        }
        Ok::<FlowPaths, tailback_fluid::FluidError>(paths)
    });
    let paths = made.map_err(raise)?;
    Ok(columns!(py, paths; start, link, share))
}

/// Runs `traffic` on `network` by its own routes or those of `routing`. `settings` is a dataclass with
/// the fields of [`RankSettings`].
#[pyfunction]
#[pyo3(signature = (network, settings, traffic, *, routing=None))]
fn fluid_program<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &Bound<'py, PyAny>,
    traffic: PlacedProgram<'py>,
    routing: Option<&NetworkRouting>,
) -> PyResult<FluidOutcome> {
    let settings: RankSettings = settings_of(settings)?;
    let (program, placement) = traffic.read()?;
    let fabric = &network.fabric;
    let plan = routing.map_or(&network.plan, |routing| &routing.plan);
    let times = py
        .detach(|| tailback_fluid::simulate_program(fabric, plan, &settings, &program, &placement))
        .map_err(raise)?;
    let m = &times.messages;
    let messages = columns!(py, times; post_ps, arrival_ps, switches);
    messages.set_item("src_rank", PyArray1::from_iter(py, m.iter().map(|row| row.0)))?;
    messages.set_item("dst_rank", PyArray1::from_iter(py, m.iter().map(|row| row.1)))?;
    messages.set_item("size_bytes", PyArray1::from_iter(py, m.iter().map(|row| row.2)))?;
    messages.set_item("label", PyArray1::from_iter(py, m.iter().map(|row| row.3)))?;
    messages.set_item("start_ps", times.begin_ps.into_pyarray(py))?;
    let ranks = columns!(py, times; finish_ps, compute_ps, wait_ps);
    Ok(FluidOutcome {
        messages: messages.unbind(),
        ranks: ranks.unbind(),
        link_bytes: times.link_bytes.into_pyarray(py).unbind(),
        link_use: rows!(py, times.link_use; window, link, bytes, busy_ps).unbind(),
        window_ps: times.window_ps,
        end_ps: times.end_ps,
        settlements: times.work.settlements,
    })
}

/// Results of a rank program: tables as dictionaries of columns, and totals.
#[pyclass(frozen, get_all, module = "tailback._core")]
pub struct FluidOutcome {
    messages: Py<PyDict>,
    ranks: Py<PyDict>,
    link_bytes: Py<PyArray1<f64>>,
    link_use: Py<PyDict>,
    window_ps: u64,
    end_ps: u64,
    settlements: u64,
}

/// Rounds until each flow has arrived, with switches that serve their inputs round-robin.
#[pyfunction]
fn fluid_rounds<'py>(
    py: Python<'py>,
    n_links: usize,
    paths: PathColumns<'py>,
    cells: u32,
    buffer: u32,
    assigned: bool,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let paths = paths_of(&paths)?;
    let rounds = Rounds { cells, buffer, assigned };
    let done =
        py.detach(|| tailback_fluid::simulate_rounds(n_links, &paths, rounds)).map_err(raise)?;
    Ok(done.into_pyarray(py))
}

/// Congestion of random permutations `first .. first + runs`, each of `copies` superposed.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (shape, *, table, adaptive, margin, copies, first, runs, seed))]
fn tree_permutations<'py>(
    py: Python<'py>,
    shape: TreeShape,
    table: &str,
    adaptive: bool,
    margin: u32,
    copies: u64,
    first: u64,
    runs: u64,
    seed: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let rule = rule_of(table, adaptive, margin)?;
    let tree = Tree::new(shape.0, shape.1, shape.2).map_err(raise)?;
    let results = py.detach(|| {
        let mut evaluation = Evaluation::new(tree, rule)?;
        (first..first + runs)
            .map(|run| {
                evaluation.clear();
                fill(&mut evaluation, copies, run, seed)?;
                Ok(evaluation.congestion())
            })
            .collect::<Result<Vec<_>, tailback_fluid::FluidError>>()
    });
    let results = results.map_err(raise)?;
    Ok(rows!(py, results; max, mean, mean_links))
}

fn fill(
    evaluation: &mut Evaluation,
    copies: u64,
    run: u64,
    seed: u64,
) -> Result<(), tailback_fluid::FluidError> {
    let seed = tailback_fluid::random(seed, 0x9e12, run);
    (0..copies).try_for_each(|copy| {
        evaluation.add(&random_permutation(evaluation.tree.nodes, seed, copy), seed)
    })
}

/// Paths of one superposition of permutations, and the node that sends each flow.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (shape, *, table, adaptive, margin, copies, run, seed))]
fn tree_paths<'py>(
    py: Python<'py>,
    shape: TreeShape,
    table: &str,
    adaptive: bool,
    margin: u32,
    copies: u64,
    run: u64,
    seed: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let rule = rule_of(table, adaptive, margin)?;
    let tree = Tree::new(shape.0, shape.1, shape.2).map_err(raise)?;
    let mut evaluation = Evaluation::new(tree, rule).map_err(raise)?;
    py.detach(|| fill(&mut evaluation, copies, run, seed)).map_err(raise)?;
    let (paths, nodes) = evaluation.paths();
    let out = columns!(py, paths; start, link, share);
    out.set_item("n_links", tree.n_links())?;
    out.set_item("node", nodes.into_pyarray(py))?;
    let rank: Vec<u64> = (0..tree.n_links()).map(|link| tree.rank(link)).collect();
    out.set_item("rank", rank.into_pyarray(py))?;
    Ok(out)
}

/// Switch ports of a tree: (without, with horizontal links).
#[pyfunction]
fn tree_ports(shape: TreeShape) -> PyResult<(u64, u64)> {
    Ok(Tree::new(shape.0, shape.1, shape.2).map_err(raise)?.ports())
}
